"""List the hook classes of imported modules, with dialects, points and misspelt methods."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import re
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

from lightning_hooks.dialects import DIALECTS, detect
from lightning_hooks.dialects.dialect import MMCV
from lightning_hooks.engine.points import POINTS
from lightning_hooks.utils.secrets import masked

__all__ = ["HookReport", "hooks_in"]

EMPTY = {"Hook", "HookBase", *(dialect.base for dialect in DIALECTS.values())}
"""Base classes with points that do nothing."""
EVERY_POINT = MMCV.union(*(dialect.methods for dialect in DIALECTS.values()))
ORDER = [*POINTS, *sorted(EVERY_POINT - MMCV)]


@dataclasses.dataclass(frozen=True)
class HookReport:
    """A hook class of the project."""

    path: str
    line: int
    name: str
    dialect: str
    """The dialect of the hook for an adapter; empty if no adapter takes the hook."""
    points: list[str]
    """The points of the class and of base classes, without empty methods."""
    attention: list[str]
    """Methods without a point, or the reason why no adapter takes the hook."""


def hooks_in(modules: Mapping[Path, types.ModuleType]) -> Iterator[HookReport]:
    """Yield a report for each hook class in some modules.

    Args:
        modules: The imported modules by file.
    """
    texts = {path: path.read_text("utf-8", "replace") for path in modules}
    for path, module in modules.items():
        for cls in vars(module).copy().values():
            if isinstance(cls, type) and cls.__module__ == module.__name__ and _is_hook(cls):
                yield _report(cls, path, texts)


def _is_hook(cls: type) -> bool:
    bases = [base.__name__ for base in cls.__mro__[1:-1]]
    if any(name.endswith(("Hook", "HookBase")) for name in bases):
        return True
    return not bases and any(point in vars(cls) for point in EVERY_POINT)


def _report(cls: type, path: Path, texts: Mapping[Path, str]) -> HookReport:
    found = re.search(rf"^class {cls.__name__}\b", texts[path], re.MULTILINE)
    line = texts[path].count("\n", 0, found.start()) + 1 if found else 0
    attention = []
    try:
        dialect = detect(object.__new__(cls))
    except (TypeError, ValueError) as error:  # abstract, without points, or of several dialects
        dialect = ""
        if not inspect.isabstract(cls):
            attention.append(masked(str(error)))
    known = DIALECTS[dialect].methods if dialect in DIALECTS else MMCV
    points = [point for point in ORDER if point in known and _implements(cls, point)]
    uncalled = {name for name in vars(cls) if name.startswith(("before_", "after_"))} - known
    for name in sorted(uncalled) if dialect else ():
        call = re.compile(rf"\.{name}\(|['\"]{name}['\"]")
        if inspect.isfunction(vars(cls)[name]) and not any(map(call.search, texts.values())):
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            hint = f"; did you mean {close[0]}?" if close else ""
            attention.append(f"{name} is called at no point{hint}")
    return HookReport(str(path), line, cls.__name__, dialect, points, attention)


def _implements(cls: type, point: str) -> bool:
    owner = next((base for base in cls.__mro__ if point in vars(base)), None)
    return owner is not None and owner.__name__ not in EMPTY
