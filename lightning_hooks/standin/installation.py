"""Switch the stand-in on and off."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from typing import Any

from lightning_hooks.standin.finder import Finder, StandinModule, has_lost_names
from lightning_hooks.standin.installed_mmcv import find_installed
from lightning_hooks.standin.name_table import names_of
from lightning_hooks.standin.placeholders import load
from lightning_hooks.standin.version_window import choose

__all__ = ["install", "installed", "uninstall"]

PATCHED = ("mmcv", "mmcv.utils", "mmcv.cnn")
"""Modules that mmcv 2.x has with fewer names."""


def install(*, version: str | None = None, beside_mmcv_2: bool = False) -> None:
    """Make ``mmcv`` 1.x importable; a second call changes nothing.

    An installed mmcv 1.x takes precedence. With mmcv-lite or mmcv 2.x installed, ``mmcv`` is still
    1.x: layers, images and videos come from the files of mmcv-lite 2.2.0, compiled operators from
    an mmcv 2.x with operators.

    Args:
        version: The ``mmcv.__version__`` to report, such as ``"1.4.0"``. By default the value of
            the environment variable ``LIGHTNING_HOOKS_MMCV_VERSION``, or 1.7.2; a package whose
            ``__init__`` excludes 1.7.2 (``mmcv_maximum_version = "1.4.0"``) then reads a version
            within its window, and a log line reports the version.
        beside_mmcv_2: Leave ``mmcv`` to an installed mmcv 2.x, and add the names missing in 2.x.

    Raises:
        ValueError: unless the version is 0.x or 1.x.
        ImportError: if mmcv 2.x has been imported before, without ``beside_mmcv_2``.
    """
    if _finder() is not None:
        if version:
            choose(version)
        return
    choose(version)
    imported: Any = sys.modules.get("mmcv")
    if beside_mmcv_2:
        sys.meta_path.append(Finder(beside_mmcv_2=True))
        _fill_mmcv_2()
    elif has_lost_names(imported):
        raise ImportError(
            f"mmcv {imported.__version__} has been imported already: call standin.install() "
            "before, or standin.install(beside_mmcv_2=True) to add the names of 1.x to it"
        )
    else:
        sys.meta_path.insert(0, Finder())


def uninstall() -> None:
    """Remove the stand-in, and its modules from ``sys.modules``.

    Objects imported from the stand-in keep working.
    """
    finder = _finder()
    if finder is None:
        return
    sys.meta_path.remove(finder)
    for name, module in sys.modules.copy().items():
        if isinstance(module, StandinModule):
            del sys.modules[name]
            parent, _, last = name.rpartition(".")
            if not isinstance(sys.modules.get(parent, module), StandinModule):  # of mmcv 2.x
                vars(sys.modules[parent]).pop(last, None)
    for name in PATCHED:
        contents: Any = vars(sys.modules[name]) if name in sys.modules else {}
        if getattr(contents.get("__getattr__"), "of_standin", False):
            del contents["__getattr__"]


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Install the stand-in for a block; leave an installed stand-in as is."""
    before = _finder()
    install()
    try:
        yield
    finally:
        if before is None:
            uninstall()


def _finder() -> Finder | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, Finder)), None)


def _fill_mmcv_2() -> None:
    """Add names of mmcv 1.x to the modules of mmcv 2.x."""
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
    installed = find_installed(sys.meta_path[:-1])
    return installed is not None and installed.is_2


def _lookup_in(name: str) -> Any:
    def lookup(attribute: str) -> Any:
        source = names_of(name).get(attribute)
        if source is None:
            raise AttributeError(f"module {name!r} has no attribute {attribute!r}")
        return load(source)

    lookup.of_standin = True  # type: ignore[attr-defined]
    return lookup
