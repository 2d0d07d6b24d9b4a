"""Describe how hooks of another library are called: at which points, and with what."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L

__all__ = ["DIALECTS", "Arguments", "Dialect", "no_arguments"]

DIALECTS: dict[str, Dialect] = {}
"""The dialects besides mmcv's own, by name; the package fills it."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""What a method is called with: by position and by name."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """One library's way of writing hooks, as data.

    Args:
        name: What ``HookAdapter(dialect=...)`` calls it.
        points: The dialect's points at each of mmcv's, in the order of their calls.
        facade: What the hooks see in place of mmcv's runner; one object for each run.
        arguments: What a point is called with: a function of the facade, the point's name and
            the method.
        base: The library's base class, by name: its own methods do nothing.
        delegates: The method that a point of the base class calls, where it does that.
        attends: Points of mmcv's at which the facade has something to do, whoever is called there.
        on_error: Points that are reached also when training raises.
        further: Points besides those, reached in other ways.
        has_priority: Whether a hook's ``priority`` counts; else hooks are called as given.
        owners: Classes, by name, that call ``backward`` and step the optimizer themselves.
        renames_type_errors: Whether a TypeError in a hook is raised anew with the hook in it.
        evaluates: Sees to the points of ``Trainer.test`` and ``Trainer.validate``, if any.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    facade: type[Any]
    arguments: Callable[[Any, str, Any], Arguments]
    base: str
    delegates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    attends: tuple[str, ...] = ()
    on_error: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    has_priority: bool = False
    owners: tuple[str, ...] = ()
    renames_type_errors: bool = False
    evaluates: Callable[[L.Trainer, Dialect], None] | None = None

    @property
    def methods(self) -> frozenset[str]:
        """The names of all points that a hook may have."""
        return frozenset([name for names in self.points.values() for name in names]) | {
            *self.further
        }

    def facade_of(self, runner: Any, point: str) -> Any:
        """Return the facade of the run that goes on, a new one where a run begins."""
        facades = _facades_of(runner)
        facade = facades.get(self.name)
        if facade is None or (facade.ended and point == "before_run"):
            facade = self.facade(runner, self)
            facade.begin()
            facades[self.name] = facade
            facade.take_checkpoint()
        return facade

    def facade_for_evaluation(self, runner: Any) -> Any:
        """Return what the hooks see of a test: the facade of the fit before, if there was one."""
        facades = _facades_of(runner)
        if self.name not in facades:
            facades[self.name] = self.facade(runner, self)
        facade = facades[self.name]
        facade.ended = False
        facade.begin()
        return facade


def _facades_of(runner: Any) -> dict[str, Any]:
    """Return the facades of a runner by dialect."""
    facades: dict[str, Any] = vars(runner).setdefault("_facades", {})
    return facades


def no_arguments(facade: Any, point: str, method: Any) -> Arguments:
    """Call methods as detectron2 does: with ``self.trainer`` there is nothing to pass."""
    return (), {}
