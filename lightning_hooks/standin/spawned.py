"""Install the stand-in in a script's worker processes, before the workers import the script.

Workers of a DataLoader or of a pool started by "spawn" or "forkserver", the only start method on
Windows and the default on macOS, begin with an empty interpreter and import the script. Under the
stand-in the workers import ``standin.spawned``, to install the stand-in and run the script.
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
"""The environment variable with the path of the script."""


def prepare() -> None:
    """Install the stand-in and the habits, in the current process and in spawned processes."""
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
            # pickled results name the script's classes by multiprocessing's alias of the script
            sys.modules["__mp_main__"] = sys.modules["__main__"]
        return data

    preparation.brings_the_standin = True  # type: ignore[attr-defined]
    spawn.get_preparation_data = preparation


def run_again(name: str) -> dict[str, Any]:
    """Prepare the worker process, run the script, and return the script's names.

    Args:
        name: The script's ``__name__`` in the worker.
    """
    prepare()
    with quiet():
        return runpy.run_path(os.environ[_SCRIPT], run_name=name)


if __name__ == "__mp_main__":
    # imported again, since this copy of the module takes the script's names
    from lightning_hooks.standin import spawned

    globals().update(spawned.run_again(__name__))
