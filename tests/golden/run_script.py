"""Run an old script: `run_script.py mmcv|standin script.py ...`, in an environment with mmcv.

Real mmcv is patched to import with current torch and to skip sleeps; the stand-in takes precedence
over the installed mmcv.
"""

import os
import runpy
import sys
from pathlib import Path
from unittest import mock


def main(which: str, arguments: list[str]) -> None:
    """Run the script."""
    sys.argv[:] = arguments
    sys.path.insert(0, os.path.dirname(os.path.abspath(arguments[0])))
    if which == "mmcv":
        import oracle  # noqa: F401
        from mmcv.parallel import MMDistributedDataParallel

        MMDistributedDataParallel._use_replicated_tensor_module = False  # removed from torch
        with mock.patch("time.sleep"):
            runpy.run_path(arguments[0], run_name="__main__")
        return
    from lightning_hooks.standin.finder import Finder
    from lightning_hooks.standin.installed_mmcv import Installed
    from lightning_hooks.standin.lite import LITE_VERSION

    class First(Finder):
        """Finds the files of mmcv-lite even if real mmcv is installed."""

        def installed(self) -> Installed:
            """Return mmcv-lite, which ``make golden-check`` installs in a separate folder."""
            return Installed(Path(lite, "mmcv"), LITE_VERSION)

    lite = os.environ.get("MMCV_LITE", Path(__file__).parents[2] / ".oracle" / "lite")
    sys.path.append(str(lite))  # with mmengine
    sys.meta_path.insert(0, First())
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
