"""Missing packages of a project: their names for pip, and empty modules to import instead."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import types
from collections.abc import Sequence
from typing import Any

from lightning_hooks import dialects
from lightning_hooks.cli.check.report import PIP, UNKNOWN
from lightning_hooks.dialects.dialect import PACKAGES
from lightning_hooks.standin.name_table import LITE, Kind
from lightning_hooks.standin.placeholders import placeholder

__all__ = ["AbsentPackages", "provider_of"]

OF_MMCV_1 = (
    "mmcls==0.25.0 mmdet==2.28.2 mmedit==0.16.1 mmflow==0.5.2 mmgen==0.7.3 mmocr==0.6.3 "
    "mmpose==0.29.0 mmrazor==0.3.1 mmrotate==0.3.4 mmselfsup==0.10.1 mmtrack==0.14.0"
)
SAME_NAME = (
    "addict albumentations einops ftfy fvcore h5py imagecorruptions imageio imgaug lmdb lvis "
    "matplotlib mlflow mmengine motmetrics ninja numba onnx open3d pandas plyfile prettytable "
    "psutil pyclipper pycocotools rapidfuzz regex requests scipy seaborn shapely six tabulate "
    "tensorboard tensorboardX terminaltables thop timm tqdm transformers trimesh wandb wget "
    "xtcocotools yapf"
)
DISTRIBUTIONS = {
    **{name: name for name in SAME_NAME.split()},
    **{pin.partition("=")[0]: f"--no-deps {pin}" for pin in OF_MMCV_1.split()},
    "PIL": "pillow",
    "cityscapesscripts": "cityscapesScripts",
    "cv2": "opencv-python-headless",
    "json_tricks": "json-tricks",
    "mmcv-lite": "mmcv-lite==2.2.0 mmengine==0.10.7 torchvision",
    "lyft_dataset_sdk": "lyft-dataset-sdk",
    "mmaction": "--no-deps mmaction2==0.24.1",
    "mmseg": "--no-deps mmsegmentation==0.30.0",
    "nuscenes": "nuscenes-devkit",
    "pkg_resources": '"setuptools<81"',
    "pytorch_metric_learning": "pytorch-metric-learning",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
}
"""Module names and pip's arguments; for OpenMMLab's packages the last version for mmcv 1.x."""


def provider_of(module: str, source: str = "") -> str:
    """Return the advice for a missing module: pip's command, for known names only.

    Args:
        module: The missing module.
        source: The text of the importing file.

    >>> provider_of("sklearn.metrics"), provider_of("mmseg.core")
    ('pip install scikit-learn', 'pip install --no-deps mmsegmentation==0.30.0')
    >>> provider_of("nunmpy")
    'find out what provides nunmpy'
    >>> provider_of("cvpods.engine")
    'import the names of its hooks from lightning_hooks.dialects.cvpods'
    """
    root = module.partition(".")[0]
    if root in PACKAGES and root not in DISTRIBUTIONS:
        name = f"{dialects.__name__}.{PACKAGES[root]}"
        return f"import the names of its hooks from {name}"
    if root == "torchvision":  # of any other version it does not load
        return "install the torchvision that belongs to this torch"
    if root == "pycocotools" and "mmpycocotools" in source:  # the project asserts its version
        return f"{PIP}mmpycocotools"
    known = DISTRIBUTIONS.get(root)
    return f"{PIP}{known}" if known else f"{UNKNOWN}{root}"


class AbsentPackages(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import missing packages as modules with any name, so that the project's imports continue.

    Modules of another hook library have the classes of ``lightning_hooks.dialects``.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        """The missing modules; a package stands for all modules below."""
        self.of_lite: set[str] = set()
        """The imported names of mmcv-lite, if the wheel is missing."""

    def stand_in(self, module: str, name: str, kind: Kind) -> Any:
        """Replace a missing name of mmcv: of mmcv-lite's like any missing package's."""
        if module not in LITE:
            return placeholder(module, name, kind)
        self.of_lite.add(name)
        return _AbsentType(name, (), {"is_absent": True})

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a missing module."""
        if not any(f"{fullname}.".startswith(f"{name}.") for name in self.names):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make a module with every name."""
        return _AbsentModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing."""


class _AbsentModule(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        dialect = PACKAGES.get(self.__name__.partition(".")[0])
        library = getattr(dialects, dialect) if dialect and hasattr(dialects, dialect) else None
        value = library if name == "hooks" else getattr(library, name, None)
        return value or _AbsentType(name, (), {"is_absent": True})


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
