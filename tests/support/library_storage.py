"""Event storages of the imitated libraries, each with a separate stack."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["library_storage"]


def library_storage() -> tuple[list[Any], Any, type[Any]]:
    """Return a stack of storages, its ``get_event_storage()``, and the storage's base class."""
    stack: list[Any] = []

    def get_event_storage() -> Any:
        assert stack, "no storage"
        return stack[-1]

    class Storage:
        """Scalars by name."""

        def __init__(self, start_iter: int = 0) -> None:
            self._iter = start_iter
            self._history: dict[str, list[tuple[float, int]]] = {}
            self._hints: dict[str, bool] = {}

        def put_scalar(self, name: str, value: Any, smoothing_hint: bool = True) -> None:
            self._history.setdefault(name, []).append((float(value), self._iter))
            self._hints[name] = smoothing_hint

        @property
        def iter(self) -> int:
            return self._iter

        @iter.setter
        def iter(self, value: int) -> None:
            self._iter = value

        def latest(self) -> dict[str, Any]:
            """The last value of each scalar."""
            return {name: values[-1][0] for name, values in self._history.items()}

        def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, Any]:
            """Return the last value of each scalar, or the median if the scalar has the hint."""
            values = {name: [one for one, _ in own] for name, own in self._history.items()}
            return {
                name: float(np.median(own[-window_size:])) if self._hints[name] else own[-1]
                for name, own in values.items()
            }

        def __enter__(self) -> Any:
            stack.append(self)
            return self

        def __exit__(self, *error: object) -> None:
            stack.pop()

    return stack, get_event_storage, Storage
