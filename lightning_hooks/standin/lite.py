"""Read files of the wheels mmcv-lite and mmengine as modules of mmcv 1.7.2.

mmcv-lite has the files of mmcv 2.2.0, and MMEngine has the rest of mmcv 1.x. The code equals mmcv
1.7.2 except for a few edits and for imports of MMEngine. The loader undoes the edits, and gives the
stand-in's classes to the imports.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from logging import INFO
from pathlib import Path
from typing import Any

from lightning_hooks.standin.installed_mmcv import Installed, find_installed
from lightning_hooks.standin.name_table import (
    LITE,
    LITE_PACKAGES,
    MMENGINE_FILES,
    OFFERED,
    source_of,
)
from lightning_hooks.standin.utils import logging
from lightning_hooks.standin.utils.registry import Registry, build_from_cfg

__all__ = [
    "LITE_VERSION",
    "LITE_VERSIONS",
    "MMENGINE_VERSION",
    "MMENGINE_VERSIONS",
    "NEEDS_LITE",
    "LiteLoader",
    "is_in_a_file",
    "spec_of_file",
]

LITE_VERSION = "2.2.0"
"""The release, of mmcv-lite or mmcv, whose files have the same code as mmcv 1.7.2."""

LITE_VERSIONS = (LITE_VERSION, "2.3.6")
"""The releases whose files are read; 2.3.6 is of onedl-mmcv, whose code is the same."""

MMENGINE_VERSION = "0.10.7"
"""The release of mmengine whose files have the same code as mmcv 1.7.2."""

MMENGINE_VERSIONS = (MMENGINE_VERSION, "0.10.12")
"""The releases whose files are read; 0.10.12 is of onedl-mmengine, whose code is the same."""

_WHEELS = f"mmcv-lite=={LITE_VERSION} mmengine=={MMENGINE_VERSION}"
NEEDS_LITE = (
    "mmcv's layers, images, videos, configs and helpers are in OpenMMLab's own wheels: "
    f"pip install {_WHEELS} torchvision, or, without libGL, pip install --no-deps {_WHEELS} and "
    "pip install addict opencv-python-headless pillow pyyaml rich termcolor yapf"
)

# -- finding a file ------------------------------------------------------------------------------


def is_in_a_file(module: str) -> bool:
    """Whether a module of mmcv is read from a file of a wheel.

    >>> is_in_a_file("mmcv.cnn.vgg"), is_in_a_file("mmcv.ops.nms"), is_in_a_file("mmcv.runner")
    (True, True, False)
    """
    is_operator = module == "mmcv._ext" or module.startswith("mmcv.ops.")
    return is_operator or module in LITE or module in LITE_PACKAGES


def spec_of_file(module: str, installed: Installed | None) -> ModuleSpec | None:
    """Return the spec of a module's file, or None if a wheel or the file is missing.

    mmcv-lite's files are read beside mmengine only. Files of operators may be of any mmcv 2.x with
    compiled operators.

    Args:
        module: The module's name.
        installed: The installed mmcv.

    Raises:
        ImportError: if the code of the installed release differs from mmcv 1.7.2.
    """
    mmengine = find_installed(sys.meta_path, "mmengine")
    if module in MMENGINE_FILES:
        if mmengine is None:
            return None
        _check_release(module, "mmengine", mmengine, MMENGINE_VERSIONS)
        return spec_from_file_location(module, mmengine.folder / MMENGINE_FILES[module])
    if installed is None or not installed.is_2:
        return None
    if not (installed.has_operators and module.startswith(("mmcv._ext", "mmcv.ops"))):
        _check_release(module, "mmcv-lite", installed, LITE_VERSIONS)
        if mmengine is None:
            return None
    folder = installed.folder.joinpath(*module.split(".")[1:-1])
    return PathFinder.find_spec(module, [str(folder)])


def _check_release(module: str, wheel: str, installed: Installed, readable: Sequence[str]) -> None:
    if installed.version not in readable:
        raise ImportError(
            f"{module}: {installed.folder.name} {installed.version} is installed in "
            f"{installed.folder}, and this lightning_hooks reads the files of "
            f"{' and '.join(readable)}: pip install --no-deps {wheel}=={readable[0]}"
        )


# -- running a file ------------------------------------------------------------------------------

_OF_MMENGINE = "addict rich termcolor pyyaml yapf"
_PROVIDERS = {
    **dict.fromkeys(["cv2", "PIL"], "opencv-python-headless pillow"),
    **dict.fromkeys(["addict", "rich", "termcolor", "yaml", "yapf"], _OF_MMENGINE),
}
"""What to install for the packages that the files import."""


class LiteLoader(importlib.machinery.SourceFileLoader):
    """Run a file of a wheel with imports of ``mmengine`` answered by the stand-in.

    ``sys.modules`` gets the module of the file only.
    """

    def get_code(self, fullname: str) -> types.CodeType | None:
        """Return the code; an edited file is compiled anew, without ``__pycache__``."""
        if fullname not in EDITS:
            return super().get_code(fullname)
        source = _edited(fullname, Path(self.path).read_text(encoding="utf-8"))
        return self.source_to_code(source, self.path)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the file."""
        models = _models_of(module.__name__)

        def import_(
            name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0
        ) -> Any:
            if level == 0 and name.partition(".")[0] == "mmengine":
                return _MMEngine(name, models)
            return builtins.__import__(name, globals, locals, fromlist or (), level)

        vars(module)["__builtins__"] = {**vars(builtins), "__import__": import_}
        try:
            super().exec_module(module)
        except ImportError as error:
            provider = _PROVIDERS.get(str(error.name).partition(".")[0])
            if provider and "pip install" not in error.msg:
                what = f"{error.msg}, which {module.__name__} needs"
                error.msg = f"{what}: pip install {provider}"
            raise


