"""``Dialect`` describes a library's hooks as data; ``detect`` finds the library of a hook."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.points import POINTS, STAGES
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_object, shown
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

if TYPE_CHECKING:
    from lightning_hooks.dialects.hosting import Facade

__all__ = [
    "DIALECTS",
    "MMCV",
    "PACKAGES",
    "Arguments",
    "Dialect",
    "detect",
]

MMCV = frozenset(POINTS)
"""The points of an mmcv hook."""

PACKAGES = {"mmcv": "mmcv"}
"""The dialect of a hook by the package of its base class; ``lightning_hooks.dialects`` adds all."""

DIALECTS: dict[str, Dialect] = {}
"""All dialects except mmcv's, by name; ``lightning_hooks.dialects`` fills the dict."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
"""Positional and keyword arguments of a call."""


@dataclasses.dataclass(frozen=True)
class Dialect:
    """The hooks of a library as data: points, arguments and trainer.

    Args:
        name: Name for ``HookAdapter(dialect=...)``.
        points: Points of the library at each point of mmcv, in calling order.
        facade: Class of the runner or trainer passed to hooks; one object for each run.
        arguments: Function of the facade, a point's name and the hook's method; returns the
            arguments of the call.
        base: Name of the library's base class, whose methods do nothing.
        delegates: Method called by the base class's default implementation of a point, by point.
        facade_points: Points of mmcv at which the facade has work, with or without hooks.
        on_error: Points also called when training raises.
        further: Points called at no point of mmcv.
        has_priority: Whether hooks are sorted by ``priority``; else the order is the list's.
        owners: Names of hook classes that call ``backward`` and step the optimizer.
        renames_type_errors: Whether a TypeError in a hook is raised again with the hook's name.
        at_setup: Function called at the setup of a fit, test or validation.
        further_packages: Packages of the library, besides a package with the dialect's name.
    """

    name: str
    points: Mapping[str, tuple[str, ...]]
    facade: type[Facade]
    arguments: Callable[[Any, str, Any], Arguments]
    base: str
    delegates: Mapping[str, str] = dataclasses.field(default_factory=dict)
    facade_points: tuple[str, ...] = ()
    on_error: tuple[str, ...] = ()
    further: tuple[str, ...] = ()
    has_priority: bool = False
    owners: tuple[str, ...] = ()
    renames_type_errors: bool = False
    at_setup: Callable[[L.Trainer, Dialect], None] | None = None
    further_packages: tuple[str, ...] = ()

    @property
    def methods(self) -> frozenset[str]:
        """The names of all points of a hook."""
        return frozenset(self.further).union(*self.points.values())

    @property
    def packages(self) -> tuple[str, ...]:
        """The library's packages."""
        return (self.name, *self.further_packages)

    def facade_of(self, runner: Runner, point: str) -> Facade:
        """Return the facade of the current run; make a new facade at the start of a run."""
        facade = runner.dialect_facades.get(self.name)
        if facade is None or (facade.ended and point == "before_run"):
            facade = self.facade(runner, self)
            facade.begin()
            runner.dialect_facades[self.name] = facade
            facade.load_states()
        return facade

    def facade_for_evaluation(self, runner: Runner) -> Facade:
        """Return the facade for a test: the facade of the last fit, or a new facade."""
        facade = runner.dialect_facades.get(self.name) or self.facade(runner, self)
        runner.dialect_facades[self.name] = facade
        facade.ended = False
        facade.begin()
        return facade


def detect(hook: Any, dialect: str = "auto") -> str:
    """Return the name of a hook's library, the dialect.

    Args:
        hook: A hook object.
        dialect: The user's choice, or ``"auto"``.

    Raises:
        UnknownNameError: if ``dialect`` is unknown.
        TypeError: for an object without a point of the dialect, or of any dialect.
        ValueError: if several dialects are possible.
    """
    points_of = {"mmcv": MMCV, **{name: known.methods for name, known in DIALECTS.items()}}
    if dialect not in ("auto", *points_of):
        close = suggest(dialect, ["auto", *points_of])
        raise UnknownNameError(f"unknown dialect {shown(dialect)}; {close}")
    name = type(hook).__name__
    check_object(hook)
    if isinstance(hook, (str, Mapping)):
        given = repr(masked(hook))
        config = given if isinstance(hook, Mapping) else f"dict(type={given})"
        raise TypeError(
            f"a hook must be an object, got {given}; write HookAdapter([{config}]), "
            f"or runner.register_hook_from_cfg({config})"
        )
    if isinstance(hook, (list, tuple)):
        raise TypeError(f"a {name} among the hooks: give all in one list, HookAdapter([*hooks])")
    if isinstance(hook, HookCallback):
        return "mmcv"
    by_base = _by_base(hook)
    if dialect == "auto" and by_base is not None:
        return by_base
    points = {p for names in points_of.values() for p in names if callable(getattr(hook, p, None))}
    if dialect == "auto":
        if points:
            return _by_points(hook, points, points_of)
        if isinstance(hook, Callback):
            raise TypeError(f"{name} is Lightning's own: give it to Trainer(callbacks=[...])")
        raise TypeError(
            f"{name} object has none of the points of a hook ({', '.join(sorted(STAGES))}, ...)"
        )
    if not points & points_of[dialect] and by_base != dialect:
        methods = sorted(points) or "none of a hook"
        raise TypeError(f"{name} has no point of the dialect {shown(dialect)}, only {methods}")
    return dialect


def _by_base(hook: Any) -> str | None:
    """Return the dialect of the nearest base class: ``hook_dialect``, or the class's package."""
    for base in type(hook).__mro__:
        declared = vars(base).get("hook_dialect")
        if isinstance(declared, str) and declared in DIALECTS:
            return declared
        package = base.__module__.partition(".")[0]
        if package in PACKAGES:
            return PACKAGES[package]
    return None


def _by_points(hook: Any, points: set[str], points_of: Mapping[str, frozenset[str]]) -> str:
    """Return the only dialect with the hook's points and their arguments.

    Raises:
        ValueError: if several dialects match, or none.
    """
    arguments = {name for point in points for name in _argument_names(getattr(hook, point))}
    if arguments & {"batch_idx", "data_batch", "metrics"}:
        return "mmengine"
    if "trainner" in arguments:  # pointrix's own spelling
        return "pointrix"
    if points & {"before_step", "after_step"}:
        if "after_backward" in points:
            return "detectron2"
        if arguments & {"storage", "kwargs", "max_epochs"}:
            return "pet"
    elif points <= MMCV:
        return "mmcv"
    elif "runner" in arguments and points <= points_of["mmengine"]:
        return "mmengine"
    possible = [dialect for dialect, known in points_of.items() if points <= known] or points_of
    raise ValueError(
        f"cannot detect the dialect of {type(hook).__name__} from its points "
        f"({', '.join(sorted(points))}): it may be {', '.join(possible)}; "
        "write HookAdapter(..., dialect=...)"
    )


def _argument_names(method: Any) -> set[str]:
    try:
        return {*inspect.signature(method).parameters}
    except (TypeError, ValueError):
        return set()
