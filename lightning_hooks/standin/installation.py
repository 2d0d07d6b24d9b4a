"""Switch the stand-in on and off."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lightning_hooks.standin.finder import Finder, StandinModule, has_lost_names
from lightning_hooks.standin.names import names_of

__all__ = ["install", "installed", "uninstall"]

PATCHED = ("mmcv", "mmcv.utils", "mmcv.cnn")
"""Modules that mmcv 2.x has with fewer names."""


def install() -> None:
    """Make ``mmcv`` 1.x importable; a second call changes nothing.

    A finder is appended to ``sys.meta_path``, so that an installed mmcv is found first. Names that
    mmcv 2.x has lost are added to its modules.
    """
    if _finder() is None:
        sys.meta_path.append(Finder())
        _fill_mmcv_2()


def uninstall() -> None:
    """Remove the stand-in, and its modules from ``sys.modules``.

    Objects imported from it keep working.
    """
    finder = _finder()
    if finder is None:
        return
    sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        if isinstance(module, StandinModule):
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            vars(sys.modules.get(parent, module)).pop(last, None)
    for name in PATCHED:
        found: Any = vars(sys.modules[name]) if name in sys.modules else {}
        if getattr(found.get("__getattr__"), "of_standin", False):
            del found["__getattr__"]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install the stand-in for the block, unless it is installed already."""
    before = _finder()
    install()
    try:
        yield
    finally:
        if before is None:
            uninstall()


def _finder() -> Finder | None:
    return next((one for one in sys.meta_path if isinstance(one, Finder)), None)


def _fill_mmcv_2() -> None:
    """Add lost names to the modules of mmcv 2.x."""
    if not _is_mmcv_2():
        return
    for name in PATCHED:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        if not isinstance(module, StandinModule) and "__getattr__" not in vars(module):
            module.__getattr__ = _lookup_in(name)  # type: ignore[method-assign]


def _is_mmcv_2() -> bool:
    """Return whether the installed mmcv is 2.x, without importing it."""
    if "mmcv" in sys.modules:
        return has_lost_names(sys.modules["mmcv"])
    spec = importlib.machinery.PathFinder.find_spec("mmcv")
    for directory in (spec.submodule_search_locations or []) if spec else []:
        file = Path(directory) / "version.py"
        if file.is_file():
            return re.search(r"__version__\s*=\s*['\"][2-9]", file.read_text()) is not None
    return False


def _lookup_in(name: str) -> Any:
    def lookup(attribute: str) -> Any:
        source = names_of(name).get(attribute)
        if source is None:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return source.load()

    lookup.of_standin = True  # type: ignore[attr-defined]
    return lookup
