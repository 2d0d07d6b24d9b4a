"""The process that runs a project's training command until the first batch is trained.

The script runs as in ``python -m lightning_hooks.standin script ...``, with the current folder and
the arguments of the command. Whatever the script writes up to there is written.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from lightning_hooks import Hook, callbacks_factory
from lightning_hooks.cli.check.packages import provider_of
from lightning_hooks.cli.check.probe import fault_of_ours, place_of
from lightning_hooks.cli.check.project import find
from lightning_hooks.cli.check.report import Finding
from lightning_hooks.standin.__main__ import main as run_script
from lightning_hooks.utils.secrets import describe

__all__ = ["FirstBatchHook", "main"]


class FirstBatchHook(Hook):
    """Ends the process when the first batch is trained.

    Args:
        tell: Called before.
    """

    priority = "LOWEST"

    def __init__(self, tell: Callable[[], object]) -> None:
        self._tell = tell

    def after_train_iter(self, runner: Any) -> None:
        """End the process at once: no code of the project runs any more."""
        self._tell()
        os._exit(0)


def main(out: str, seconds: str, target: str, *arguments: str) -> None:
    """Run the script of a target; write to a file whether a batch was trained, or what failed.

    A script that ends the process without a batch leaves the file without the line ``done``, as
    does a script that takes more than ``seconds``.
    """
    project = find(target)
    script = project.script
    assert script is not None
    with open(out, "w", encoding="utf-8") as lines:

        def write(**line: Any) -> None:
            print(json.dumps(line, default=vars), file=lines, flush=True)

        def tell() -> None:
            write(trained=True)
            write(done=True)

        write(loading=[str(script), "run"])
        faulthandler.dump_traceback_later(float(seconds), exit=True)
        given = callbacks_factory.callbacks_from_environment
        callbacks_factory.callbacks_from_environment = lambda: [*given(), FirstBatchHook(tell)]
        try:
            run_script([os.path.relpath(script), *arguments])
        except Exception as error:
            needs = "needs a file: " if isinstance(error, FileNotFoundError) else ""
            what, advice = f"{fault_of_ours(error)}{needs}{describe(error)}", ""
            if isinstance(error, ModuleNotFoundError):
                absent = str(error.name).partition(".")[0]
                if project.has_module(absent):
                    write(path=os.path.relpath(project.root))
                else:
                    advice = provider_of(absent)
            file, line = place_of(error, project, script)
            write(finding=Finding(file, line, what, advice, "run"))
            write(done=True)
            os._exit(1)  # a thread of the project may never end


if __name__ == "__main__":
    main(*sys.argv[1:])
