"""Let a project be imported further where an installed package is missing."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

from lightning_hooks import dialects
from lightning_hooks.dialects.detect import PACKAGES

__all__ = ["AbsentPackages", "correction", "is_absent", "is_installed"]

OF_MMCV_1 = (
    "mmcls==0.25.0 mmdet==2.28.2 mmedit==0.16.1 mmflow==0.5.2 mmgen==0.7.3 mmocr==0.6.3 "
    "mmpose==0.29.0 mmrazor==0.3.1 mmrotate==0.3.4 mmselfsup==0.10.1 mmtrack==0.14.0"
)
DISTRIBUTIONS = {
    **{one.partition("=")[0]: f"--no-deps {one}" for one in OF_MMCV_1.split()},
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "mmaction": "--no-deps mmaction2==0.24.1",
    "mmseg": "--no-deps mmsegmentation==0.30.0",
    "pkg_resources": '"setuptools<81"',
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""pip's names of modules with another name, and the last versions for mmcv 1.x."""

ON_PYPI = {"mmcv", "mmengine"}
"""The libraries of hooks that pip installs."""


class AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Give empty modules for those that an import has failed for: ``names``."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for one of them, or for a module in one."""
        if not any(f"{fullname}.".startswith(f"{name}.") for name in self.names):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make a module that has every name."""
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


class _AbsentModule(types.ModuleType):
    """A module that is not installed; the names of another library's hooks are this package's."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        dialect = _dialect(self.__name__)
        found = dialect if name == "hooks" else getattr(dialect, name, None)
        return found or _AbsentType(name, (), {"is_absent": True})


class _AbsentType(type):
    """The type of the names of an absent module: each is a class, a decorator and a value."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__") or not cls.__dict__.get("is_absent"):
            raise AttributeError(name)
        return _AbsentType(name, (), {"is_absent": True})

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not cls.__dict__.get("is_absent"):
            return super().__call__(*args, **kwargs)
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls


def _dialect(module: str) -> Any:
    name = PACKAGES.get(module.partition(".")[0])
    return importlib.import_module(f"{dialects.__name__}.{name}") if name else None


def is_installed(root: str) -> bool:
    """Return whether a package, or module, is installed."""
    return not root or root in sys.modules or importlib.util.find_spec(root) is not None


def is_absent(root: str) -> bool:
    """Return whether a library of hooks is missing, and its modules are empty ones."""
    return root in PACKAGES and isinstance(sys.modules.get(root), _AbsentModule)


def correction(module: str, names: Sequence[str] = ()) -> str:
    """Return what to write for a module that is missing, with the names that are imported.

    >>> correction("sklearn.metrics", ["f1_score"])
    'pip install scikit-learn'
    >>> correction("cvpods.engine", ["HookBase"])
    'from lightning_hooks.dialects.cvpods import HookBase'
    >>> correction("cvpods.engine", ["HookBase", "default_setup"])
    'from lightning_hooks.dialects.cvpods import HookBase; default_setup needs cvpods itself'
    >>> correction("cvpods.engine", ["hooks"])
    'from lightning_hooks.dialects import cvpods as hooks'
    """
    root, dialect = module.partition(".")[0], _dialect(module)
    here = [name for name in names if dialect and name in dialect.__all__]
    modules = [name for name in names if dialect and name == "hooks" and name not in here]
    lost = [name for name in names if name and name not in (*here, *modules)]
    if not (here or modules) and (root not in PACKAGES or root in ON_PYPI):
        return f"pip install {DISTRIBUTIONS.get(root, root)}"
    write = [f"from {dialect.__name__} import {', '.join(here)}"] if here else []
    if modules:
        write.append(f"from {dialects.__name__} import {PACKAGES[root]} as hooks")
    if lost:
        write.append(f"{', '.join(lost)} needs {root} itself")
    return "; ".join(write) or f"{root} itself"
