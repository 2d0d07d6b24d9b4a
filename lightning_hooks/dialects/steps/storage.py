"""``EventStorage``: the scalars, images and histograms of a run, as detectron2's relatives have it.

Code that is called in training reaches the storage of its run by ``get_event_storage()``: each
dialect has its own, and a run's is there from ``before_train`` until after ``after_train``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any, ClassVar

import torch

from lightning_hooks.dialects.steps.history import HistoryBuffer, settle

__all__ = ["Current", "EventStorage", "innermost"]

Current = ContextVar[tuple["EventStorage", ...]]
"""The storages in whose ``with`` block a program is, the innermost last."""


class EventStorage:
    """Scalars by name with their history, images and histograms of a run.

    Args:
        start_iter: The iteration at which it starts.

    Note:
        Departures from detectron2: a scalar may be a tensor on a device, which is read when
        somebody asks. A scalar that is put with another ``smoothing_hint`` raises ValueError. A
        histogram's number of values is that of all of them (there the length of the tensor).
    """

    current: ClassVar[Current]

    def __init__(self, start_iter: int = 0) -> None:
        self._iter = start_iter
        self._history: dict[str, HistoryBuffer] = {}
        self._smoothing_hints: dict[str, bool] = {}
        self._current_prefix = ""
        self._vis_data: list[tuple[str, Any, int]] = []
        self._histograms: list[dict[str, Any]] = []
        self._outer: list[tuple[EventStorage, ...]] = []

    # -- putting ---------------------------------------------------------------------------

    def put_scalar(
        self, name: str, value: Any, smoothing_hint: bool = True, cur_iter: int | None = None
    ) -> None:
        """Add a value to a scalar's history.

        Args:
            name: The scalar.
            value: A number, or a tensor of one element.
            smoothing_hint: Whether writers should smooth it: the same for all of its values.
            cur_iter: When it was; now, by default.
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

    def feed(self, scalars: Mapping[str, Any]) -> None:
        """Add values whose hints, where they are known, are those that they have."""
        for name, value in scalars.items():
            self.put_scalar(
                name,
                value,
                smoothing_hint=self._smoothing_hints.get(self._current_prefix + name, True),
            )

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Keep an image (channels, height, width) for the writers that show images."""
        self._vis_data.append((img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: torch.Tensor, bins: int = 1000) -> None:
        """Keep a tensor's histogram for the writers that show histograms."""
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
        """Put ``name/`` in front of the names of what is added in the block."""
        outer, self._current_prefix = self._current_prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._current_prefix = outer

    # -- reading ---------------------------------------------------------------------------

    def history(self, name: str) -> HistoryBuffer:
        """The history of a scalar.

        Raises:
            KeyError: if there is none of that name.
        """
        if name not in self._history:
            known = ", ".join(sorted(self._history)) or "none"
            raise KeyError(f"no scalar {name!r} has been put; known: {known}")
        return self._history[name]

    def histories(self) -> dict[str, HistoryBuffer]:
        """The histories of all scalars."""
        return self._history

    def smoothing_hints(self) -> dict[str, bool]:
        """Whether each scalar should be smoothed."""
        return self._smoothing_hints

    def latest_values(self, window_size: int | None = None) -> dict[str, tuple[float, Any]]:
        """The last value and iteration of every scalar.

        Args:
            window_size: If given, the median of so many takes the place of the last value, where
                the scalar should be smoothed.
        """
        settle(self._history.values())  # one copy from the device for all of them
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
        """How many values are in a window."""
        return window_size

    def latest(self) -> dict[str, Any]:
        """The last value of every scalar."""
        return {name: value for name, (value, _) in self.latest_values().items()}

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, Any]:
        """The last value of every scalar, or its median in a window where it should be smoothed."""
        return {name: value for name, (value, _) in self.latest_values(window_size).items()}

    @property
    def vis_data(self) -> list[tuple[str, Any, int]]:
        """The images that wait for a writer: name, image, iteration."""
        return self._vis_data

    @property
    def histograms(self) -> list[dict[str, Any]]:
        """The histograms that wait for a writer: arguments of ``add_histogram_raw``."""
        return self._histograms

    def clear_images(self) -> None:
        """Forget the images, after they have been written."""
        self._vis_data = []

    def clear_histograms(self) -> None:
        """Forget the histograms, after they have been written."""
        self._histograms = []

    # -- where it stands -------------------------------------------------------------------

    @property
    def iter(self) -> int:
        """The iteration that goes on."""
        return self._iter

    @iter.setter
    def iter(self, value: int) -> None:
        self._iter = int(value)

    @property
    def iteration(self) -> int:
        """The iteration that goes on."""
        return self._iter

    def step(self) -> None:
        """Go on to the next iteration."""
        self._iter += 1

    def __enter__(self) -> Any:
        outer = self.current.get(())
        self._outer.append(outer)
        self.current.set((*outer, self))
        return self

    def __exit__(self, *error: object) -> None:
        self.current.set(self._outer.pop())


def innermost(current: Current) -> EventStorage:
    """Return the storage in whose block the program is.

    Raises:
        AssertionError: if it is in none, as in detectron2.
    """
    storages = current.get(())
    if not storages:
        raise AssertionError(
            "get_event_storage() works inside `with EventStorage(...)`, and in a Trainer whose "
            "HookAdapter hosts hooks of the dialect, from before_train to after_train"
        )
    return storages[-1]
