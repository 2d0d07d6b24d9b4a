"""The command ``lightning-hooks``: ``check``, ``convert``, ``hooks``, ``plot`` and ``replay``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command: ``lightning-hooks replay FILE --to mlflow``.

    Args:
        arguments: The command and its arguments; those of the process by default.

    Raises:
        SystemExit: always; with 1 if ``check`` finds that a project does not start or ``replay``
            that a backend fails, with 2 and one line for wrong input, else with 0.
    """
    for package in ("rich", "shtab"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f'lightning-hooks needs {package}: pip install "lightning_hooks[cli]"')
    from lightning_hooks.cli.app import run

    sys.exit(run(arguments))