# -- MMEngine's names ----------------------------------------------------------------------------


class _MMEngine:
    """A module of MMEngine, for a file's imports: the stand-in's objects of the same names.

    MMEngine itself is imported for names missing in mmcv 1.x only.

    Args:
        name: The module's name.
        models: The file's ``MODELS``.
    """

    def __init__(self, name: str, models: _FileModels | None) -> None:
        self._name = name
        self.MODELS = models
        self.print_log = print_log

    def __getattr__(self, name: str) -> Any:
        if name == "fileio":
            return self
        source = source_of(name)
        return source.load() if source else getattr(importlib.import_module(self._name), name)


def print_log(message: str, logger: Any = None, level: int = INFO) -> None:
    """Log a message; MMEngine's ``current`` logger is mmcv's own."""
    target = logging.get_logger("mmcv") if logger == "current" else logger
    logging.print_log(message, target, level)


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
    "FFN": "FEEDFORWARD_NETWORK",
    "MultiheadAttention": "ATTENTION",
    "TransformerLayerSequence": "TRANSFORMER_LAYER_SEQUENCE",
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
            other = _CLASSES.get(cls.__name__)
            homes = [_registry(other) if other else self.registry]
            if name in ("deconv", "deconv3d"):  # mmcv 1.x registers them twice
                homes.append(_registry("UPSAMPLE_LAYERS"))
            for home in homes:
                home.register_module(name, force=True, module=cls)
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
        registered: Callable[..., Any] | None = self.registry.get(name)
        if registered is None:
            kind = self.registry.name.removesuffix(" layer").replace("conv", "layer")
            raise KeyError(f"Unrecognized {kind} type {name}")
        return registered


def _models_of(module: str) -> _FileModels | None:
    """Return ``MODELS`` for a module of mmcv, or None for a module without a registry."""
    package, _, file = module.rpartition(".")
    for registry, files in _FILES.items():
        if package in ("mmcv.cnn.bricks", "mmcv.ops") and file in files.split():
            return _FileModels(_registry(registry))
    return None


def _registry(name: str) -> Registry:
    return OFFERED[name].load()  # type: ignore[no-any-return]


