"""The command ``lightning-hooks``: ``check``, ``convert``, ``hooks``, ``plot`` and ``replay``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command: ``lightning-hooks replay FILE --to mlflow``.

    Args:
        arguments: The command with arguments; ``sys.argv[1:]`` by default.

    Raises:
        SystemExit: always. The code is 1 if ``check`` finds a project that does not start or
            ``replay`` a failing backend, 2 for wrong input, which is printed in a line, else 0.
    """
    for package in ("rich", "shtab"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f"lightning-hooks needs {package}: pip install rich shtab 'plotext<6'")
    from lightning_hooks.cli.app import run

    sys.exit(run(arguments))
