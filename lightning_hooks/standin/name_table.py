"""The name table: the names of mmcv 1.7.2, and the source of each name.

A module has the names of mmcv's module, imported names included: old code writes
``from mmcv.runner.hooks.ema import HOOKS``. A name comes from this package, from torch or from a
file of OpenMMLab's wheels; a name without a source is a placeholder.
"""

from __future__ import annotations

import functools
import importlib
import importlib.resources
import re
from collections import ChainMap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

__all__ = [
    "FILE",
    "LITE",
    "LITE_PACKAGES",
    "MMENGINE_FILES",
    "MODULES",
    "OFFERED",
    "OFFERED_AT",
    "PACKAGES",
    "UNRECORDED",
    "Kind",
    "Source",
    "kind_of",
    "mmcv_modules",
    "names_of",
    "source_of",
]

# -- the names of mmcv ---------------------------------------------------------------------------

FILE = importlib.resources.files("lightning_hooks.standin") / "mmcv_names.txt"
"""All modules of mmcv 1.7.2 with their public names.

The file has a line for each module, with the names defined there and, after a colon, the imported
names: ``mmcv.utils.path Path fopen() LIMIT= : is_str()`` has a class, a function, a value and an
imported function. ``tests/support/mmcv_names.py`` records the file with real mmcv.
"""

Kind = Literal["class", "function", "value"]


class MmcvModule(NamedTuple):
    """The names of a module, with their kinds."""

    own: Mapping[str, Kind] = MappingProxyType({})
    imported: Mapping[str, Kind] = MappingProxyType({})


@functools.cache
def mmcv_modules() -> Mapping[str, MmcvModule]:
    """Return all modules.

    >>> mmcv_modules()["mmcv.utils.timer"].own
    {'Timer': 'class', 'TimerError': 'class', 'check_time': 'function'}
    """
    modules = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        own, _, imported = line.partition(":")
        module, *names = own.split()
        modules[module] = MmcvModule(_kinds(names), _kinds(imported.split()))
    return modules


def kind_of(module: str, name: str) -> Kind:
    """Return the kind of a name; ``"function"`` for a name missing in mmcv 1.7.2."""
    own, imported = mmcv_modules().get(module, MmcvModule())
    return own.get(name) or imported.get(name, "function")


def _kinds(names: list[str]) -> dict[str, Kind]:
    endings: dict[str, Kind] = {")": "function", "=": "value"}
    return {name.rstrip("()="): endings.get(name[-1], "class") for name in names}


# -- names from the files of OpenMMLab's wheels --------------------------------------------------

_OF_MMENGINE = (
    "fileio.io fileio.parse fileio.handlers.base fileio.handlers.json_handler "
    "fileio.handlers.pickle_handler fileio.handlers.registry_utils fileio.handlers.yaml_handler "
    "utils.misc utils.path utils.progressbar utils.timer utils.version_utils"
)
"""Modules with the same name in mmengine."""

MMENGINE_FILES = {
    **{f"mmcv.{name}": f"{name.replace('.', '/')}.py" for name in _OF_MMENGINE.split()},
    "mmcv.cnn.utils.sync_bn": "model/utils.py",
    "mmcv.cnn.utils.weight_init": "model/weight_init.py",
    "mmcv.utils.config": "config/config.py",
    "mmcv.utils.testing": "testing/compare.py",
}
"""The modules that are files of mmengine; the others are files of mmcv-lite."""

_PACKAGES = ("arraymisc", "cnn", "image", "ops", "video", "visualization")
"""mmcv's packages whose modules are files of mmcv-lite."""

_NEW_FILES = (
    "mmcv.fileio.handlers.registry_utils",
    *(f"mmcv.ops.{name}" for name in ("bezier_align", "bias_act", "conv2d_gradfix")),
    "mmcv.ops.filtered_lrelu",
)
"""Modules missing in mmcv 1.x, imported by the wheels' other files."""

_NOT_READ = {
    "mmcv.cnn.builder": None,
    "mmcv.cnn.bricks.registry": None,
    "mmcv.cnn.bricks.plugin": "infer_abbr",
    "mmcv.cnn.bricks.transformer": "build_attention build_feedforward_network "
    "build_positional_encoding build_transformer_layer build_transformer_layer_sequence",
    "mmcv.cnn.vgg": "conv3x3",
    "mmcv.ops.corner_pool": "BottomPoolFunction LeftPoolFunction RightPoolFunction TopPoolFunction",
    "mmcv.ops.info": "get_onnxruntime_op_path",
    "mmcv.ops.point_sample": "is_in_onnx_export_without_custom_ops",
    "mmcv.ops.upfirdn2d": "UpFirDn2d UpFirDn2dBackward upfirdn2d_native",
    "mmcv.utils.version_utils": "digit_version",
}
"""Names missing in the wheels or given by another module; None for a whole module."""


