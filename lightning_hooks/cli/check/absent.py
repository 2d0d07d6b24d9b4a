"""``Absent``: a finder that lets a project be imported further where an installed package lacks."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks import dialects
from lightning_hooks.cli.check.source import read
from lightning_hooks.dialects.detect import PACKAGES

__all__ = ["AbsentPackages", "correction", "is_installed"]

DISTRIBUTIONS = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "mmaction": "--no-deps mmaction2==0.24.1",
    "mmcls": "--no-deps mmcls==0.25.0",
    "mmdet": "--no-deps mmdet==2.28.2",
    "mmedit": "--no-deps mmedit==0.16.1",
    "mmflow": "--no-deps mmflow==0.5.2",
    "mmgen": "--no-deps mmgen==0.7.3",
    "mmocr": "--no-deps mmocr==0.6.3",
    "mmpose": "--no-deps mmpose==0.29.0",
    "mmrazor": "--no-deps mmrazor==0.3.1",
    "mmrotate": "--no-deps mmrotate==0.3.4",
    "mmseg": "--no-deps mmsegmentation==0.30.0",
    "mmselfsup": "--no-deps mmselfsup==0.10.1",
    "mmtrack": "--no-deps mmtrack==0.14.0",
    "pkg_resources": '"setuptools<81"',
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""pip's names of modules with another name, and the last versions for mmcv 1.x."""


class AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Give the project's own files empty modules for packages that are not installed.

    An import in a ``try`` raises its error, as does one in an installed package.

    Args:
        is_own: Function of a file's path: whether it is the project's own.
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        self._is_own = is_own
        self.found: dict[str, tuple[str, int]] = {}
        """The first import of each module that is missing: file and line."""
        self.files: set[str] = set()
        """The files with such an import."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module that no other finder has found."""
        root = fullname.partition(".")[0]
        frame: Any = sys._getframe(1)
        while frame and frame.f_code.co_filename.startswith(("<frozen importlib", _IMPORTLIB)):
            frame = frame.f_back
        file, line = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        parent = sys.modules.get(root)
        if isinstance(parent, _AbsentModule):
            self.files.add(file)
        elif (
            root == "mmcv"
            or not self._is_own(file)
            or self._is_own(_origin(parent))
            or not any(one.line == line and one.is_needed for one in read(Path(file)).imports)
        ):
            return None
        else:
            self.found[fullname] = (file, line)
            self.files.add(file)
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make a module that has every name."""
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


class _AbsentType(type):
    """The type of the names of an absent module: each is a class, a decorator and a value."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or not cls.__dict__.get("is_absent"):
            raise AttributeError(name)
        return _absent(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not cls.__dict__.get("is_absent"):
            return super().__call__(*args, **kwargs)
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls


def _absent(name: str) -> Any:
    return _AbsentType(name, (), {"is_absent": True})


class _AbsentModule(types.ModuleType):
    """A module that is not installed; names of another library's hooks are this package's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        dialect = PACKAGES.get(self.__name__.partition(".")[0])
        return getattr(_dialect(dialect), name, None) or _absent(name)


_IMPORTLIB = str(Path(importlib.__file__).parent)


def _dialect(name: str | None) -> Any:
    return importlib.import_module(f"{dialects.__name__}.{name}") if name else None


def is_installed(root: str) -> bool:
    """Return whether a package, or module, is installed."""
    return not root or root in sys.modules or importlib.util.find_spec(root) is not None


def _origin(module: types.ModuleType | None) -> str:
    return str(getattr(module, "__file__", None) or "")


def correction(module: str, names: Sequence[str]) -> str:
    """Return what to write for a module that is missing, with the names that are imported.

    >>> correction("sklearn.metrics", ["f1_score"])
    'pip install scikit-learn'
    >>> correction("detectron2.engine", ["HookBase"])
    'from lightning_hooks.dialects.detectron2 import HookBase'
    """
    root = module.partition(".")[0]
    dialect = _dialect(PACKAGES.get(root))
    if dialect and {*names} <= {*dialect.__all__}:
        return f"from {dialect.__name__} import {', '.join(names)}"
    return f"pip install {DISTRIBUTIONS.get(root, root)}"