# -- edits ---------------------------------------------------------------------------------------

_WITHOUT_WARNING = (
    "    if file_client_args is not None:\n        warnings.warn(",
    "    if None not in (file_client_args, backend_args):\n        warnings.warn(",
)
"""The argument of mmcv 1.x, which later files warn of."""

EDITS: dict[str, tuple[tuple[str, str], ...]] = {
    # loaded on first access: a hook imports Lightning
    "mmcv.cnn": (("from .rfsearch import Conv2dRFSearchOp, RFSearchHook", ""),),
    "mmcv.cnn.utils.weight_init": (
        (
            "from mmengine.registry import WEIGHT_INITIALIZERS, build_from_cfg",
            "from mmengine.registry import Registry, build_from_cfg; "
            "WEIGHT_INITIALIZERS = INITIALIZERS = Registry('initializer')",
        ),
        ("from mmengine.logging import", "from mmengine.logging import get_logger,"),
        ("logger='current'", "logger=get_logger('mmcv')"),
        ("map_location='cpu'", "map_location=None"),
        ("a=0, b=1, **kwargs", "a=0., b=1., **kwargs"),
    ),
    "mmcv.utils.config": (
        (
            "from .lazy import",
            "from lightning_hooks.utils.secrets import masked; from mmengine.config.lazy import",
        ),
        ("from .utils import", "from mmengine.config.utils import"),
        (
            "fileExtname = osp.splitext(filename)[1]",
            "fileExtname = osp.splitext(filename)[1]; "
            "fileExtname != '.py' or Config._validate_py_syntax(filename)",
        ),
        ("lazy_import: Optional[bool] = None", "lazy_import: Optional[bool] = False"),
        ("def pop(self, key, default=None):", "def pop(self, key, *default):"),
        ("super().pop(key, default)", "super().pop(key, *default)"),
        ("super(Config, other).__setattr__('_cfg_dict', self._cfg_dict.copy())", "pass"),
        ("sorted(input_dict.items(), key=lambda x: str(x[0]))", "input_dict.items()"),
        ("{self._cfg_dict.__repr__()}", "{masked(self._cfg_dict)}"),
    ),
    "mmcv.utils.progressbar": (("isinstance(tasks, Sequence)", "isinstance(tasks, Iterable)"),),
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
    "mmcv.cnn.utils.sync_bn": (
        ("from mmengine.utils.dl_utils import mmcv_full_available", "import sys"),
        ("mmcv_full_available()", "'mmcv.ops.sync_bn' in sys.modules"),
    ),
    "mmcv.fileio.handlers.yaml_handler": (
        # mmcv's loader would run code in the file
        ("yaml import CLoader", "yaml import CSafeLoader"),
        ("yaml import Loader,", "yaml import SafeLoader as Loader,"),
    ),
    "mmcv.fileio.io": (
        (
            "from .backends import backends, prefix_to_backends",
            "from lightning_hooks.utils.suggestions import suggest",
        ),
        ("from .handlers import", "from .handlers.registry_utils import"),
        (
            "    if backend_args is None:\n        backend_args = {}\n",
            "    return FileClient.infer_client(backend_args, uri)\n\n",
        ),
        (
            "f'Unsupported format: {file_format}'",
            "f'Unsupported format: {file_format}; {suggest(str(file_format), file_handlers)}'",
        ),
        _WITHOUT_WARNING,
    ),
    "mmcv.fileio.parse": (_WITHOUT_WARNING,),
    "mmcv.image.io": (_WITHOUT_WARNING,),
}


def _edited(module: str, source: str) -> str:
    """Return the text of a wheel's file with the edits since mmcv 1.7.2 undone.

    Line numbers stay the same, for tracebacks.

    Raises:
        ImportError: if the file is not of the expected release.
    """
    for old, new in EDITS[module]:
        if old not in source:
            raise ImportError(f"{module}: the wheel's file is not as released: {old!r} is missing")
        source = source.replace(old, new)
    return source
