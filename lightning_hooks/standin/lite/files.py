"""Find the file of an installed mmcv 2.x, or mmcv-lite, for a module of mmcv 1.x."""

from __future__ import annotations

from importlib.machinery import ModuleSpec, PathFinder

from lightning_hooks.standin.installed_mmcv import InstalledMmcv
from lightning_hooks.standin.lite.names import LITE, LITE_PACKAGES, LITE_VERSION, LITE_VERSIONS

__all__ = ["is_of_a_file", "spec_of_file"]


def is_of_a_file(module: str) -> bool:
    """Whether a module is read from a file, if there is one.

    >>> is_of_a_file("mmcv.cnn.vgg"), is_of_a_file("mmcv.ops.nms"), is_of_a_file("mmcv.runner")
    (True, True, False)
    """
    of_operators = module == "mmcv._ext" or module.startswith("mmcv.ops.")
    return module in LITE or module in LITE_PACKAGES or of_operators


def spec_of_file(module: str, installed: InstalledMmcv) -> ModuleSpec | None:
    """Return the spec of a module's file; None if it has none.

    With compiled operators the files of operators may be of any mmcv 2.x.

    Args:
        module: Its name.
        installed: The mmcv 2.x.

    Raises:
        ImportError: if the file is of another release than those whose code is that of mmcv 1.7.2.
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
