"""``python -m lightning_hooks.standin script.py ...``: run a script that imports mmcv 1.x."""

from __future__ import annotations

import os
import runpy
import sys

from lightning_hooks.standin.installation import install

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run a script like ``python script.py ...``, with the stand-in installed.

    Args:
        arguments: The script's path and arguments, its ``sys.argv``.
    """
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: python -m lightning_hooks.standin script.py [argument ...]")
        sys.exit(0 if arguments else 2)
    script = arguments[0]
    if not os.path.isfile(script):
        sys.exit(f"there is no script {script!r}")
    install()
    sys.argv[:] = arguments
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
