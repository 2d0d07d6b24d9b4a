"""``EventStorage``: the scalars, images and histograms of a run, in detectron2, cvpods and Pet.

Each dialect has a subclass, so that hooks of several dialects in a run have separate storages.
``get_event_storage()`` of a dialect returns the run's storage from ``before_train`` until after
``after_train``. If the library itself is loaded, the storage is also on the library's stack, for
the library's hooks and writers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

import torch

from lightning_hooks.dialects.steps.history import HistoryBuffer, read_pending
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "EventStorage",
    "enter_library",
    "gives_iterations",
    "leave_library",
    "library_modules",
]

S = TypeVar("S", bound="EventStorage")

_STACK: ContextVar[tuple[EventStorage, ...]] = ContextVar("event storages", default=())
"""The entered storages, the innermost last."""


class EventStorage:
    """The histories of a run's scalars by name, and the run's images and histograms.

    Args:
        start_iter: Number of the first iteration.

    Note:
        Departures from detectron2: a tensor on a device is copied at the first reading. Another
        ``smoothing_hint`` for the same scalar raises ValueError. A histogram's ``num`` counts all
        values (in detectron2, the length of the tensor).
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
            smoothing_hint: Whether writers smooth the scalar; the same for all values.
            cur_iter: Iteration of the value; the current iteration by default.
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
        """Add values to several scalars with their present smoothing hints."""
        for name, value in scalars.items():
            self.put_scalar(
                name,
                value,
                smoothing_hint=self._smoothing_hints.get(self._current_prefix + name, True),
                cur_iter=cur_iter,
            )

    def put_image(self, img_name: str, img_tensor: Any) -> None:
        """Store an image (channels, height, width) for writers of images."""
        self._vis_data.append((img_name, img_tensor, self._iter))

    def put_histogram(self, hist_name: str, hist_tensor: torch.Tensor, bins: int = 1000) -> None:
        """Store a tensor's histogram for writers of histograms."""
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
        """Prefix the names of scalars added in the block with ``name/``."""
        outer, self._current_prefix = self._current_prefix, name.rstrip("/") + "/"
        try:
            yield
        finally:
            self._current_prefix = outer

    # -- reading ---------------------------------------------------------------------------

    def history(self, name: str) -> HistoryBuffer:
        """Return the history of a scalar.

        Raises:
            KeyError: for an unknown scalar, with the closest name.
        """
        if name not in self._history:
            raise KeyError(f"no scalar {name!r} has been put; {suggest(name, self._history)}")
        return self._history[name]

    def histories(self) -> dict[str, HistoryBuffer]:
        """Return the histories of all scalars by name."""
        return self._history

    def smoothing_hints(self) -> dict[str, bool]:
        """Return the smoothing hints by name."""
        return self._smoothing_hints

    def latest_values(self, window_size: int | None = None) -> dict[str, tuple[float, Any]]:
        """Return the last value and iteration of every scalar.

        Args:
            window_size: Number of last values; their median replaces the last value of a scalar
                with a smoothing hint. None for no smoothing.
        """
        read_pending(self._history.values())  # one copy from the device for all scalars
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
        """Return the last value of every scalar; with a smoothing hint, the median of a window."""
        return {name: value for name, (value, _) in self.latest_values(window_size).items()}

    @property
    def vis_data(self) -> list[tuple[str, Any, int]]:
        """The unwritten images: name, image, iteration."""
        return self._vis_data

    @property
    def histograms(self) -> list[dict[str, Any]]:
        """The unwritten histograms: arguments of ``add_histogram_raw``."""
        return self._histograms

    def clear_images(self) -> None:
        """Remove the images; writers call this after writing."""
        self._vis_data = []

    def clear_histograms(self) -> None:
        """Remove the histograms; writers call this after writing."""
        self._histograms = []

    # -- the current iteration -------------------------------------------------------------

    @property
    def iter(self) -> int:
        """The current iteration."""
        return self._iter

    @iter.setter
    def iter(self, value: int) -> None:
        self._iter = int(value)

    @property
    def iteration(self) -> int:
        """The current iteration."""
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
        """Make this storage the innermost if the innermost belongs to another dialect."""
        stack = _STACK.get()
        if stack and not isinstance(stack[-1], type(self)) and self in stack:
            _STACK.set((*(storage for storage in stack if storage is not self), self))

    @classmethod
    def is_entered(cls) -> bool:
        """Return whether a storage of this class is entered."""
        return any(isinstance(storage, cls) for storage in _STACK.get())

    @classmethod
    def innermost(cls: type[S]) -> S:
        """Return the innermost storage of this class, of the run or ``with`` block.

        Raises:
            AssertionError: outside of a run and of a ``with`` block, as in detectron2.
        """
        for storage in reversed(_STACK.get()):
            if isinstance(storage, cls):
                return storage
        raise AssertionError(
            "get_event_storage() works inside `with EventStorage(...)`, and in a Trainer whose "
            "HookAdapter hosts hooks of the dialect, from before_train to after_train"
        )


# -- the stack of a loaded library ----------------------------------------------------------

_LIBRARY_STACK = "_CURRENT_STORAGE_STACK"
"""Name of the stack in modules of detectron2, cvpods and Pet, and in copies of these modules."""


def enter_library(storage: Any, modules: Iterable[ModuleType]) -> None:
    """Push a storage on the stacks of the modules."""
    for module in modules:
        vars(module)[_LIBRARY_STACK].append(storage)


def leave_library(storage: Any, modules: Iterable[ModuleType]) -> None:
    """Remove a storage from the stacks of the modules."""
    for module in modules:
        stack = vars(module)[_LIBRARY_STACK]
        stack[:] = [other for other in stack if other is not storage]


def library_modules(packages: Iterable[str], objects: Iterable[Any]) -> list[ModuleType]:
    """Return the loaded modules with a stack of storages.

    Args:
        packages: Names of the library's packages.
        objects: Hooks. The packages of their classes and of their writers are searched too, since
            projects have copies of the library.
    """
    given = list(objects)
    for hook in [*given]:
        writers = getattr(hook, "_writers", getattr(hook, "writers", None))  # Pet: without _
        given += writers if isinstance(writers, (list, tuple)) else ()
    classes = {base for entry in given for base in type(entry).__mro__}
    roots = {*packages, *(cls.__module__.partition(".")[0] for cls in classes)}
    roots -= {"builtins", "lightning_hooks"}
    found: dict[int, ModuleType] = {}
    for name, module in sys.modules.copy().items():  # other threads may import
        stack = vars(module).get(_LIBRARY_STACK) if name.partition(".")[0] in roots else None
        # several modules may share a stack: prefer the module of EventStorage
        if isinstance(stack, list) and (id(stack) not in found or "EventStorage" in vars(module)):
            found[id(stack)] = module
    return list(found.values())


def gives_iterations(module: ModuleType) -> bool:
    """Return whether a module's ``EventStorage.latest()`` returns values with iterations."""
    if "EventStorage" not in vars(module):
        return False
    storage = vars(module)["EventStorage"](0)
    storage.put_scalar("value", 0.0)
    return isinstance(storage.latest()["value"], tuple)
