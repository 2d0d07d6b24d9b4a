"""``WatchHook``: histograms of parameters and gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_choice, check_int
from lightning_hooks.utils.dtensors import local_part
from lightning_hooks.utils.samples import Histogram

__all__ = ["WatchHook", "histograms_of"]

CELLS = 64
"""The cells of a histogram."""

EXACT = 2**24
"""Values counted at once: above this number float32 cannot count."""


@HOOKS.register_module()
class WatchHook(Hook):
    """Logs histograms of the parameters and gradients every ``interval`` iterations.

    The histograms are ``parameters/<name>`` and ``gradients/<name>`` in W&B, TensorBoard and
    ClearML, with 64 cells from the least to the greatest finite value. Gradients are taken for the
    optimizer's step, parameters just before; the first histograms show the first step and so a
    wrong initialisation. Parameters come with the step of their optimizer; with accumulated
    gradients, with the next step. The values are counted on the device and copied once. Infinite
    values, NaN and values beyond half of the type's maximum are left out and counted apart.

    The histograms show gradients before clipping by the Trainer, and before clipping by an
    ``OptimizerHook`` listed after this hook. Rank 0 counts, of a sharded model its own part.

    Args:
        interval: Iterations between two histograms.
        log: ``"gradients"``, ``"parameters"`` or ``"all"``.

    Raises:
        TypeError: if ``interval`` is no int.
        ValueError: for an ``interval`` below 1, or another word for ``log``.

    Note:
        mmcv has no such hook; W&B's ``watch`` counts in a hook of each gradient, in every step.
    """

    _reads_step = False
    _transient = ("_last",)
    _last: dict[int, int]

    def __init__(self, interval: int = 1000, log: str = "all") -> None:
        super().__init__()
        check_int("interval", interval, 1)
        check_choice("log", log, ("gradients", "parameters", "all"))
        self.interval, self.which = interval, log

    def before_run(self, runner: Runner) -> None:
        """Begin with the first step."""
        self._last = {}

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the histograms of the optimizer's parameters, if due."""
        runner = Driver.of(trainer).runner
        block = runner.iter // self.interval
        if self._last.get(id(optimizer)) == block or not trainer.is_global_zero:
            return
        if not runner.samples.holds("histograms"):
            return
        self._last[id(optimizer)] = block
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in pl_module.named_parameters():
            if id(parameter) not in stepped:
                continue
            if self.which != "gradients":
                tensors[f"parameters/{name}"] = parameter
            if self.which != "parameters" and parameter.grad is not None:
                tensors[f"gradients/{name}"] = parameter.grad
        with torch.no_grad():
            for name, histogram in histograms_of(tensors).items():
                runner.log_histogram(name, histogram)


# -- histograms ----------------------------------------------------------------------------------


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
    histograms: dict[str, Histogram] = {}
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
                histograms[name] = Histogram(low, high, tuple(map(int, counts)), left_out)
    return {name: histograms[name] for name in rows if name in histograms}


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
