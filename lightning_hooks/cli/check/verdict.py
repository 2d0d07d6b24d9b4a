"""Whether old hooks can run here, and what to write where they cannot."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lightning_hooks.cli.check.classes import EVERY_POINT, PLAIN, Classes
from lightning_hooks.cli.check.imports import Imports, packages_of, unreadable
from lightning_hooks.cli.check.report import TORCH, FileReport, Finding, HookReport
from lightning_hooks.cli.check.source import HookClass, Method, SourceFile, Use
from lightning_hooks.dialects import DIALECTS
from lightning_hooks.dialects.detect import MMCV
from lightning_hooks.engine.points import GENERIC, STAGES
from lightning_hooks.engine.registry import MMCV_HOOKS
from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.engine.runner.iter_runner import IterRunner

__all__ = ["judge"]

GONE = ("PaviLoggerHook", "SegmindLoggerHook")


def judge(
    files: Mapping[Path, SourceFile], read: Callable[[Path], SourceFile], roots: Sequence[Path] = ()
) -> list[FileReport]:
    """Judge files that belong together.

    Args:
        files: The files; what one sets on the runner another may read.
        read: Reads a further file, of those that these import.
        roots: Where the project's modules may lie, besides beside a file's own package.

    Returns:
        A report for each file that has hooks, cannot be read, or cannot be imported so that hooks
        beside it cannot be either.
    """
    imports = Imports(read, roots)
    classes = Classes(files, read, imports)
    project = _Project(files, classes)
    reports = []
    packages: dict[Path, Finding | None] = {}
    stopped: dict[str, Finding] = {}
    for path, file in files.items():
        if file.error is not None:
            reports.append(FileReport(file.path, (), unreadable(file)))
            continue
        hooks = tuple(project.report(cls) for cls in file.classes if classes.is_hook(cls))
        if not hooks:
            continue
        told = dict.fromkeys(imports.findings(path))  # a module, once for all names of it
        reports.append(FileReport(file.path, hooks, tuple(told)))
        for init in packages_of(path):
            if init not in packages:
                packages[init] = _stop(imports.findings(init))
            found = packages[init]
            if found is not None:  # what is below it is not reached
                stopped[read(init).path] = found
                break
    listed = {report.path for report in reports}
    return [
        *(FileReport(path, (), (one,)) for path, one in stopped.items() if path not in listed),
        *reports,
    ]


def _stop(findings: Iterable[Finding]) -> Finding | None:
    for found in findings:
        if found.cannot_run:
            alone = "a copy of the hook's file in your project, imported from there"
            return dataclasses.replace(found, write=f"{alone}; or {found.write}")
    return None


class _Project:
    """What is known of all the files together."""

    def __init__(self, files: Mapping[Path, SourceFile], classes: Classes) -> None:
        self._classes = classes
        self._written = {
            use.attribute
            for file in files.values()
            for cls in file.classes
            for use in cls.uses
            if use.kind == "writes"
        }
        self._points = {
            name: (file.path, line)
            for file in reversed(list(files.values()))
            for name, line in file.points
        }

    def report(self, cls: HookClass) -> HookReport:
        """Judge one hook."""
        if not self._classes.is_of_runner(cls):
            found = Finding(
                cls.line,
                "is a hook of torch's modules, which no runner calls",
                _as_module_hook(cls.name, self._classes.methods(cls)),
                cannot_run=False,
            )
            return HookReport(cls.name, cls.line, TORCH, (), (), (), (found,))
        dialect = self._classes.dialect(cls)
        known = _points_of(dialect)
        order = [*STAGES, *GENERIC.values()]
        lineage = [one for one in self._classes.lineage(cls) if one is cls or one.name not in PLAIN]
        points = list({name for one in lineage for name in one.methods if name in known})
        points.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
        uses = [use for one in lineage for use in one.uses]
        touched = {kind: _names(uses, kind) for kind in ("reads", "writes", "asks")}
        return HookReport(
            name=cls.name,
            line=cls.line,
            dialect=dialect,
            points=tuple(points),
            reads=tuple(dict.fromkeys([*touched["reads"], *touched["asks"]])),
            writes=touched["writes"],
            findings=tuple(sorted(self._findings(cls, dialect), key=lambda found: found.line)),
            inherits=bool(self._classes.bases(cls, outside=True) - PLAIN),
        )

    def _findings(self, cls: HookClass, dialect: str) -> Iterator[Finding]:
        asked = _names(cls.uses, "asks")
        missing = [
            use
            for use in cls.uses
            if use.kind == "reads"
            and use.attribute not in {*attributes(dialect), *self._written, *asked}
            and not use.attribute.startswith("__")
        ]
        for use in {use.attribute: use for use in reversed(missing)}.values():
            yield Finding(
                use.line,
                f"reads runner.{use.attribute}, which neither the runner nor a hook here has",
                f"HookAdapter([{cls.name}(...)], attributes={{{use.attribute!r}: ...}})",
                cannot_run=False,
            )
        yield from self._never_called(cls, dialect)
        if not (self._classes.bases(cls) or EVERY_POINT & self._classes.methods(cls).keys()):
            yield Finding(
                cls.line,
                "has neither a hook as its base nor a point, so that nothing calls it",
                f"class {cls.name}(Hook), with the points that it needs",
            )
        if dialect == "mmcv":
            yield from _mmcv_findings(cls, self._classes.bases(cls))
            yield from self._taken_names(cls)
        if cls.raises_stop is not None:
            yield Finding(
                cls.raises_stop,
                "raises StopIteration, which reaches you as a RuntimeError",
                "runner.should_stop = True, to end the run",
                cannot_run=False,
            )

    def _taken_names(self, cls: HookClass) -> Iterator[Finding]:
        """Find mmcv's names, unless a registry of the project's own is given them."""
        taken = [name for name in cls.registers if name in MMCV_HOOKS]
        own = self._classes.has_own_registry(cls) if taken else True
        for name in () if own else taken:
            registry = ".".join(cls.registry)
            unless = f", unless {registry} is a registry of the project's own" * (own is None)
            yield Finding(
                cls.line,
                f"{name} is a name of mmcv's own, which is registered already{unless}",
                f"@{registry}.register_module(force=True)",
                cannot_run=own is False,
            )

    def _never_called(self, cls: HookClass, dialect: str) -> Iterator[Finding]:
        """Find methods that look like points, and that neither a runner nor the class calls."""
        known = _points_of(dialect)
        lineage = self._classes.lineage(cls)
        called = {name for one in lineage for name in one.calls}
        for method in cls.methods.values():
            looks = method.name.startswith(("before_", "after_")) and method.required == 1
            if not looks or method.name in {*known, *called}:
                continue
            close = difflib.get_close_matches(method.name, known, n=1, cutoff=0.9)
            what = f"{method.name} is called at no point"
            if method.name in self._points:
                where = "{}:{}".format(*self._points[method.name])
                what = f"{method.name} is called by {where}, which is not the runner here"
            due = f"runner.call_hook({method.name!r}), in the point of a hook where it is due"
            write = f"def {close[0]}({', '.join(('self', *method.arguments))})" if close else due
            others = (
                known & self._classes.methods(cls).keys()
                or self._classes.bases(cls, outside=True) - PLAIN
            )
            yield Finding(method.line, what, write, cannot_run=not others)


def _points_of(dialect: str) -> frozenset[str]:
    return MMCV if dialect == "mmcv" else DIALECTS[dialect].methods


def _as_module_hook(name: str, methods: Mapping[str, Method]) -> str:
    """Say how to give a torch module a hook."""
    if "register" in methods:
        return f"{name}(...).register(module), where the module is made"
    function = "hook_func()" if "hook_func" in methods else "hook"
    return f"module.register_forward_pre_hook({name}(...).{function}), or the kind that it is of"


def _mmcv_findings(cls: HookClass, bases: set[str]) -> Iterator[Finding]:
    for method in cls.methods.values():
        if method.name in MMCV and method.required > 1:
            yield Finding(
                method.line,
                f"{method.name} wants {', '.join(method.arguments[1:])}, and mmcv gives the runner",
                f"def {method.name}(self, runner)",
            )
        elif method.name in MMCV and not (method.arguments or method.takes_any):
            yield Finding(
                method.line,
                f"{method.name} takes no runner",
                f"def {method.name}(self, runner)",
            )
    if cls.reads_checkpoint is not None:
        yield Finding(
            cls.reads_checkpoint,
            "looks for a checkpoint's file, which in a Trainer is written after after_train_epoch "
            "and after_train_iter",
            "that part in before_train_epoch or before_train_iter, which come next, and after_run",
            cannot_run=False,
        )
    for base in sorted(bases & {*GONE}):
        yield Finding(cls.line, f"{base}'s service is gone", "another logger as its base")
    built = cls.methods.get("__init__")
    if built is not None and "runner" in built.arguments[: built.required]:
        yield Finding(
            built.line,
            "is made with the runner, which there is in a run only",
            f"runner.register_hook({cls.name}(runner, ...)) in another hook's before_run",
            cannot_run=False,
        )
    if cls.calls_backward is not None and not any("OptimizerHook" in base for base in bases):
        yield Finding(
            cls.calls_backward,
            "runs backward itself",
            f"HookAdapter([{cls.name}(...)], owns_backward=True), if it is the training's",
            cannot_run=False,
        )


def _names(uses: Sequence[Use], kind: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(use.attribute for use in uses if use.kind == kind))


@functools.cache
def attributes(dialect: str) -> frozenset[str]:
    """Return what the hooks of a dialect find on their runner, or trainer."""
    owners: list[type] = [EpochRunner, IterRunner]
    if dialect != "mmcv":
        owners.append(DIALECTS[dialect].facade)
    names: set[str] = set()
    for cls in {base for owner in owners for base in owner.__mro__ if base is not object}:
        names |= {*vars(cls), *getattr(cls, "__annotations__", {})}
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
        names |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    return frozenset(names)
