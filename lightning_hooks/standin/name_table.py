"""The name table: the names of mmcv 1.x in the stand-in, and the source of each name."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

from lightning_hooks.standin.lite.names import LITE
from lightning_hooks.standin.mmcv_names import Kind, mmcv_modules

__all__ = ["MODULES", "OFFERED", "OFFERED_AT", "PACKAGES", "UNRECORDED", "Source"]

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
        "DistSamplerSeedHook SyncBuffersHook LoggerHook LogBuffer Priority get_priority"
    ),
    "lightning_hooks.schedules.anneal": "annealing_cos annealing_linear",
    f"{_STANDIN}.fileio.file_client": "HTTPBackend=FsspecBackend",
    f"{_STANDIN}.ops.extension": "load_ext get_onnxruntime_op_path",
    f"{_STANDIN}.runner.checkpoint": "_load_checkpoint _load_checkpoint_with_prefix",
    f"{_STANDIN}.utils.env": "_get_dataloader",
    f"{_STANDIN}.utils.version": "__version__=LAST version_info=LAST",
}
"""Further names of this package by module; ``mmcv's=ours`` where the names differ."""

_OF_OTHERS = {
    "math": "inf pi",
    "mmcv.fileio.io": "load_file=load",
    "torch.hub": "load_url=load_state_dict_from_url",
    "torch.nn": "SyncBatchNorm",
    "torch.nn.modules.batchnorm": "_BatchNorm",
    "torch.nn.modules.conv": "_ConvNd _ConvTransposeMixin=_ConvTransposeNd",
    "torch.nn.modules.instancenorm": "_InstanceNorm",
    "torch.nn.modules.pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _MaxPoolNd",
    "torch.utils.cpp_extension": (
        "BuildExtension CppExtension CUDAExtension _get_cuda_home=_find_cuda_home"
    ),
    "torch.utils.data": "DataLoader PoolDataLoader=DataLoader",
}
"""Names that mmcv takes from other packages, in the same form."""

_FROM_TORCH = (
    *("_BatchNorm", "_ConvNd", "_ConvTransposeMixin", "_InstanceNorm", "_AdaptiveAvgPoolNd"),
    *("_AdaptiveMaxPoolNd", "_AvgPoolNd", "_MaxPoolNd", "BuildExtension", "CppExtension"),
    *("CUDAExtension", "_get_cuda_home", "DataLoader", "PoolDataLoader", "_get_dataloader"),
)
UNRECORDED = {
    **dict.fromkeys(["mmcv", "mmcv.utils.parrots_wrapper"], _FROM_TORCH),
    "mmcv.utils": (*_FROM_TORCH, "IS_MUSA_AVAILABLE"),  # the files of mmcv 2.x import the latter
    "mmcv.utils.hub": ["load_url"],
    "mmcv.runner.hooks.evaluation": ["inf"],
    "mmcv.runner.hooks.lr_updater": ["pi"],
}
"""Names of a module that are missing in ``mmcv_names.txt``, which has mmcv's own objects."""

_PUBLIC = ("_load_checkpoint", "_load_checkpoint_with_prefix", "_BatchNorm", "_InstanceNorm")
"""Names that mmcv lists in an ``__all__`` in spite of their underscore."""


def _sources(table: dict[str, str]) -> dict[str, Source]:
    found = {}
    for module, names in table.items():
        for entry in names.split():
            theirs, _, ours = entry.partition("=")
            public = theirs in _PUBLIC or not theirs.startswith("_") or theirs.startswith("__")
            found[theirs] = Source(module, ours or theirs, public)
    return found


def _exports() -> dict[str, str]:
    """Return the ``__all__`` of each module in the folders, read without an import.

    A package's own ``__all__`` comes last: ``RUNNERS`` of ``standin.runner`` has all runners.
    """
    found = {}
    for folder in _FOLDERS:
        for file in sorted(Path(__file__).with_name(folder).glob("*.py"), reverse=True):
            module = f"{_STANDIN}.{folder}.{file.stem}".removesuffix(".__init__")
            lists = re.findall(r"^__all__ \+?= \[(.*?)\]", file.read_text("utf-8"), re.M | re.S)
            found[module] = " ".join(re.findall(r'"(\w+)"', "".join(lists)))
    return found


OFFERED = {**_sources(_exports()), **_sources({**_OF_US, **_OF_OTHERS})}
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
