"""``NanSafeUpdate``: update averages on the device, except in a step with NaN weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lightning_hooks.utils import foreach
from lightning_hooks.utils.nonfinite import over_ranks

__all__ = ["NanSafeUpdate", "wide"]

TENSORS, NUMBERS, SHARE = 512, 2**16, 32  # the size of a sample, see NanSafeUpdate


class NanSafeUpdate:
    """``average += weight * (value - average)`` for many tensors of one device at once.

    A step with a NaN or infinite value updates nothing. Up to 65536 numbers are all checked; of
    more numbers a sample: the beginnings of up to 512 tensors, together a 32nd of all numbers. The
    check costs a few hundredths of the update; a check of every number costs half an update more.
    A bad gradient reaches every layer in front of it, and the next loss spreads the NaN to all
    layers. ``repair`` replaces bad numbers missed by the sample, before the average is used.

    The verdict stays on the device, and the host never waits. ``torch._foreach_lerp_`` has no flag
    for doing nothing (and ``0 * NaN`` is NaN); torch's fused SGD kernel has the flag ``found_inf``.
    With ``value`` as the gradient of a maximization and a weight decay of 1, a step of fused SGD is
    the formula above, rounded in the same places.

    Args:
        parameters: Pairs of average and value.
        left_out: The count of skipped updates, a 0-d tensor on the tensors' device.
        every: Check every number.
        buffers: Pairs of average and value. Bad numbers are left out one by one: a NaN stays in
            BatchNorm's statistics forever, and the ranks' statistics differ.
        copies: Copy the buffers instead of averaging them.
        decide_on: The device on which the ranks decide together, for shards; None where each rank
            decides alone.
    """

    def __init__(
        self,
        parameters: Sequence[tuple[torch.Tensor, torch.Tensor]],
        left_out: torch.Tensor,
        every: bool,
        buffers: Sequence[tuple[torch.Tensor, torch.Tensor]] = (),
        copies: bool = False,
        decide_on: torch.device | None = None,
    ) -> None:
        groups: dict[tuple[torch.dtype, bool], tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
        for average, value in parameters:
            key = value.dtype, _can_be_fused(average, value)
            group = groups.setdefault(key, ([], []))
            group[0].append(average)
            group[1].append(value)  # not detached: a swap may point it elsewhere
        self._groups = [
            (*group, None if every else _samples(group[1]), key[1]) for key, group in groups.items()
        ]
        self._buffers, self._copies = [*buffers], copies
        self._left_out = left_out
        self._decide_on = decide_on

    @torch.no_grad()
    def __call__(self, weight: float, bad: torch.Tensor | None = None) -> torch.Tensor:
        """Update all tensors, or none if a value is bad.

        Args:
            weight: The weight of the values.
            bad: The verdict of another average on the same step, to save a search and a vote.

        Returns:
            1.0 if a value is bad, else 0.0.
        """
        bad = self._is_bad() if bad is None else bad
        self._left_out += bad
        skips = bad > 0
        for averages, values, _, fused in self._groups:
            if values[0].dtype != averages[0].dtype:
                values = [value.to(averages[0].dtype) for value in values]
            if fused and weight < 0.5:  # from 0.5 on, lerp starts from the value, for precision
                _fused_lerp(averages, values, weight, bad)
            else:
                for average, value in zip(averages, values, strict=True):
                    average.copy_(torch.where(skips, average, average.lerp(value, weight)))
        for average, value in self._buffers:
            value = value.to(average.dtype)
            new = value if self._copies else average.lerp(value, weight)
            average.copy_(torch.where(skips | ~new.isfinite(), average, new))
        return bad

    @torch.no_grad()
    def repair(self) -> None:
        """Replace NaN and infinite numbers of the averages by the numbers of the values."""
        for averages, values, *_ in self._groups:
            for average, value in zip(averages, values, strict=True):
                average.copy_(torch.where(average.isfinite(), average, value))

    def _is_bad(self) -> torch.Tensor:
        """Return 1.0 if a value is not finite, else 0.0, for the fused kernel."""
        flags = [~_total(values, samples).isfinite() for _, values, samples, _ in self._groups]
        if len(flags) == 1:  # nearly always
            bad = flags[0].to(self._left_out.dtype)
        else:
            bad = sum(flags, torch.zeros_like(self._left_out)).clamp(max=1)
        return bad if self._decide_on is None else over_ranks(bad.to(self._decide_on)).to(bad)


def _total(values: list[torch.Tensor], samples: list[torch.Tensor] | None) -> torch.Tensor:
    """Return a number that is not finite if a value, or a number of the samples, is not."""
    dtype = wide(values[0].dtype)
    if samples is None:
        return torch.stack(foreach.norm(values, 2, dtype)).sum()
    return torch.cat(samples).sum(dtype=dtype)


def _fused_lerp(
    averages: list[torch.Tensor], values: list[torch.Tensor], weight: float, bad: torch.Tensor
) -> None:
    foreach.fused_sgd_(
        averages,
        values,
        [],
        weight_decay=1.0,
        momentum=0.0,
        lr=weight,
        dampening=0.0,
        nesterov=False,
        maximize=True,
        is_first_step=False,
        grad_scale=None,
        found_inf=bad,
    )


def _can_be_fused(average: torch.Tensor, value: torch.Tensor) -> bool:
    """Whether the fused kernel takes a pair."""
    types = (torch.float32, torch.float64)
    has_kernel = value.device.type in ("cpu", "cuda") and average.dtype in types
    return has_kernel and _is_dense(value) and average.stride() == value.stride()


def _is_dense(value: torch.Tensor) -> bool:
    """Whether a tensor has no gaps in memory, in any order of dimensions."""
    reach = sum((n - 1) * stride for n, stride in zip(value.shape, value.stride(), strict=True))
    return value.numel() == reach + 1


def _samples(values: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return views of all tensors, or of the beginnings of some, spread over all."""
    some = [value.detach() for value in values if value.numel()]
    each = numbers = sum(value.numel() for value in some)
    if numbers > NUMBERS:
        some = some[:: -(-len(some) // TENSORS)]
        each = max(numbers // SHARE, NUMBERS) // len(some)
    return [_beginning(value, each) for value in some] or [values[0].new_zeros(1)]


def _beginning(value: torch.Tensor, numbers: int) -> torch.Tensor:
    if _is_dense(value):
        size = min(value.numel(), numbers)
        return value.as_strided((size,), (1,), value.storage_offset())
    return value[(0,) * (value.dim() - 1)][:numbers]  # never a copy: a copy would be of this step


def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the type of an average: float32 for types of lower precision."""
    is_number = dtype.is_floating_point or dtype.is_complex
    return torch.promote_types(dtype, torch.float32) if is_number else dtype
