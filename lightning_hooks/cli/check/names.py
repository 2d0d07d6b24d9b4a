"""Resolve the names that a project's code uses, in its modules as they were imported."""

from __future__ import annotations

import importlib
import sys
import types
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.source import read
from lightning_hooks.standin.ops.extension import refuse
from lightning_hooks.standin.placeholders import placeholder_name

__all__ = ["Names", "resolve"]

WATCHED = ("numpy", "collections", "inspect")
"""Modules that have lost names which old code uses."""


class Names:
    """The names that a project's classes and functions use.

    Args:
        modules: The imported files.
    """

    def __init__(self, modules: Mapping[Path, Any]) -> None:
        self.lost: dict[str, tuple[Path, int]] = {}
        """Names that numpy and Python have lost, with their first lines."""
        self.placeholders: dict[str, tuple[Path, int]] = {}
        """Placeholders that are used, with the first lines."""
        self._own = {module.__name__ for module in modules.values()}
        self._uses: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
        """The classes, functions and placeholders (of no module) that a class or function uses."""
        for path, module in modules.items():
            for imported in read(path).imports:
                if imported.owner and imported.module.startswith("mmcv"):
                    value = resolve(imported.module, imported.name)
                    self._add((module.__name__, imported.owner), value, (path, imported.line))
                owner = sys.modules.get(imported.module)
                self._watch(owner, imported.name, (path, imported.line))
            for name in read(path).names:
                value = vars(module).get(name.parts[0])
                for part in name.parts[1:]:
                    if not isinstance(value, types.ModuleType) or _placeholder(value):
                        break
                    owner, value = value, resolve(value.__name__, part)
                    self._watch(owner, part, (path, name.line))
                self._add((module.__name__, name.owner), value, (path, name.line))

    def _watch(self, owner: Any, name: str, place: tuple[Path, int]) -> None:
        """Keep a name that a module does not have itself, if it had it in mmcv's time."""
        is_watched = getattr(owner, "__name__", "") in WATCHED and name.isidentifier()
        if is_watched and name not in vars(owner) and name[:2] != "__":
            self.lost.setdefault(f"{owner.__name__}.{name}", place)

    def _add(self, user: tuple[str, str], value: Any, place: tuple[Path, int]) -> None:
        found = _placeholder(value)
        if found:
            self.placeholders.setdefault(found, place)
            self._uses[user].add(("", found))
        elif self.is_own(value):
            self._uses[user].add((value.__module__, getattr(value, "__name__", "")))

    def is_own(self, value: Any) -> bool:
        """Return whether a class or function is the project's."""
        return getattr(value, "__module__", None) in self._own

    @staticmethod
    def is_placeholder(value: Any) -> bool:
        """Return whether a class or function is one itself."""
        return bool(_placeholder(value))

    def reached_by(self, value: Any) -> set[str]:
        """Return the placeholders that a class or function reaches through others."""
        waiting = [("", _placeholder(value))]
        bases = getattr(value, "__mro__", [value] if callable(value) else [])
        waiting += [(one.__module__, getattr(one, "__name__", "")) for one in bases]
        for key in waiting:  # the list grows
            waiting += self._uses.get(key, set()).difference(waiting)
        return {name for module, name in waiting if name and not module}


def resolve(module: str, name: str) -> Any:
    """Return an imported name, or module if the name is empty; the error if there is none."""
    try:
        owner = importlib.import_module(module)
        return getattr(owner, name) if name not in ("", "*") else owner
    except (ImportError, AttributeError) as error:
        return error


def _placeholder(value: Any) -> str:
    """Return the name of what raises an error when it is used; empty for anything else."""
    module = sys.modules.get(str(getattr(value, "__module__", None)))
    is_of_mmcv = getattr(module, "__name__", "").startswith("mmcv.ops.")
    extension = vars(module).get("ext_module") if is_of_mmcv else None
    if any(getattr(one, "func", None) is refuse for one in vars(extension or types).values()):
        return f"{value.__module__}.{getattr(value, '__name__', '')}"
    return placeholder_name(value)
