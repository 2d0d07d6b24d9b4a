"""A script's new processes: Python imports the script there again, and so needs mmcv before it.

Workers of a DataLoader or of a pool that are started by "spawn" or "forkserver", the only way on
Windows and the usual one on macOS, begin with an empty interpreter. This module is what they run in
place of the script: it prepares the process, then runs the script.
"""

from __future__ import annotations

import os
import runpy
import sys
from multiprocessing import spawn
from typing import Any

from lightning_hooks.standin import habits
from lightning_hooks.standin.installation import install
from lightning_hooks.standin.utils.notice import quiet

__all__ = ["prepare", "run_again"]

_SCRIPT = "LIGHTNING_HOOKS_SCRIPT"
"""The environment variable with the script that a new process imports."""


def prepare() -> None:
    """Install the stand-in with the old habits, in this process and those that it spawns."""
    install()
    habits.offer()
    original = spawn.get_preparation_data
    if getattr(original, "brings_the_standin", False):
        return

    def preparation(name: str) -> dict[str, Any]:
        data = original(name)
        script = data.pop("init_main_from_path", None)
        if script is not None:
            os.environ[_SCRIPT] = script
            data["init_main_from_name"] = __spec__.name
            # multiprocessing's alias, by which results name the script's classes, is of its import
            sys.modules["__mp_main__"] = sys.modules["__main__"]
        return data

    preparation.brings_the_standin = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = preparation


def run_again(name: str) -> dict[str, Any]:
    """Prepare this process, run the script in it, and return its names.

    Args:
        name: The script's ``__name__`` in this process.
    """
    prepare()
    with quiet():
        return runpy.run_path(os.environ[_SCRIPT], run_name=name)


if __name__ == "__mp_main__":
    # from the module itself: the names of this copy become those of the script
    from lightning_hooks.standin import spawned

    globals().update(spawned.run_again(__name__))
