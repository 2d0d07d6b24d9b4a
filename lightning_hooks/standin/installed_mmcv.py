"""Find an installed mmcv or mmengine without importing the package."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Installed", "find_installed", "is_mmcv_2"]

_VERSION = re.compile(r"""^__version__\s*=\s*(version\()?['"](.+?)['"]""", re.MULTILINE)


def is_mmcv_2(version: str) -> bool:
    """Return whether a version is of mmcv 2.x or newer, without runners."""
    major = version.partition(".")[0]
    return major.isdigit() and int(major) >= 2


class Installed(NamedTuple):
    """A package on the path: mmcv itself, mmcv-full, mmcv-lite, a fork, or mmengine."""

    folder: Path
    version: str

    @property
    def is_2(self) -> bool:
        """Whether an mmcv is 2.x or newer, without runners."""
        return is_mmcv_2(self.version)

    @property
    def has_operators(self) -> bool:
        """Whether the package has compiled operators."""
        return any(self.folder.glob("_ext.*"))


def find_installed(finders: Iterable[Any], package: str = "mmcv") -> Installed | None:
    """Return the installed package, or None.

    Args:
        finders: The entries of ``sys.meta_path`` to ask.
        package: ``"mmcv"`` or ``"mmengine"``.
    """
    for finder in finders:
        spec = finder.find_spec(package, None)
        if spec is None or spec.loader is None:  # None: a folder without __init__.py
            continue
        for location in spec.submodule_search_locations or []:
            return Installed(Path(location), _version(Path(location, "version.py")))
        return Installed(Path(spec.origin or package).parent, "unknown")
    return None


def _version(file: Path) -> str:
    match = _VERSION.search(file.read_text(encoding="utf-8")) if file.is_file() else None
    if match is None:
        return "unknown"
    # onedl-mmcv reads its version from the distribution's metadata
    return metadata.version(match[2]) if match[1] else match[2]
