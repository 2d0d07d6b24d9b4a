"""Read the files of the wheel mmcv-lite as modules of mmcv 1.7.2.

The wheel has the files of mmcv 2.2.0. The code equals mmcv 1.7.2 except for a few edits and for
imports of MMEngine. The loader undoes the edits, and gives the stand-in's classes to the imports.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import importlib.machinery
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from lightning_hooks.standin.cnn import registries
from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.standin.installed_mmcv import InstalledMmcv
from lightning_hooks.standin.lite.names import LITE, LITE_PACKAGES, LITE_VERSION, LITE_VERSIONS
from lightning_hooks.standin.name_table import OFFERED
from lightning_hooks.standin.utils import logging
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg

__all__ = ["LiteLoader", "is_in_a_file", "spec_of_file"]

# -- finding a file ------------------------------------------------------------------------------


def is_in_a_file(module: str) -> bool:
    """Whether a module of mmcv is read from a file of the wheel.

    >>> is_in_a_file("mmcv.cnn.vgg"), is_in_a_file("mmcv.ops.nms"), is_in_a_file("mmcv.runner")
    (True, True, False)
    """
    is_operator = module == "mmcv._ext" or module.startswith("mmcv.ops.")
    return module in LITE or module in LITE_PACKAGES or is_operator


def spec_of_file(module: str, installed: InstalledMmcv) -> ModuleSpec | None:
    """Return the spec of a module's file, or None if the wheel lacks the file.

    Files of operators may be of any mmcv 2.x with compiled operators.

    Args:
        module: The module's name.
        installed: The installed mmcv 2.x.

    Raises:
        ImportError: if the code of the installed release differs from mmcv 1.7.2.
    """
    compiled = installed.has_operators and module.startswith(("mmcv._ext", "mmcv.ops"))
    if not compiled and installed.version not in LITE_VERSIONS:
        raise ImportError(
            f"{module}: mmcv {installed.version} is installed in {installed.folder}, and this "
            f"lightning_hooks reads the files of {' and '.join(LITE_VERSIONS)}: "
            f"pip install --no-deps mmcv-lite=={LITE_VERSION}"
        )
    folder = installed.folder.joinpath(*module.split(".")[1:-1])
    return PathFinder.find_spec(module, [str(folder)])


# -- running a file ------------------------------------------------------------------------------

_IMAGE_PACKAGES = ("cv2", "PIL")


class LiteLoader(importlib.machinery.SourceFileLoader):
    """Run a file of mmcv-lite with imports of ``mmengine`` answered by the stand-in.

    MMEngine need not be installed, and ``sys.modules`` gets the module of the file only.
    """

    def get_code(self, fullname: str) -> types.CodeType | None:
        """Return the code; an edited file is compiled anew, without ``__pycache__``."""
        if fullname not in EDITS:
            return super().get_code(fullname)
        source = _edited(fullname, Path(self.path).read_text(encoding="utf-8"))
        return self.source_to_code(source, self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the file."""
        names = types.SimpleNamespace(**_mmengine(), MODELS=_models_of(module.__name__))
        names.fileio = names

        def import_(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> Any:
            if level == 0 and name.partition(".")[0] == "mmengine":
                return names
            try:
                return builtins.__import__(name, globals, locals, fromlist or (), level)
            except ImportError as error:
                if name in _IMAGE_PACKAGES:  # not installed, or without libGL
                    what = f"{error.msg}, which {module.__name__} needs"
                    error.msg = f"{what}: pip install opencv-python-headless pillow"
                raise

        vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_}
        super().exec_module(module)


# -- MMEngine's names ----------------------------------------------------------------------------

_FROM_MMENGINE = (
    "BaseModule ConfigDict FileClient HOOKS Hook ModuleList Sequential SyncBatchNorm TORCH_VERSION "
    "_BatchNorm _InstanceNorm check_file_exist constant_init deprecated_api_warning digit_version "
    "dump is_cuda_available is_filepath is_rocm_pytorch is_str is_tuple_of kaiming_init load "
    "load_checkpoint mkdir_or_exist normal_init requires_executable scandir to_2tuple "
    "track_progress xavier_init"
)
"""The names that the files import from MMEngine's packages and mmcv 1.x has."""


@functools.cache
def _mmengine() -> dict[str, Any]:
    own = {"get": get, "is_musa_available": is_musa_available, "print_log": print_log, "put": put}
    return {**{name: OFFERED[name].load() for name in _FROM_MMENGINE.split()}, **own}


def get(path: str, backend_args: Any = None) -> Any:
    """Read a file's bytes."""
    return FileClient.infer_client(backend_args, path).get(path)


def put(content: bytes, path: str, backend_args: Any = None) -> None:
    """Write a file's bytes."""
    FileClient.infer_client(backend_args, path).put(content, path)


def is_musa_available() -> bool:
    """Return False: Lightning has no accelerator for GPUs of Moore Threads."""
    return False


def print_log(message: str, logger: Any = None) -> None:
    """Log a message; MMEngine's ``current`` logger is mmcv's own."""
    logging.print_log(message, logging.get_logger("mmcv") if logger == "current" else logger)


