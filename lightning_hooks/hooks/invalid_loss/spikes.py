"""Find loss spikes on the device: a loss far above the median of the last losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from lightning_hooks.utils.arguments import check_count, check_number, shown
from lightning_hooks.utils.nonfinite import scalar
from lightning_hooks.utils.suggestions import suggest

__all__ = ["Spikes"]


class Spikes:
    """Judges each loss by the median of the last good losses; nothing is read from the device.

    A loss above ``ratio`` times the median is a spike, once ``window`` losses are known and if the
    median is positive. The median takes in neither spikes nor NaN and infinite losses.

    Args:
        window: The number of losses of the median, at least 2.
        ratio: The ratio to the median above which a loss is a spike, above 1.
        patience: The number of spikes in a row from which on a spike is bad; at least 1.

    >>> spikes = Spikes(window=2, ratio=3.0)
    >>> [spikes.judged(torch.tensor(loss)).item() for loss in (1.0, 1.2, 9.0, 1.1, 3.5)]
    [1.0, 1.2000000476837158, inf, 1.100000023841858, inf]
    """

    def __init__(self, window: int = 100, ratio: float = 3.0, patience: int = 1) -> None:
        check_count("spike['window']", window, 2)
        check_number("spike['ratio']", ratio, above=1)
        check_count("spike['patience']", patience)
        self.window, self.ratio, self.patience = window, ratio, patience
        self._losses = torch.full((window,), torch.nan)
        self._in_a_row = torch.zeros(())
        self._seen = 0

    @classmethod
    def of(cls, given: Any) -> Spikes | None:
        """Return a new judge for the argument ``spike`` of the hook; None without.

        Raises:
            TypeError: for anything but a dict or None.
            ValueError: for an unknown key, or a number out of range.
        """
        if given is None:
            return None
        if not isinstance(given, Mapping):
            raise TypeError(f"spike must be a dict or None, got {shown(given)}; write spike=dict()")
        known = ["window", "ratio", "patience"]
        for key in given:
            if key not in known:
                raise ValueError(f"spike has the unknown key {shown(key)}: {suggest(key, known)}")
        return cls(**given)

    @torch.no_grad()
    def judged(self, loss: torch.Tensor) -> torch.Tensor:
        """Take in a loss; return infinity for a spike that counts as bad, else the loss."""
        loss = scalar(loss.detach()).float()
        if self._losses.device != loss.device:
            self._losses, self._in_a_row = (
                tensor.to(loss.device) for tensor in (self._losses, self._in_a_row)
            )
        place = self._seen % self.window
        self._seen += 1
        median = self._losses.median()  # NaN until all are known
        is_spike = (median > 0) & (loss > self.ratio * median)
        self._in_a_row = torch.where(is_spike, self._in_a_row + 1, 0.0)
        is_good = loss.isfinite() & ~is_spike
        self._losses[place] = torch.where(is_good, loss, self._losses[place])
        return torch.where(is_spike & (self._in_a_row >= self.patience), torch.inf, loss)
