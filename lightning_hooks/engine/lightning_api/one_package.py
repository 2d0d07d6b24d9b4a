"""One set of Lightning's classes under the names of both packages.

``lightning`` and ``pytorch_lightning`` hold the same code twice, with two unrelated classes
``Trainer``.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any

__all__ = ["use_with_pytorch_lightning"]

TWINS = {"pytorch_lightning": "lightning.pytorch", "lightning_fabric": "lightning.fabric"}
"""The repeating package, and the package of ``lightning`` with the same code."""


class _TwinFinder(MetaPathFinder, Loader):
    """Imports each module of a twin, early or late, as the module of ``lightning``."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec for a twin's module; None for a module unknown to ``lightning``."""
        package, dot, module = fullname.partition(".")
        original = TWINS.get(package, "") + dot + module
        if package in TWINS and importlib.util.find_spec(original):
            return ModuleSpec(fullname, self, origin=original)
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        """Put the module of ``lightning`` in the place of the new, empty module."""
        spec = module.__spec__
        assert spec is not None
        sys.modules[spec.name] = importlib.import_module(str(spec.origin))


def use_with_pytorch_lightning() -> None:
    """Let hooks train models of libraries built on ``pytorch_lightning``.

    For the rest of the process ``pytorch_lightning`` is another name of ``lightning.pytorch``, and
    ``lightning_fabric`` of ``lightning.fabric``, so that the library's Trainer is
    ``lightning.Trainer``. Call the function at the top of the script, before importing the
    library; spawned processes need the call, too. A second call does nothing.

    Raises:
        RuntimeError: if a twin is already imported; the message names the importing modules.

    >>> import lightning_hooks
    >>> lightning_hooks.use_with_pytorch_lightning()  # doctest: +SKIP
    >>> from darts.models import NBEATSModel  # doctest: +SKIP
    """
    if any(isinstance(finder, _TwinFinder) for finder in sys.meta_path):
        return
    for package in TWINS:
        if package in sys.modules:
            importers = ", ".join(_importers(package)) or "a function"
            raise RuntimeError(
                f"use_with_pytorch_lightning() comes too late: {package} is already imported, by "
                f"{importers}; call it at the top of the script, above these imports"
            )
    sys.meta_path.insert(0, _TwinFinder())


def _importers(package: str) -> list[str]:
    """Return the importers of a package: for each library the first complete module."""
    first: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        names = getattr(module, "__dict__", {})
        name = names.get("__name__", name)  # __main__ also of __mp_main__, the same module
        library = name.partition(".")[0]
        if library not in TWINS and any(_is_of(package, value) for value in list(names.values())):
            first.setdefault(library, name)
    return list(first.values())


def _is_of(package: str, value: Any) -> bool:
    """Return whether a value is a module or a class of a package."""
    kind = type(value)  # isinstance would wake an object that is loaded on first use
    if not issubclass(kind, (types.ModuleType, type)):
        return False
    home = vars(value).get("__name__" if issubclass(kind, types.ModuleType) else "__module__")
    return str(home).partition(".")[0] == package
