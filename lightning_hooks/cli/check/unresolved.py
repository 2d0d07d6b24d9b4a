"""What old files import from elsewhere and do not find."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_hooks.cli.check.source import Import
from lightning_hooks.dialects.detect import PACKAGES
from lightning_hooks.standin.names import PACKAGES as MODULES
from lightning_hooks.standin.names import names_of
from lightning_hooks.standin.refused import advice_for
from lightning_hooks.standin.utils.version import MMCV_VERSION, digit_version

__all__ = ["Mmcv", "is_there", "missing", "run_by"]

DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""What to install for a module of another name."""


class Mmcv(NamedTuple):
    """The mmcv that old files find: an installed one, or the stand-in."""

    version: str = MMCV_VERSION
    folder: Path | None = None
    """Where it is installed."""

    @staticmethod
    def found() -> Mmcv:
        """Look for an installed one, without importing it."""
        spec = importlib.machinery.PathFinder.find_spec("mmcv")
        for directory in (spec.submodule_search_locations or []) if spec else []:
            file = Path(directory) / "version.py"
            text = file.read_text(encoding="utf-8") if file.is_file() else ""
            found = re.search(r"__version__\s*=\s*['\"]([^'\"]+)", text)
            if found:
                return Mmcv(found[1], Path(directory).parent)
        return Mmcv()

    def has(self, dotted: Sequence[str]) -> bool:
        """Whether an installed one has a dotted name; of mmcv 2.x only the module is looked up."""
        if self.folder is None:
            return False
        is_module = len(list(run_by(self.folder, dotted))) > 1
        return self.version.startswith("1.") or is_module

    def missing(self, dotted: Sequence[str]) -> tuple[str, str] | None:
        """Say what neither an installed mmcv nor the stand-in has, and what to write."""
        if dotted[0] != "mmcv" or self.has(dotted):
            return None
        return _missing_of_standin(dotted)

    def is_excluded(self, name: str, bound: str) -> bool:
        """Whether a bound like ``mmcv_maximum_version`` excludes it."""
        try:
            limit, ours = digit_version(bound), digit_version(self.version)
        except ValueError:
            return False
        return ours < limit if "min" in name.lower() else ours > limit


def missing(imported: Import, mmcv: Mmcv) -> tuple[str, str] | None:
    """Say what is not there of an import from elsewhere, and what to write."""
    root = imported.module.partition(".")[0]
    if root == "mmcv":
        name = (imported.name,) if imported.name not in ("", "*") else ()
        return mmcv.missing((*imported.module.split("."), *name))
    if is_there(imported.module):
        return None
    what = f"{imported.module} is not installed"
    if root in PACKAGES:
        ours = importlib.import_module(f"lightning_hooks.dialects.{PACKAGES[root]}")
        if imported.name in ours.__all__:
            return what, f"from {ours.__name__} import {imported.name}"
    return what, f"install {DISTRIBUTIONS.get(root, root)}, or copy what is used"


def run_by(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """Yield the files below a folder that importing a dotted name runs."""
    folder = root
    for part in parts:
        folder = folder / part
        module = folder.parent / f"{part}.py"
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
        elif module.is_file():
            yield module
            return
        elif not folder.is_dir():
            return


def _missing_of_standin(dotted: Sequence[str]) -> tuple[str, str] | None:
    """Say what the stand-in has not of a dotted name of mmcv's, and what to write instead."""
    module = "mmcv"
    for part in dotted[1:]:
        if f"{module}.{part}" in MODULES:
            module = f"{module}.{part}"
        elif part in names_of(module) or part.startswith("__"):
            return None
        else:
            what = f"the stand-in has no {module}.{part}"
            advice = advice_for(f"{module}.{part}")
            if advice is not None:
                return what, advice
            close = difflib.get_close_matches(part, names_of(module), n=1)
            meant = f"{close[0]}, if that was meant; else " if close else ""
            return what, f"{meant}a copy of it in your project, or install mmcv itself"
    return None


@functools.cache
def is_there(module: str) -> bool:
    """Whether a module can be imported; of packages that are not loaded only the first part."""
    root = module.partition(".")[0]
    if root in sys.stdlib_module_names or root in sys.builtin_module_names:
        return True
    try:
        return importlib.util.find_spec(module if root in sys.modules else root) is not None
    except (ImportError, ValueError, AttributeError):
        return False
