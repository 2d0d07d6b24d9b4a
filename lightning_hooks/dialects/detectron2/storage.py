"""detectron2's event storage."""

from __future__ import annotations

from lightning_hooks.dialects.steps import storage

__all__ = ["EventStorage", "get_event_storage", "has_event_storage"]


class EventStorage(storage.EventStorage):
    """The scalars, images and histograms of a run; values come with their iterations."""

    def latest(self) -> dict[str, tuple[float, int]]:
        """Return the last value of every scalar, with its iteration."""
        return self.latest_values()

    @property
    def _latest_scalars(self) -> dict[str, tuple[float, int]]:
        """The same, under the name that projects read."""
        return self.latest_values()

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """Return the same, with the median of a window for scalars that should be smoothed."""
        return self.latest_values(window_size)

    def count_samples(self, name: str, window_size: int = 20) -> int:
        """Return the number of values in the last ``window_size`` iterations of a scalar."""
        history = self.history(name)
        return history.count_since(history.last_iteration() - window_size)


get_event_storage = EventStorage.innermost


def has_event_storage() -> bool:
    """Return whether ``get_event_storage()`` has a storage to return."""
    return EventStorage.is_entered()
