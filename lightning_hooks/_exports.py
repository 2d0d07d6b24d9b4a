"""The modules of the public names, imported on first use (PEP 562).

``import lightning_hooks`` imports nothing else. The names are read from the imports of
``__init__.pyi``, the file for type checkers and editors. ``HOOKS`` finds classes by these names.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
from typing import Any

from lightning_hooks.utils.suggestions import suggest

__all__ = ["HOMES", "PUBLIC", "import_name", "list_names", "unknown_name_error"]

PACKAGE = __name__.rpartition(".")[0]

_STUB = ast.parse(pkgutil.get_data(PACKAGE, "__init__.pyi") or b"")
_MODULES = {
    alias.name: str(statement.module)
    for statement in _STUB.body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}

PUBLIC = [*_MODULES]
"""All public names."""

HOMES = {name: module for name, module in _MODULES.items() if module != PACKAGE}
"""The module of each public class and function; the other names are packages themselves."""


def import_name(name: str) -> Any:
    """Return a public name of the package, or a module of the package.

    Raises:
        AttributeError: for an unknown name, with the closest name.
        ImportError: the same, in ``from lightning_hooks import ...``.
    """
    if name in HOMES:
        exported = getattr(importlib.import_module(HOMES[name]), name)
    elif not name.startswith("_") and importlib.util.find_spec(f"{PACKAGE}.{name}"):
        exported = importlib.import_module(f"{PACKAGE}.{name}")
    else:
        is_probe = name.startswith("__")  # as of inspect and doctest, many times a module
        advice = "" if is_probe else suggest(name, PUBLIC, f"dir({PACKAGE})")
        raise unknown_name_error(PACKAGE, name, advice)
    vars(sys.modules[PACKAGE])[name] = exported  # the next access does not call the function
    return exported


def list_names() -> list[str]:
    """Return the names for ``dir(lightning_hooks)``."""
    return sorted({*vars(sys.modules[PACKAGE]), *PUBLIC})


def unknown_name_error(module: str, name: str, advice: str) -> Exception:
    """Return the error for a missing name of a module, to be raised from ``__getattr__``."""
    # in a from-import, importlib calls hasattr first and drops the message of an AttributeError
    by_import = sys._getframe(2).f_globals.get("__name__") == "importlib._bootstrap"
    kind = ImportError if by_import else AttributeError
    return kind("; ".join(filter(None, [f"{module} has no {name!r}", advice])))
