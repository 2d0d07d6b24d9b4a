"""``python -m lightning_hooks.standin script.py ...``: run a script that imports mmcv 1.x.

``--mmcv 1.4.0`` before the script sets the version of mmcv that the script reads. Features of old
Python, numpy and torch that old scripts use are restored (:mod:`lightning_hooks.standin.habits`).
"""

from __future__ import annotations

import os
import runpy
import sys

from lightning_hooks.standin.spawned import prepare
from lightning_hooks.standin.version_window import ENVIRONMENT

__all__ = ["main"]

USAGE = "usage: python -m lightning_hooks.standin [--mmcv VERSION] script.py [argument ...]"


def main(arguments: list[str]) -> None:
    """Run a script like ``python script.py ...``, with the stand-in installed.

    Args:
        arguments: Options, then the script's path and arguments: the script's ``sys.argv``.
    """
    if arguments[:1] == ["--mmcv"] and len(arguments) > 1:
        os.environ[ENVIRONMENT] = arguments[1]  # inherited by the script's processes
        arguments = arguments[2:]
    if not arguments or arguments[0] in ("-h", "--help", "--mmcv"):
        print(USAGE)
        sys.exit(0 if arguments and arguments[0] != "--mmcv" else 2)
    script = arguments[0]
    if not os.path.isfile(script):
        sys.exit(f"there is no script {script!r}")
    try:
        prepare()
    except ValueError as error:
        sys.exit(str(error))
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
