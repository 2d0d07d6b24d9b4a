"""Writers of Pet: ``write`` is called with the epoch, where the run is counted in epochs."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lightning_hooks.dialects.steps import writers

__all__ = [
    "CommonMetricPrinter",
    "EventWriter",
    "JSONWriter",
    "TensorboardXWriter",
    "VisdomWriter",
    "accepted_keywords",
]


def accepted_keywords(method: Callable[..., Any]) -> set[str] | None:
    """Return the keywords that a method accepts; None: all.

    >>> accepted_keywords(lambda storage, epoch=None: 0) == {"storage", "epoch"}
    True
    """
    parameters = inspect.signature(method).parameters.values()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


class EventWriter(writers.EventWriter):
    """The base of writers: subclasses define ``write``, and ``close`` if they hold something."""

    def write(self, **epochs: Any) -> None:
        """Write the new values.

        Args:
            epochs: ``epoch`` and ``max_epoch``, in a run that is counted in epochs.
        """
        super().write()


class JSONWriter(EventWriter, writers.SnapshotJSONWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.SnapshotJSONWriter`."""


class TensorboardXWriter(EventWriter, writers.TensorboardXWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.TensorboardXWriter`."""


class VisdomWriter(EventWriter, writers.VisdomWriter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.VisdomWriter`."""


class CommonMetricPrinter(EventWriter, writers.CommonMetricPrinter):
    """Pet's :class:`~lightning_hooks.dialects.steps.writers.CommonMetricPrinter`."""
