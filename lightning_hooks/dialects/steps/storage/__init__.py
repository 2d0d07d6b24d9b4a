"""``EventStorage``: the scalars, images and histograms of a run, in detectron2, cvpods and Pet.

Each dialect has a class of its own, so that a run with hooks of several dialects has a storage for
each. ``get_event_storage()`` of a dialect returns the storage of the run, from ``before_train``
until after ``after_train``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from lightning_hooks.dialects.steps.history import HistoryBuffer, read_pending
from lightning_hooks.utils.suggestions import suggest

__all__ = ["EventStorage"]

S = TypeVar("S", bound="EventStorage")

_STACK: ContextVar[tuple[EventStorage, ...]] = ContextVar("event storages", default=())
"""The storages that are entered, the innermost last."""


class EventStorage:
    """The scalars of a run by name with their histories, its images and histograms.

    Args:
        start_iter: Number of the first iteration.

    Note:
        Departures from detectron2: a scalar may be a tensor on a device; it is copied when it is
        read. A scalar that is put with another ``smoothing_hint`` raises ValueError. A
        histogram's ``num`` counts all values (there it is the length of the tensor).
    """

    def __init__(self, start_iter: int = 0) -> None:
        self._iter = start_iter
        self._history: dict[str, HistoryBuffer] = {}
        self._smoothing_hints: dict[str, bool] = {}
        self._current_prefix = ""
        self._vis_data: list[tuple[str, Any, int]] = []
        self._histograms: list[dict[str, Any]] = []

    # -- writing ---------------------------------------------------------------------------

    def put_scalar(
        self, name: str, value: Any, smoothing_hint: bool = True, cur_iter: int | None = None
    ) -> None:
        """Add a value to a scalar's history.

        Args:
            name: Name of the scalar.
            value: Number, or tensor of one element.
            smoothing_hint: Whether writers should smooth the scalar; the same for all its values.
            cur_iter: Iteration of the value; the present one by default.
        """
        name = self._current_prefix + name
        if self._smoothing_hints.setdefault(name, smoothing_hint) != smoothing_hint:
            raise ValueError(
                f"the scalar {name!r} was put with smoothing_hint={not smoothing_hint}, "
                f"now with {smoothing_hint}"
            )
        if name not in self._history:
            self._history[name] = HistoryBuffer()
        self._history[name].update(value, self._iter if cur_iter is None else cur_iter)

    def put_scalars(
        self, *, smoothing_hint: bool = True, cur_iter: int | None = None, **scalars: Any
    ) -> None:
        """Add a value to each of several scalars."""
        for name, value in scalars.items():
            self.put_scalar(name, value, smoothing_hint=smoothing_hint, cur_iter=cur_iter)

    def feed(self, scalars: Mapping[str, Any], cur_iter: int | None = None) -> None:
        """Add values to several scalars, with the smoothing hints that these already have."""
        for name, value in scalars.items():
            self.put_scalar(
                name,
                value,
                smoothing_hint=self._smoothing_hints.get(self._current_prefix + name, True),
                cur_iter=cur_iter,
            )

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Store an image (channels, height, width) for the writers that show images."""
        self._vis_data.append((img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: torch.Tensor, bins: int = 1000) -> None:
        """Store a tensor's histogram for the writers that show histograms."""
        values = hist_tensor.detach().float().flatten()
        low, high = values.min().item(), values.max().item()
        self._histograms.append(
            {
                "tag": hist_name,
                "min": low,
                "max": high,
                "num": values.numel(),
                "sum": values.sum().item(),
                "sum_squares": values.square().sum().item(),
                "bucket_limits": torch.linspace(low, high, bins + 1)[1:].tolist(),
                "bucket_counts": torch.histc(values, bins=bins).tolist(),
                "global_step": self._iter,
            }
        )

    @contextlib.contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Prefix the names of scalars that are added in the block with ``name/``."""
        outer, self._current_prefix = self._current_prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._current_prefix = outer

    # -- reading ---------------------------------------------------------------------------

    def history(self, name: str) -> HistoryBuffer:
        """Return the history of a scalar.

        Raises:
            KeyError: if there is no scalar of that name.
        """
        if name not in self._history:
            raise KeyError(f"no scalar {name!r} has been put; {suggest(name, self._history)}")
        return self._history[name]

    def histories(self) -> dict[str, HistoryBuffer]:
        """Return the histories of all scalars by name."""
        return self._history

    def smoothing_hints(self) -> dict[str, bool]:
        """Return by name whether each scalar should be smoothed."""
        return self._smoothing_hints

    def latest_values(self, window_size: int | None = None) -> dict[str, tuple[float, Any]]:
        """Return the last value and iteration of every scalar.

        Args:
            window_size: Number of values whose median replaces the last value of a scalar that
                should be smoothed; None for no smoothing.
        """
        read_pending(self._history.values())  # one copy from the device for all of them
        return {
            name: (
                history.median(self.count_samples(name, window_size))
                if window_size is not None and self._smoothing_hints[name]
                else history.latest(),
                history.last_iteration(),
            )
            for name, history in self._history.items()
        }

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of a scalar's values in a window."""
        return window_size

    def latest(self) -> dict[str, Any]:
        """Return the last value of every scalar."""
        return {name: value for name, (value, _) in self.latest_values().items()}

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, Any]:
        """Return the last value of every scalar, or the median of a window if it has the hint."""
        return {name: value for name, (value, _) in self.latest_values(window_size).items()}

    @property
    def vis_data(self) -> list[tuple[str, Any, int]]:
        """The images that are not written yet: name, image, iteration."""
        return self._vis_data

    @property
    def histograms(self) -> list[dict[str, Any]]:
        """The histograms that are not written yet: arguments of ``add_histogram_raw``."""
        return self._histograms

    def clear_images(self) -> None:
        """Remove the images after they were written."""
        self._vis_data = []

    def clear_histograms(self) -> None:
        """Remove the histograms after they were written."""
        self._histograms = []

    # -- the present iteration -------------------------------------------------------------

    @property
    def iter(self) -> int:
        """The present iteration."""
        return self._iter

    @iter.setter
    def iter(self, value: int) -> None:
        self._iter = int(value)

    @property
    def iteration(self) -> int:
        """The present iteration."""
        return self._iter

    def step(self) -> None:
        """Go on to the next iteration."""
        self._iter += 1

    # -- the stack of storages -------------------------------------------------------------

    def __enter__(self: S) -> S:
        _STACK.set((*_STACK.get(), self))
        return self

    def __exit__(self, *error: object) -> None:
        stack = _STACK.get()
        # the runs of several dialects end in any order
        last = max((i for i, storage in enumerate(stack) if storage is self), default=len(stack))
        _STACK.set(stack[:last] + stack[last + 1 :])

    def bring_forward(self) -> None:
        """Make this storage the innermost one, if the innermost is another dialect's."""
        stack = _STACK.get()
        if stack and not isinstance(stack[-1], type(self)) and self in stack:
            _STACK.set((*(storage for storage in stack if storage is not self), self))

    @classmethod
    def is_entered(cls) -> bool:
        """Return whether a storage of this class is entered."""
        return any(isinstance(storage, cls) for storage in _STACK.get())

    @classmethod
    def innermost(cls: type[S]) -> S:
        """Return the innermost storage of this class: that of the run or ``with`` block.

        Raises:
            AssertionError: if there is none, as in detectron2.
        """
        for storage in reversed(_STACK.get()):
            if isinstance(storage, cls):
                return storage
        raise AssertionError(
            "get_event_storage() works inside `with EventStorage(...)`, and in a Trainer whose "
            "HookAdapter hosts hooks of the dialect, from before_train to after_train"
        )
