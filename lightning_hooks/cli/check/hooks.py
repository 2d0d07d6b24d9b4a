"""Judge the hook classes of a project that has been imported."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
import typing
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.absent import is_installed
from lightning_hooks.cli.check.report import TORCH, Finding, HookReport, short
from lightning_hooks.cli.check.source import Name, read
from lightning_hooks.dialects import DIALECTS, detect
from lightning_hooks.dialects.detect import MMCV
from lightning_hooks.engine.points import POINTS
from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.engine.runner.iter_runner import IterRunner
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.suggestions import suggest

__all__ = ["Hooks", "attributes", "inner_attributes"]

RUNNERS = {"runner", "trainer", "trainner"}
"""Names that hooks give the runner."""
RUNNER_OF = {"mmcv": "runner", "mmengine": "runner", "pointrix": "trainner"}
"""The runner's name in dialects whose points get it as an argument; in others ``trainer``."""
PLAIN = {"Hook", "HookBase", *(dialect.base for dialect in DIALECTS.values())}
"""Bases with points that do nothing."""
SERVICES_GONE = {"PaviLoggerHook": "pavi", "SegmindLoggerHook": "segmind"}
"""Loggers and the modules that they call, which few machines still have."""
MODULE_HOOK_METHODS = {"hook", "hook_type", "hook_func"}
"""Methods of hooks that torch calls, in mmpose and mmaction."""
EVERY_POINT = MMCV.union(*(dialect.methods for dialect in DIALECTS.values()))
ORDER = [*POINTS, *sorted(EVERY_POINT - MMCV)]


