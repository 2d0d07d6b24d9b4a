"""Reasons why a hook of a runner cannot run, or needs attention."""

from __future__ import annotations

import ast
import difflib
import functools
import inspect
import textwrap
from collections.abc import Iterator

from lightning_hooks.cli.check.classes import EVERY_POINT, PLAIN, Classes, ResolvedClass
from lightning_hooks.cli.check.project import Project
from lightning_hooks.cli.check.report import Finding, short
from lightning_hooks.dialects import DIALECTS
from lightning_hooks.dialects.detect import MMCV
from lightning_hooks.engine.registry import MMCV_HOOKS
from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.engine.runner.iter_runner import IterRunner

__all__ = ["HookFindings", "attributes", "points_of"]

DISCONTINUED = ("PaviLoggerHook", "SegmindLoggerHook")


class HookFindings:
    """Finds the problems of a project's hooks.

    Args:
        project: The files; an attribute that one sets on the runner another may read.
        classes: Their classes.
    """

    def __init__(self, project: Project, classes: Classes) -> None:
        self._classes = classes
        self._written = {
            use.attribute
            for file in project.files
            for cls in file.classes
            for use in cls.uses
            if use.kind == "writes"
        }
        self._points = {
            name: f"{short(file.path)}:{line}"
            for file in reversed(project.files)
            for name, line in file.points
        }

    def of(self, cls: ResolvedClass) -> Iterator[Finding]:
        """Yield the findings of one hook."""
        yield from self._missing_attributes(cls)
        yield from self._uncalled_methods(cls)
        if not (cls.bases or EVERY_POINT & cls.methods.keys()):
            yield Finding(
                cls.own.line,
                "has neither a hook as its base nor a point, so it is never called",
                f"class {cls.own.name}(Hook), with the points that it needs",
            )
        if cls.dialect == "mmcv":
            yield from _wrong_points(cls)
            yield from _departures(cls)
            yield from self._taken_names(cls)
        if cls.own.raises_stop is not None:
            yield Finding(
                cls.own.raises_stop,
                "raises StopIteration, which reaches you as a RuntimeError",
                "runner.should_stop = True, to end the run",
                cannot_run=False,
            )

    def _missing_attributes(self, cls: ResolvedClass) -> Iterator[Finding]:
        """Find attributes that neither the runner nor a hook of the project has."""
        known = attributes(cls.dialect) | self._written
        known |= {use.attribute for use in cls.own.uses if use.kind == "asks"}
        reads = [use for use in cls.own.uses if use.kind == "reads"]
        for name, use in {use.attribute: use for use in reversed(reads)}.items():
            if name not in known and not name.startswith("__"):
                yield Finding(
                    use.line,
                    f"reads runner.{name}, which neither the runner nor a hook here has",
                    f"HookAdapter([{cls.own.name}(...)], attributes={{{name!r}: ...}})",
                    cannot_run=False,
                )

    def _uncalled_methods(self, cls: ResolvedClass) -> Iterator[Finding]:
        """Find methods that look like points, and that neither a runner nor the class calls."""
        known = points_of(cls.dialect)
        called = known.union(*(one.calls for one in cls.lineage))
        has_points = bool(known & cls.methods.keys() or cls.outside - PLAIN)
        for method in cls.own.methods.values():
            name = method.name
            is_like_point = name.startswith(("before_", "after_")) and method.required == 1
            if not is_like_point or name in called:
                continue
            what = f"{name} is called at no point"
            if name in self._points:
                what = f"{name} is called by {self._points[name]}, which is not the runner here"
            write = f"runner.call_hook({name!r}), in the point of a hook where it is due"
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if close:
                write = f"def {close[0]}({', '.join(('self', *method.arguments))})"
            yield Finding(method.line, what, write, cannot_run=not has_points)

    def _taken_names(self, cls: ResolvedClass) -> Iterator[Finding]:
        """Find mmcv's names, unless the class is in a registry of the project's own."""
        taken = [name for name in cls.own.registers if name in MMCV_HOOKS]
        is_own = self._classes.has_own_registry(cls.own) if taken else None
        for name in [] if is_own else taken:
            registry = ".".join(cls.own.registry)
            unless = f", unless {registry} is a registry of the project's own" * (is_own is None)
            yield Finding(
                cls.own.line,
                f"{name} is a name of mmcv's own, which is registered already{unless}",
                f"@{registry}.register_module(force=True)",
                cannot_run=is_own is False,
            )


def _wrong_points(cls: ResolvedClass) -> Iterator[Finding]:
    """Find points that cannot be called with the runner alone."""
    for method in cls.own.methods.values():
        if method.name not in MMCV:
            continue
        if method.required > 1:
            more = ", ".join(method.arguments[1:])
            what = f"{method.name} requires {more}, but mmcv passes only the runner"
        elif not (method.arguments or method.takes_any):
            what = f"{method.name} takes no runner"
        else:
            continue
        yield Finding(method.line, what, f"def {method.name}(self, runner)")


def _departures(cls: ResolvedClass) -> Iterator[Finding]:
    """Find code that works in mmcv, but differently or not at all here."""
    own = cls.own
    if own.reads_checkpoint is not None:
        yield Finding(
            own.reads_checkpoint,
            "looks for a checkpoint's file, which in a Trainer is written after after_train_epoch "
            "and after_train_iter",
            "that part in before_train_epoch or before_train_iter, which come next, and after_run",
            cannot_run=False,
        )
    for base in sorted(cls.bases.intersection(DISCONTINUED)):
        yield Finding(own.line, f"{base}'s service is gone", "another logger as its base")
    init = own.methods.get("__init__")
    if init is not None and "runner" in init.arguments[: init.required]:
        yield Finding(
            init.line,
            "requires the runner in its constructor, which exists only during a run",
            f"runner.register_hook({own.name}(runner, ...)) in another hook's before_run",
            cannot_run=False,
        )
    if own.calls_backward is not None and not any("OptimizerHook" in base for base in cls.bases):
        yield Finding(
            own.calls_backward,
            "runs backward itself",
            f"HookAdapter([{own.name}(...)], owns_backward=True), if it trains the model",
            cannot_run=False,
        )


def points_of(dialect: str) -> frozenset[str]:
    """Return the points of a dialect."""
    return MMCV if dialect == "mmcv" else DIALECTS[dialect].methods


@functools.cache
def attributes(dialect: str) -> frozenset[str]:
    """Return the attributes of a dialect's runner, or trainer."""
    owners: list[type] = [EpochRunner, IterRunner]
    if dialect != "mmcv":
        owners.append(DIALECTS[dialect].facade)
    names: set[str] = set()
    for cls in {base for owner in owners for base in owner.__mro__ if base is not object}:
        names |= {*vars(cls), *getattr(cls, "__annotations__", {})}
        names |= {
            node.attr
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls))))
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    return frozenset(names)
