"""``Dialect``: a library's hooks as data, their points and the arguments of these."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L

__all__ = ["DIALECTS", "Arguments", "Dialect", "no_arguments"]

DIALECTS: dict[str, Dialect] = {}
"""The dialects besides mmcv's own, by name; the package fills it."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Arguments of a call: by position and by name."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """One library's kind of hooks, as data.

    Args:
        name: Name for ``HookAdapter(dialect=...)``.
        points: The dialect's points at each of mmcv's, in the order of their calls.
        facade: Class of the object that hooks get in place of mmcv's runner; one for each run.
        arguments: Function of the facade, a point's name and the method that returns the arguments
            of the point.
        base: Name of the library's base class, whose own methods do nothing.
        delegates: Methods that points of the base class call, by point.
        facade_points: Points of mmcv's at which the facade itself has work, with or without hooks.
        on_error: Points that are called also when training raises.
        further: Points besides those, called in other ways.
        has_priority: Whether a hook's ``priority`` is used; else hooks are called as given.
        owners: Names of classes that call ``backward`` and step the optimizer themselves.
        renames_type_errors: Whether a TypeError in a hook is raised again with the hook's name.
        evaluates: Function that calls the points of ``Trainer.test`` and ``Trainer.validate``.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    facade: type[Any]
    arguments: Callable[[Any, str, Any], Arguments]
    base: str
    delegates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    facade_points: tuple[str, ...] = ()
    on_error: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    has_priority: bool = False
    owners: tuple[str, ...] = ()
    renames_type_errors: bool = False
    evaluates: Callable[[L.Trainer, Dialect], None] | None = None

    @property
    def methods(self) -> frozenset[str]:
        """The names of all points that a hook may have."""
        return frozenset(self.further).union(*self.points.values())

    def facade_of(self, runner: Any, point: str) -> Any:
        """Return the facade of the present run; make one at the beginning of a run."""
        facades: dict[str, Any] = runner.dialect_facades
        facade = facades.get(self.name)
        if facade is None or (facade.ended and point == "before_run"):
            facade = self.facade(runner, self)
            facade.begin()
            facades[self.name] = facade
            facade.load_states()
        return facade

    def facade_for_evaluation(self, runner: Any) -> Any:
        """Return the facade for a test: that of the last fit, or a new one."""
        facades: dict[str, Any] = runner.dialect_facades
        if self.name not in facades:
            facades[self.name] = self.facade(runner, self)
        facade = facades[self.name]
        facade.ended = False
        facade.begin()
        return facade


def no_arguments(facade: Any, point: str, method: Any) -> Arguments:
    """Return no arguments: detectron2's hooks have ``self.trainer``."""
    return (), {}