class Hooks:
    """Judges the hooks in the files of a project.

    Args:
        modules: The imported files; an attribute that a hook in one sets on the runner, or that a
            runner of the project has, those in others may read.
        registered: The classes in registries of hooks.
    """

    def __init__(self, modules: Mapping[Path, Any], registered: Collection[Any]) -> None:
        self._registered = registered
        self._files = {
            cls: path
            for path, module in modules.items()
            for cls in map(vars(module).get, read(path).lines)
            if isinstance(cls, type) and cls.__module__ == module.__name__
        }
        self._points = {
            name.parts[0]: f"{short(path)}:{name.line}"
            for path in modules
            for name in read(path).names
            if name.kind == "point"
        }
        self._written = {
            attribute
            for cls in self._files
            for attribute, _, kind in self._uses(cls)
            if kind == "write"
        }.union(*(self._brought(cls) for cls in self._files if issubclass(cls, Runner)))

    def judge(self, files: Collection[Path]) -> Iterator[HookReport | Finding]:
        """Yield a report and the findings for each hook in some of the files."""
        for cls, file in self._files.items():
            if file not in files or not self._is_hook(cls):
                continue
            path, name, line = short(file), cls.__name__, read(file).lines[cls.__name__]
            dialect = _dialect(cls)
            points = [point for point in ORDER if point in _points(dialect) and _has(cls, point)]
            uses = [one for base in cls.__mro__ if base in self._files for one in self._uses(base)]
            written = [attribute for attribute, _, kind in uses if kind == "write"]
            used = [attribute for attribute, _, kind in uses if kind != "write"]
            lists = (list(dict.fromkeys(names)) for names in (points, used, written))
            yield HookReport(path, line, name, dialect, *lists)
            for at, what, write, level in self._findings(cls, dialect):
                yield Finding(path, at or line, what, write, level, "hooks", name)

    def _is_hook(self, cls: type) -> bool:
        bases = [base.__name__ for base in cls.__mro__[1:-1]]
        if cls in self._registered or any(name.endswith(("Hook", "HookBase")) for name in bases):
            return True
        points = [method for name, method in vars(cls).items() if name in MMCV]
        return not {*bases} - {"ABC", "Protocol", "Generic"} and any(map(_arguments, points))

    def _brought(self, runner: type) -> set[str]:
        """Return the attributes that a runner of the project has or sets on itself."""
        parts = [one.parts for one in self._names(runner) if one.kind == "write"]
        return {*vars(runner), *(one[1] for one in parts if one[0] == "self" and len(one) == 2)}

    def _names(self, cls: type) -> list[Name]:
        return [one for one in read(self._files[cls]).names if one.owner == cls.__name__]

    def _uses(self, cls: type) -> Iterator[tuple[str, int, str]]:
        """Yield the attributes of the runner that a class uses, with lines and kinds."""
        methods = [_arguments(method) for name, method in vars(cls).items() if name in MMCV]
        runners = RUNNERS | {arguments[0].name for arguments in methods if arguments}
        for name in self._names(cls):
            parts = name.parts[name.parts[:1] == ("self",) and name.parts[1:2] != () :]
            if len(parts) > 1 and parts[0] in (RUNNERS if parts != name.parts else runners):
                yield parts[1], name.line, name.kind if len(parts) == 2 else "read"

    def _inner_uses(self, cls: type) -> Iterator[tuple[str, str, int]]:
        """Yield what a class reads of an attribute of the runner: both names, and the line."""
        for name in self._names(cls):
            parts = name.parts[name.parts[:1] == ("self",) :]
            if len(parts) > 2 and parts[0] in RUNNERS and name.kind not in ("write", "ask"):
                yield parts[1], parts[2], name.line

    def _findings(self, cls: type, dialect: str) -> Iterator[tuple[int, str, str, str]]:
        name, bases = cls.__name__, {base.__name__ for base in cls.__mro__}
        if dialect == TORCH:
            function = "hook_func()" if hasattr(cls, "hook_func") else "hook"
            write = f"module.register_forward_pre_hook({name}(...).{function})"
            if hasattr(cls, "register"):
                write = f"{name}(...).register(module), where the module is made"
            yield 0, "is a hook of torch's modules, which no runner calls", write, "note"
            return
        if not EVERY_POINT & {*dir(cls)}:
            what = "has neither a hook as its base nor a point, so it is never called"
            yield 0, what, f"class {name}(Hook), with the points that it needs", "part"
        for base, module in SERVICES_GONE.items():
            if base in bases and not is_installed(module):
                what = f"{base} calls {module}, which is not installed"
                yield 0, what, "another logger as its base", "part"
        uses = [*self._uses(cls)]
        known = (
            attributes(dialect) | self._written | {one for one, _, kind in uses if kind == "ask"}
        )
        for attribute, line in {one: line for one, line, _ in reversed(uses)}.items():
            if attribute not in known and attribute[:2] != "__":
                runner = RUNNER_OF.get(dialect, "trainer")
                what = f"reads {runner}.{attribute}, which neither the runner nor a hook here has"
                write = f"HookAdapter([{name}(...)], attributes={{{attribute!r}: ...}})"
                yield line, what, write, "note"
        for owner, attribute, line in self._inner_uses(cls):
            here = inner_attributes(dialect).get(owner)
            if here is not None and attribute not in here and attribute[:2] != "__":
                of = f"{RUNNER_OF.get(dialect, 'trainer')}.{owner}"
                what = f"reads {of}.{attribute}, which {of} does not have here"
                public = [one for one in here if one[:1] != "_"]
                close = suggest(attribute, public, f"dir({of})")
                yield line, what, f"something else; {close}", "note"
        for method in filter(inspect.isfunction, vars(cls).values()):
            found = self._of_method(cls, method, dialect)
            if found is not None:
                yield method.__code__.co_firstlineno, *found
        names = {one.parts[-1]: one for one in reversed(self._names(cls)) if one.parts}
        out_dir = names.get("out_dir")
        if out_dir and re.search("ckpt|checkpoint", ".".join(out_dir.parts)) and dialect == "mmcv":
            what = (
                "looks for a checkpoint's file, which in a Trainer is written after "
                "after_train_epoch and after_train_iter"
            )
            write = "that part in before_train_epoch or before_train_iter, which come next"
            yield out_dir.line, what, f"{write}, and after_run", "note"
        if "backward" in names and not any("OptimizerHook" in base for base in bases):
            write = f"HookAdapter([{name}(...)], owns_backward=True), if it trains the model"
            yield names["backward"].line, "runs backward itself", write, "note"
        if "StopIteration" in names:
            what = "raises StopIteration, which reaches you as a RuntimeError"
            write = "runner.should_stop = True, to end the run"
            yield names["StopIteration"].line, what, write, "note"

    def _of_method(self, cls: type, method: Any, dialect: str) -> tuple[str, str, str] | None:
        """Return why a method is not called, or not as it is written."""
        name, points, arguments = method.__name__, _points(dialect), _arguments(method)
        required = [p.name for p in arguments if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        if name == "__init__" and "runner" in required:
            what = "requires the runner in its constructor, which exists only during a run"
            new = f"{cls.__name__}(runner, ...)"
            return what, f"runner.register_hook({new}) in another hook's before_run", "note"
        if name in points:
            if dialect != "mmcv" or (len(required) < 2 and arguments):
                return None
            what = f"{name} takes no runner"
            if required:
                what = f"{name} requires {', '.join(required[1:])}, but gets only the runner"
            return what, f"def {name}(self, runner)", "part"
        bases = [base for base in cls.__mro__ if base in self._files]
        called = {n.parts[-1] for base in bases for n in self._names(base) if n.kind == "call"}
        takes = len(required) == 1 or (not required and dialect not in RUNNER_OF)
        if not name.startswith(("before_", "after_")) or not takes or name in called:
            return None
        what = f"{name} is called at no point"
        call = f"{RUNNER_OF.get(dialect, 'trainer')}.call_hook({name!r})"
        write = f"{call}, in the point of a hook where it is due"
        if name in self._points:
            return f"{name} is called by {self._points[name]} only", write, "note"
        for close in difflib.get_close_matches(name, points, n=1, cutoff=0.9):
            write = f"def {', '.join([f'{close}(self', *required])})"
        return what, write, "note" if any(_has(cls, point) for point in points) else "part"


def _dialect(cls: type) -> str:
    """Return the dialect in which an adapter would host the class's objects."""
    if not EVERY_POINT & {*dir(cls)} and MODULE_HOOK_METHODS & {*dir(cls)}:
        return TORCH
    try:
        return detect(object.__new__(cls))
    except (TypeError, ValueError):  # abstract, without points, or of several dialects
        points = EVERY_POINT & {*dir(cls)} - MMCV
        return next((name for name, one in DIALECTS.items() if points & one.methods), "mmcv")


def _points(dialect: str) -> frozenset[str]:
    return DIALECTS[dialect].methods if dialect in DIALECTS else MMCV


def _has(cls: type, point: str) -> bool:
    owner = next((base for base in cls.__mro__ if point in vars(base)), None)
    return owner is not None and owner.__name__ not in PLAIN


def _arguments(method: Any) -> list[inspect.Parameter]:
    """Return the parameters of a method without ``self``."""
    function = getattr(method, "__func__", method)
    parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
    return list(parameters.values())[not isinstance(method, staticmethod) :]


@functools.cache
def attributes(dialect: str) -> frozenset[str]:
    """Return the attributes of a dialect's runner, or trainer."""
    owners: list[type] = [
        EpochRunner,
        IterRunner,
        *([DIALECTS[dialect].facade] if dialect in DIALECTS else []),
    ]
    return frozenset().union(*map(_names_of, owners))


def _names_of(owner: type) -> frozenset[str]:
    """Return the attributes of a class's objects."""
    names: set[str] = set()
    for cls in owner.__mro__[:-1]:
        names |= {*vars(cls), *inspect.get_annotations(cls)}
        names |= {*re.findall(r"\bself\.(\w+)(?:: [^=]+)? = ", inspect.getsource(cls))}
    return frozenset(names)


@functools.cache
def inner_attributes(dialect: str) -> dict[str, frozenset[str]]:
    """Return the attributes of the event storage, or of the loops, that a dialect's runner has."""
    facade = DIALECTS[dialect].facade if dialect in DIALECTS else object
    classes = {"storage": getattr(facade, "storage_class", None)}
    for name in ("train_loop", "_train_loop", "val_loop", "_val_loop", "test_loop", "_test_loop"):
        if hasattr(facade, name):
            hint = typing.get_type_hints(getattr(facade, name).fget)["return"]
            classes[name] = next(iter(typing.get_args(hint)), hint)
    names = {name: _names_of(cls) for name, cls in classes.items() if cls is not None}
    return {name: frozenset(one for one in own if one[:2] != "__") for name, own in names.items()}
