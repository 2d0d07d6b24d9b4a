"""``lightning-hooks``: the command, whose first argument says what it is to do."""

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
        SystemExit: always; with 0, with 1 where ``check`` finds what cannot run, and with 2 and
            one line for what cannot be done.
    """
    for package in ("jsonargparse", "rich"):
        if importlib.util.find_spec(package) is None:
            sys.exit(f'lightning-hooks needs {package}: pip install "lightning_hooks[cli]"')
    from lightning_hooks.cli.app import run

    sys.exit(run(arguments))