# -- MMEngine's registry -------------------------------------------------------------------------

_FILES = {
    "ACTIVATION_LAYERS": "activation hsigmoid hswish swish",
    "ATTENTION": "multi_scale_deform_attn",
    "CONV_LAYERS": "conv conv2d_adaptive_padding conv_ws wrappers deform_conv "
    "modulated_deform_conv saconv sparse_conv",
    "DROPOUT_LAYERS": "drop",
    "NORM_LAYERS": "norm sync_bn",
    "PADDING_LAYERS": "padding",
    "PLUGIN_LAYERS": "context_block conv_module generalized_attention non_local plugin "
    "cc_attention",
    "TRANSFORMER_LAYER": "transformer",
    "UPSAMPLE_LAYERS": "upsample carafe",
}
_CLASSES = {
    "FFN": registries.FEEDFORWARD_NETWORK,
    "MultiheadAttention": registries.ATTENTION,
    "TransformerLayerSequence": registries.TRANSFORMER_LAYER_SEQUENCE,
}
"""Classes whose registry is not that of their file."""


class _FileModels:
    """MMEngine's ``MODELS`` in a file: a registry of mmcv 1.x.

    Args:
        registry: The registry.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry

    def register_module(
        self, name: str | None = None, force: bool = False, module: type | None = None
    ) -> Any:
        """Register a class, or return a decorator.

        A registered name is always replaced: a file can be loaded again after a failed import.
        """

        def register(cls: type) -> type:
            home = _CLASSES.get(cls.__name__, self.registry)
            home.register_module(name, force=True, module=cls)
            if name in ("deconv", "deconv3d"):  # mmcv 1.x registers them twice
                registries.UPSAMPLE_LAYERS.register_module(name, force=True, module=cls)
            return cls

        return register if module is None else register(module)

    def build(self, cfg: Any, default_args: Mapping[str, Any] | None = None) -> Any:
        """Build an object from a config."""
        return build_from_cfg(cfg, self.registry, default_args)

    @contextlib.contextmanager
    def switch_scope_and_registry(self, scope: None) -> Iterator[_FileModels]:
        """Keep the registry."""
        yield self

    def get(self, name: str) -> Callable[..., Any]:
        """Return a registered class.

        Raises:
            KeyError: with mmcv 1.x's message, if no class has the name.
        """
        found: Callable[..., Any] | None = self.registry.get(name)
        if found is None:
            kind = self.registry.name.removesuffix(" layer").replace("conv", "layer")
            raise KeyError(f"Unrecognized {kind} type {name}")
        return found


def _models_of(module: str) -> _FileModels | None:
    """Return ``MODELS`` for a module of mmcv, or None for a module without a registry."""
    package, _, file = module.rpartition(".")
    for registry, files in _FILES.items():
        if package in ("mmcv.cnn.bricks", "mmcv.ops") and file in files.split():
            return _FileModels(getattr(registries, registry))
    return None


# -- edits ---------------------------------------------------------------------------------------

EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    "mmcv.cnn.bricks.conv_module": (
        # modules pickled by mmcv 1.x do not have the attribute
        (
            "    _abbr_ = 'conv_block'",
            "    _abbr_, efficient_conv_bn_eval_forward = 'conv_block', None",
        ),
    ),
    "mmcv.cnn.bricks.transformer": (
        ("                 layer_scale_init_value=0.):", "                 **kwargs):"),
        (
            "        self.num_fcs = num_fcs\n\n        layers = []",
            "        self.num_fcs = num_fcs\n        self.act_cfg = act_cfg\n"
            "        layers, self.activate = [], build_activation_layer(act_cfg)",
        ),
        (
            "                    build_activation_layer(act_cfg), nn.Dropout(ffn_drop)",
            "                    self.activate, nn.Dropout(ffn_drop)",
        ),
        (
            "        if layer_scale_init_value > 0:\n"
            "            self.gamma2 = LayerScale(embed_dims, scale=layer_scale_init_value)\n"
            "        else:\n"
            "            self.gamma2 = nn.Identity()\n",
            "\n\n\n\n",
        ),
        ("        out = self.gamma2(out)\n", "\n"),
    ),
    "mmcv.cnn.rfsearch.search": (
        (
            "def after_train_iter(self, runner, batch_idx, data_batch, outputs):",
            "def after_train_iter(self, runner):",
        ),
    ),
    "mmcv.image.io": (
        # file_client_args is what 1.x has, without a warning
        (
            "    if file_client_args is not None:\n        warnings.warn(",
            "    if None not in (file_client_args, backend_args):\n        warnings.warn(",
        ),
    ),
}


def _edited(module: str, source: str) -> str:
    """Return the text of mmcv-lite's file with the edits since mmcv 1.7.2 undone.

    Line numbers stay the same, for tracebacks.

    Raises:
        ImportError: if the file is not of the expected release.
    """
    for old, new in EDITS[module]:
        if old not in source:
            raise ImportError(f"{module}: mmcv-lite's file is not as released: {old!r} is missing")
        source = source.replace(old, new)
    return source
