"""Names that old files import and that are missing here, with replacements."""

from __future__ import annotations

import difflib
import importlib
import importlib.machinery
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_hooks import dialects
from lightning_hooks.cli.check.project import is_importable
from lightning_hooks.cli.check.source import Import
from lightning_hooks.dialects.detect import PACKAGES
from lightning_hooks.standin.installed_mmcv import find_installed
from lightning_hooks.standin.names import PACKAGES as MODULES
from lightning_hooks.standin.names import names_of
from lightning_hooks.standin.refused import advice_for
from lightning_hooks.standin.utils.version import MMCV_VERSION, digit_version

__all__ = ["Mmcv", "missing"]

DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Distributions of modules with another name."""


class Mmcv(NamedTuple):
    """The mmcv that old files import: an installed one, or the stand-in."""

    version: str = MMCV_VERSION
    folder: Path | None = None
    """The folder that it is installed in; None for the stand-in."""

    @staticmethod
    def found() -> Mmcv:
        """Look for an installed one, without importing it; the stand-in takes the place of 2.x."""
        installed = find_installed([importlib.machinery.PathFinder])
        if installed is None or installed.is_2:
            return Mmcv()
        return Mmcv(installed.version, installed.folder.parent)

    def missing(self, dotted: Sequence[str]) -> tuple[str, str] | None:
        """Return the problem of an mmcv import and its fix; None if the name exists.

        An installed mmcv 1.x is taken to have it.
        """
        if dotted[0] != "mmcv" or self.folder is not None:
            return None
        return _missing_of_standin(dotted)

    def is_excluded(self, name: str, bound: str) -> bool:
        """Whether a bound like ``mmcv_maximum_version`` excludes it."""
        try:
            limit, own = digit_version(bound), digit_version(self.version)
        except ValueError:
            return False
        return own < limit if "min" in name.lower() else own > limit


def missing(imported: Import, mmcv: Mmcv) -> tuple[str, str] | None:
    """Return the problem of an import from outside the project, and its fix; None if it works."""
    if imported.root == "mmcv":
        name = (imported.name,) if imported.name not in ("", "*") else ()
        return mmcv.missing((*imported.module.split("."), *name))
    if is_importable(imported.module):
        return None
    what = f"{imported.module} is not installed"
    if imported.root in PACKAGES:
        dialect = importlib.import_module(f"{dialects.__name__}.{PACKAGES[imported.root]}")
        if imported.name in dialect.__all__:
            return what, f"from {dialect.__name__} import {imported.name}"
    distribution = DISTRIBUTIONS.get(imported.root, imported.root)
    return what, f"install {distribution}, or copy what is used"


def _missing_of_standin(dotted: Sequence[str]) -> tuple[str, str] | None:
    """Return the problem of a dotted name that the stand-in lacks, and its fix."""
    module = "mmcv"
    for part in dotted[1:]:
        name = f"{module}.{part}"
        if name in MODULES:
            module = name
            continue
        known = names_of(module)
        if part in known or part.startswith("__"):
            return None
        advice = advice_for(name)
        if advice is None:
            close = difflib.get_close_matches(part, known, n=1)
            meant = f"{close[0]}, if that was meant; else " if close else ""
            advice = f"{meant}a copy of it in your project, or install mmcv itself"
        return f"the stand-in has no {name}", advice
    return None