def _names_by_module() -> dict[str, str]:
    by_module = dict.fromkeys(_NEW_FILES, "")
    for module, (own, _) in mmcv_modules().items():
        but = _NOT_READ.get(module, "")
        package = module.removeprefix("mmcv.").partition(".")[0]
        is_read = module in MMENGINE_FILES or package in _PACKAGES
        if own and is_read and but is not None:
            names = (name for name, kind in own.items() if kind != "value")
            by_module[module] = " ".join(name for name in names if name not in but.split())
    by_module["mmcv.cnn.utils.weight_init"] += " INITIALIZERS"
    by_module["mmcv.fileio.io"] += " file_handlers get get_text put"
    by_module["mmcv.image.io"] += " supported_backends"
    by_module["mmcv.ops"] = "Conv2d ConvTranspose2d Linear MaxPool2d"
    return by_module


LITE = _names_by_module()
"""The names taken from the wheels' files, by module."""

LITE_PACKAGES = frozenset(module.rpartition(".")[0] for module in LITE.keys() - MMENGINE_FILES)
"""The packages of mmcv-lite's modules, whose ``__init__`` files are read as well."""

# -- names from this package and from torch ------------------------------------------------------

_STANDIN = "lightning_hooks.standin"


class Source(NamedTuple):
    """The module of a name of mmcv, and the name in the module."""

    module: str
    name: str
    is_public: bool = True
    missing: Kind | None = None
    """The kind of a name without source; ``module`` is then mmcv's."""

    def load(self) -> Any:
        """Import and return the object."""
        return getattr(importlib.import_module(self.module), self.name)


_FOLDERS = ("_hooks", "cnn", "fileio", "parallel", "runner", "utils")
"""The folders whose modules offer the names in their ``__all__``."""

_OF_US = {
    "lightning_hooks": (
        "Hook ClosureHook LrUpdaterHook ExpLrUpdaterHook FixedLrUpdaterHook InvLrUpdaterHook "
        "PolyLrUpdaterHook EmptyCacheHook OptimizerHook Fp16OptimizerHook ProfilerHook "
        "DistSamplerSeedHook SyncBuffersHook LogBuffer Priority get_priority"
    ),
    "lightning_hooks.schedules.anneal": "annealing_cos annealing_linear",
    f"{_STANDIN}._hooks.adjusted": (
        "CosineAnnealingLrUpdaterHook CosineAnnealingMomentumUpdaterHook "
        "CosineRestartLrUpdaterHook CyclicLrUpdaterHook CyclicMomentumUpdaterHook "
        "FlatCosineAnnealingLrUpdaterHook GradientCumulativeFp16OptimizerHook "
        "GradientCumulativeOptimizerHook LinearAnnealingLrUpdaterHook "
        "LinearAnnealingMomentumUpdaterHook OneCycleLrUpdaterHook OneCycleMomentumUpdaterHook "
        "StepLrUpdaterHook StepMomentumUpdaterHook"
    ),
    f"{_STANDIN}.fileio.file_client": "HTTPBackend=FsspecBackend",
    f"{_STANDIN}.ops.extension": "load_ext get_onnxruntime_op_path",
    f"{_STANDIN}.runner.checkpoint": "_load_checkpoint _load_checkpoint_with_prefix",
    f"{_STANDIN}.utils.version": "__version__=LAST version_info=LAST",
}
"""Further names of this package by module; ``mmcv's=ours`` where the names differ."""

_OF_TORCH = {
    "torch.nn.modules.batchnorm": "_BatchNorm",
    "torch.nn.modules.conv": "_ConvNd _ConvTransposeMixin=_ConvTransposeNd",
    "torch.nn.modules.instancenorm": "_InstanceNorm",
    "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd",
    "torch.utils.cpp_extension": (
        "BuildExtension CppExtension CUDAExtension _get_cuda_home=_find_cuda_home"
    ),
    "torch.utils.data": "DataLoader PoolDataLoader=DataLoader",
    f"{_STANDIN}.utils.env": "_get_dataloader",
}
"""Names of torch in ``mmcv.utils.parrots_wrapper``, in the same form."""

_OF_OTHERS = {
    "math": "inf pi",
    "mmcv.fileio.io": "load_file=load",
    "torch": "TORCH_VERSION=__version__",
    "torch.__config__": "get_build_config=show",
    "torch.backends.mps": "is_mps_available=is_available",
    "torch.cuda": "is_cuda_available=is_available",
    "torch.jit": "is_jit_tracing=is_tracing",
    "torch.hub": "load_url=load_state_dict_from_url",
    "torch.nn": "SyncBatchNorm",
}
"""Names that mmcv takes from other packages, in the same form."""

