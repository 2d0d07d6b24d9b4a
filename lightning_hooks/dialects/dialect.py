"""``Dialect``: one library's hooks as data: points, arguments, and the class of its runner."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import lightning as L

__all__ = ["DIALECTS", "Arguments", "Dialect", "no_arguments"]

DIALECTS: dict[str, Dialect] = {}
"""All dialects except mmcv's, by name; ``lightning_hooks.dialects`` fills the dict."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """One library's kind of hooks, as data.

    Args:
        name: Name for ``HookAdapter(dialect=...)``.
        points: Points of the library at each point of mmcv, in the order of their calls.
        facade: Class of the runner or trainer passed to hooks; one object for each run.
        arguments: Function of the facade, a point's name and the hook's method; returns the
            arguments of the call.
        base: Name of the library's base class, whose methods do nothing.
        delegates: Method called by the base class's default implementation of a point, by point.
        facade_points: Points of mmcv at which the facade has work, with or without hooks.
        on_error: Points also called when training raises.
        further: Points called at no point of mmcv.
        has_priority: Whether a hook's ``priority`` is used; else hooks are called as given.
        owners: Names of hook classes that call ``backward`` and step the optimizer.
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
        """Return the facade of the current run; make a new facade at the start of a run."""
        facades: dict[str, Any] = runner.dialect_facades
        facade = facades.get(self.name)
        if facade is None or (facade.ended and point == "before_run"):
            facade = self.facade(runner, self)
            facade.begin()
            facades[self.name] = facade
            facade.load_states()
        return facade

    def facade_for_evaluation(self, runner: Any) -> Any:
        """Return the facade for a test: the facade of the last fit, or a new one."""
        facades: dict[str, Any] = runner.dialect_facades
        facade = facades.get(self.name) or self.facade(runner, self)
        facades[self.name] = facade
        facade.ended = False
        facade.begin()
        return facade


def no_arguments(facade: Any, point: str, method: Any) -> Arguments:
    """Return no arguments: hooks of detectron2 and cvpods read ``self.trainer``."""
    return (), {}
