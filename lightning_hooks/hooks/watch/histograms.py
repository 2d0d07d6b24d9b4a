"""Count the values of many tensors on the device, with a single copy to the host."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from lightning_hooks.utils.dtensors import local_part
from lightning_hooks.utils.samples import Histogram

__all__ = ["CELLS", "histograms_of"]

CELLS = 64
"""The cells of a histogram."""

EXACT = 2**24
"""Values counted at once: above this number float32 cannot count."""


def histograms_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Histogram]:
    """Return the histogram of each tensor, from the least to the greatest finite value.

    Tensors without a finite value are left out. Of a sharded tensor only this rank's part counts.
    Values beyond half of the type's maximum (1.7e38 in float32, 9e307 in float64) count as
    infinite: the width of their range would be infinite.

    >>> counted = histograms_of({"w": torch.tensor([0.0, 1.0, 1.0, float("nan")])})["w"]
    >>> counted.low, counted.high, counted.counts[0], counted.counts[-1], counted.left_out
    (0.0, 1.0, 1, 2, 1)
    """
    rows = {
        name: _counted(values) for name, each in tensors.items() if (values := _flat(each)).numel()
    }
    found: dict[str, Histogram] = {}
    for device in {row.device for row in rows.values()}:
        names = [name for name, row in rows.items() if row.device == device]
        for name, row in zip(names, torch.stack([rows[n] for n in names]).tolist(), strict=True):
            low, high, total, *counts = row
            if low <= high:
                left_out = int(total) - int(sum(counts))
                if low == high:  # all values are equal, and in the first cell
                    margin = max(0.5, CELLS * math.ulp(low))
                    low, high = low - margin, high + margin
                    counts = [*[0.0] * (CELLS // 2), sum(counts), *[0.0] * (CELLS // 2 - 1)]
                found[name] = Histogram(low, high, tuple(map(int, counts)), left_out)
    return {name: found[name] for name in rows if name in found}


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    values = local_part(tensor).detach()
    if values.is_sparse:
        values = values.coalesce().values()
    if values.is_complex():
        values = torch.view_as_real(values)
    return values.flatten() if values.dtype == torch.float64 else values.flatten().float()


def _counted(values: torch.Tensor) -> torch.Tensor:
    """Return least and greatest finite value, number of values and counts, in a tensor.

    Nothing is read from the device: ``torch.histc`` gets the fixed range 0 to 1.
    """
    finite = values.abs() <= torch.finfo(values.dtype).max / 2
    infinity = torch.full((), torch.inf, dtype=values.dtype, device=values.device)
    low = torch.where(finite, values, infinity).min()
    high = torch.where(finite, values, -infinity).max()
    width = torch.where(high > low, high - low, torch.ones_like(low))
    inside = torch.where(finite, (values - low) / width, -torch.ones_like(values))
    if values.device.type == "cuda":  # integers: with floats histc refuses to be deterministic
        cells = (inside * CELLS).floor().clamp(-1, CELLS - 1).int()
        parts = [torch.histc(cells, CELLS, 0, CELLS - 1)]
    else:
        parts = [torch.histc(part, CELLS, 0, 1) for part in torch.split(inside, EXACT)]
    wide = torch.float32 if values.device.type == "mps" else torch.float64
    counts = torch.stack(parts).to(wide).sum(0)
    total = torch.full((), values.numel(), device=values.device)
    return torch.cat([torch.stack([each.to(wide) for each in (low, high, total)]), counts])
