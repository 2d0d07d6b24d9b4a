"""``MessageHub``: mmengine's store of scalar histories and of other values."""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from lightning_hooks.dialects import events
from lightning_hooks.utils.concatenated import concatenated, separated
from lightning_hooks.utils.suggestions import suggest

__all__ = ["HistoryBuffer", "MessageHub", "library_hubs"]


class HistoryBuffer(events.HistoryBuffer):
    """A scalar's values and counts, with mmengine's statistics of the last values.

    >>> loss = HistoryBuffer()
    >>> for value in (3.0, 1.0, 2.0):
    ...     loss.update(value)
    >>> loss.current(), loss.mean(), loss.min(2), loss.statistics("max", 3)
    (2.0, 2.0, 1.0, 3.0)
    """

    def __init__(self, max_length: int = 1_000_000) -> None:
        super().__init__(max_length)
        self._counts: deque[float] = deque(maxlen=max_length)

    def update(self, log_val: Any, count: float = 1) -> None:  # type: ignore[override]  # mmengine names the argument so
        """Add a value, the mean of ``count`` values."""
        super().update(log_val)
        self._counts.append(count)

    @property
    def data(self) -> tuple[Any, Any]:
        """The values and the counts, as arrays."""
        return self._last_data()

    def _last_data(self, window_size: int | None = None) -> tuple[Any, Any]:
        """Return the last values and their counts, as arrays; all by default."""
        number = window_size or len(self._data)
        values = [scalar.value for scalar in self._last(number)]
        return np.array(values), np.array(events.last_of(self._counts, number))

    def current(self) -> float:
        """Return the last value."""
        return self.latest()

    def mean(self, window_size: int | None = None) -> float:
        """Return the sum of the last values over the sum of the counts; of all by default."""
        values, counts = self._last_data(window_size)
        return float(values.sum() / counts.sum())

    def max(self, window_size: int | None = None) -> float:
        """Return the largest of the last values."""
        return float(self._last_data(window_size)[0].max())

    def min(self, window_size: int | None = None) -> float:
        """Return the smallest of the last values."""
        return float(self._last_data(window_size)[0].min())

    def statistics(self, method_name: str, *args: Any, **kwargs: Any) -> Any:
        """Return a statistic by name: ``mean``, ``max``, ``min`` or ``current``."""
        if method_name not in ("mean", "max", "min", "current"):
            raise KeyError(f"unknown statistic {method_name!r}; known: mean, max, min, current")
        return getattr(self, method_name)(*args, **kwargs)


class MessageHub:
    """Histories of scalars by name (``log_scalars``), and other values (``runtime_info``).

    Values added with ``resumed=False`` are not saved.
    """

    def __init__(self) -> None:
        self.instance_name = f"lightning_hooks_{id(self):x}"
        self._unsaved: set[str] = set()
        self.log_scalars: OrderedDict[str, HistoryBuffer] = OrderedDict()
        self.runtime_info: OrderedDict[str, Any] = OrderedDict()

    def update_scalar(self, key: str, value: Any, count: int = 1, resumed: bool = True) -> None:
        """Add a value to a scalar's history."""
        if not resumed:
            self._unsaved.add(key)
        self.log_scalars.setdefault(key, HistoryBuffer()).update(value, count)

    def update_scalars(self, log_dict: Mapping[str, Any], resumed: bool = True) -> None:
        """Add a value to several histories: a number, or ``dict(value=..., count=...)``."""
        for key, value in log_dict.items():
            if isinstance(value, Mapping):
                self.update_scalar(key, value["value"], value.get("count", 1), resumed)
            else:
                self.update_scalar(key, value, resumed=resumed)

    def update_info(self, key: str, value: Any, resumed: bool = True) -> None:
        """Set a value."""
        self.update_info_dict({key: value}, resumed)

    def update_info_dict(self, info_dict: Mapping[str, Any], resumed: bool = True) -> None:
        """Set several values."""
        if not resumed:
            self._unsaved.update(info_dict)
        self.runtime_info.update(info_dict)

    def pop_info(self, key: str, default: Any = None) -> Any:
        """Remove and return a value."""
        return self.runtime_info.pop(key, default)

    def get_info(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        return self.runtime_info.get(key, default)

    def get_scalar(self, key: str) -> HistoryBuffer:
        """Return a scalar's history.

        Raises:
            KeyError: for an unknown scalar, with the closest name.
        """
        if key not in self.log_scalars:
            raise KeyError(f"no scalar {key!r} has been added; {suggest(key, self.log_scalars)}")
        return self.log_scalars[key]

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the histories, the other values, and whether each is saved by name."""
        return self._state(copy.deepcopy)

    def plain_state(self) -> dict[str, Any]:
        """Return ``state_dict()`` for a file: of the histories the values, and the counts."""
        state = self._state(lambda history: [*map(torch.from_numpy, history.data)])
        histories = state["log_scalars"].items()
        values, counts = ({name: each[part] for name, each in histories} for part in (0, 1))
        return {**state, "log_scalars": [concatenated(values), concatenated(counts)]}

    def _state(self, stored: Callable[[HistoryBuffer], Any]) -> dict[str, Any]:
        names = (*self.log_scalars, *self.runtime_info)
        saved = {k: v for k, v in self.log_scalars.items() if k not in self._unsaved}
        events.read_pending(saved.values())  # one copy from the device for all scalars
        return {
            "log_scalars": {name: stored(history) for name, history in saved.items()},
            "runtime_info": {k: v for k, v in self.runtime_info.items() if k not in self._unsaved},
            "resumed_keys": {name: name not in self._unsaved for name in names},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        saved = state.get("log_scalars", {})
        if isinstance(saved, list):
            values, counts = map(separated, saved)
            histories = {name: (values[name], counts[name]) for name in values}
        else:
            histories = {name: history.data for name, history in saved.items()}
        for name, pairs in histories.items():
            self.log_scalars[name] = history = HistoryBuffer()
            for value, count in zip(*(each.tolist() for each in pairs), strict=True):
                history.update(value, count)
        self.runtime_info.update(state.get("runtime_info", {}))


def library_hubs() -> dict[str, Any]:
    """Return mmengine's message hubs by name; empty if mmengine is not loaded."""
    module: Any = sys.modules.get("mmengine.logging.message_hub")
    hubs: Any = getattr(getattr(module, "MessageHub", None), "_instance_dict", None)
    return hubs if isinstance(hubs, dict) else {}
