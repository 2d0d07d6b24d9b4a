"""``lightning-hooks``: the command, whose first argument says what it is to do."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from lightning_hooks.writers.replay import main as replay

__all__ = ["main"]

COMMANDS = {"replay": (replay, "send what was logged and not delivered")}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command: ``lightning-hooks replay FILE --to mlflow``.

    Args:
        arguments: The command and its arguments; those of the process by default.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        "lightning-hooks",
        description="; ".join(f"{name}: {told}" for name, (_, told) in COMMANDS.items()),
        epilog="Each command has its own --help.",
    )
    parser.add_argument("command", choices=list(COMMANDS))
    options = parser.parse_args(given[:1])
    run, _ = COMMANDS[options.command]
    run(given[1:])