_PUBLIC = ("_load_checkpoint", "_load_checkpoint_with_prefix", "_BatchNorm", "_InstanceNorm")
"""Names that mmcv lists in an ``__all__`` in spite of their underscore."""


def _sources(table: dict[str, str]) -> dict[str, Source]:
    sources = {}
    for module, names in table.items():
        for entry in names.split():
            theirs, _, ours = entry.partition("=")
            public = theirs in _PUBLIC or not theirs.startswith("_") or theirs.startswith("__")
            sources[theirs] = Source(module, ours or theirs, public)
    return sources


_FROM_TORCH = tuple(_sources(_OF_TORCH))
UNRECORDED = {
    **dict.fromkeys(["mmcv", "mmcv.utils.parrots_wrapper"], _FROM_TORCH),
    "mmcv.utils": (*_FROM_TORCH, "IS_MUSA_AVAILABLE"),  # the files of mmcv 2.x import the latter
    "mmcv.utils.hub": ["load_url"],
    "mmcv.runner.hooks.evaluation": ["inf"],
    "mmcv.runner.hooks.lr_updater": ["pi"],
}
"""Names of a module that are missing in ``mmcv_names.txt``, which has mmcv's own objects."""


def _exports() -> dict[str, str]:
    """Return the ``__all__`` of each module in the folders, read without an import."""
    by_module = {}
    for folder in _FOLDERS:
        for file in (importlib.resources.files(_STANDIN) / folder).iterdir():
            if file.name.endswith(".py"):
                module = f"{_STANDIN}.{folder}.{file.name.removesuffix('.py')}"
                names = re.findall(r"^__all__ = \[(.*?)\]", file.read_text("utf-8"), re.M | re.S)
                by_module[module] = " ".join(re.findall(r'"(\w+)"', "".join(names)))
    return by_module


OFFERED = {**_sources(_exports()), **_sources({**_OF_US, **_OF_TORCH, **_OF_OTHERS})}
"""The source of each name, whichever module of mmcv has it."""

OFFERED_AT = {
    **{module: _sources({module: names}) for module, names in LITE.items()},
    "mmcv.parallel._functions": _sources({f"{_STANDIN}.parallel.data_container": "scatter=move"}),
    "mmcv.ops": _sources({"mmcv.ops": LITE["mmcv.ops"], "mmcv.ops.sync_bn": "SyncBatchNorm"}),
    "mmcv.ops.upfirdn2d": _sources({f"{_STANDIN}.ops.extension": "upfirdn2d"}),
}
"""The names that come from elsewhere in one module of mmcv: from the wheels' files, mostly."""

_MODULES = [*OFFERED_AT, *mmcv_modules()]
PACKAGES = {name.rpartition(".")[0] for name in _MODULES} - {""}
"""The packages of mmcv."""

MODULES = {*_MODULES, *PACKAGES}
"""All modules of mmcv, packages included."""


# -- lookups -------------------------------------------------------------------------------------


@functools.cache
def names_of(module: str) -> dict[str, Source]:
    """Return the names of a module with their sources."""
    here = OFFERED_AT.get(module, {})
    # other modules of mmcv.device define names like ``scatter`` for another device
    is_other = module.startswith("mmcv.device.") and module != "mmcv.device.utils"
    offered = {} if is_other else {**OFFERED, **here}
    sources = {**here, **{name: OFFERED[name] for name in UNRECORDED.get(module, ())}}
    own, imported = mmcv_modules().get(module, MmcvModule())
    for name, kind in own.items():
        source = offered.get(name)
        if source is None and kind == "value":
            source = _offered_anywhere().get(name)
        sources[name] = source or Source(module, name, missing=kind)
    for name, kind in imported.items():
        missing = Source(_defining_modules().get(name, module), name, missing=kind)
        source = here.get(name) or _offered_anywhere().get(name) or missing
        sources[name] = Source(source.module, source.name, module in PACKAGES, source.missing)
    return sources


def source_of(name: str) -> Source | None:
    """Return the source of a name offered in any module of mmcv."""
    return _offered_anywhere().get(name)


@functools.cache
def _defining_modules() -> dict[str, str]:
    """Return the first defining module of each class and function of mmcv."""
    homes: dict[str, str] = {}
    for module, names in mmcv_modules().items():
        for name, kind in names.own.items():
            if kind != "value":  # values are recorded in each module that has them
                homes.setdefault(name, module)
    return homes


@functools.cache
def _offered_anywhere() -> dict[str, Source]:
    """Return the source of each offered name, by the first module with the name."""
    return dict(ChainMap(OFFERED, *OFFERED_AT.values()))
