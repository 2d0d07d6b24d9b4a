"""Table of the names taken from the files of OpenMMLab's wheels, by module of mmcv 1.7.2."""

from __future__ import annotations

from lightning_hooks.standin.mmcv_names import mmcv_modules

__all__ = [
    "LITE",
    "LITE_PACKAGES",
    "LITE_VERSION",
    "LITE_VERSIONS",
    "MMENGINE_FILES",
    "MMENGINE_VERSION",
    "MMENGINE_VERSIONS",
    "NEEDS_LITE",
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

MMENGINE_FILES = {
    "mmcv.cnn.utils.sync_bn": "model/utils.py",
    "mmcv.cnn.utils.weight_init": "model/weight_init.py",
    "mmcv.fileio.handlers.base": "fileio/handlers/base.py",
    "mmcv.fileio.handlers.json_handler": "fileio/handlers/json_handler.py",
    "mmcv.fileio.handlers.pickle_handler": "fileio/handlers/pickle_handler.py",
    "mmcv.fileio.handlers.registry_utils": "fileio/handlers/registry_utils.py",
    "mmcv.fileio.handlers.yaml_handler": "fileio/handlers/yaml_handler.py",
    "mmcv.fileio.io": "fileio/io.py",
    "mmcv.fileio.parse": "fileio/parse.py",
    "mmcv.utils.config": "config/config.py",
    "mmcv.utils.misc": "utils/misc.py",
    "mmcv.utils.path": "utils/path.py",
    "mmcv.utils.progressbar": "utils/progressbar.py",
    "mmcv.utils.testing": "testing/compare.py",
    "mmcv.utils.timer": "utils/timer.py",
    "mmcv.utils.version_utils": "utils/version_utils.py",
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
    found = dict.fromkeys(_NEW_FILES, "")
    for module, (own, _) in mmcv_modules().items():
        but = _NOT_READ.get(module, "")
        package = module.removeprefix("mmcv.").partition(".")[0]
        is_read = module in MMENGINE_FILES or package in _PACKAGES
        if own and is_read and but is not None:
            names = (name for name, kind in own.items() if kind != "value")
            found[module] = " ".join(name for name in names if name not in but.split())
    found["mmcv.cnn.utils.weight_init"] += " INITIALIZERS"
    found["mmcv.fileio.io"] += " file_handlers get get_text put"
    found["mmcv.image.io"] += " supported_backends"
    found["mmcv.ops"] = "Conv2d ConvTranspose2d Linear MaxPool2d"
    return found


LITE = _names_by_module()
"""The names taken from the wheels' files, by module."""

LITE_PACKAGES = frozenset(module.rpartition(".")[0] for module in LITE.keys() - MMENGINE_FILES)
"""The packages of mmcv-lite's modules, whose ``__init__`` files are read as well."""
