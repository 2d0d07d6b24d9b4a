"""The commands of ``lightning-hooks`` and their arguments.

Each command imports what it needs: torch is not imported before that.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lightning_hooks.cli.check.check import check
from lightning_hooks.cli.check.report import show

__all__ = ["run"]

WRONG_INPUT = (
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    SyntaxError,
    TypeError,
    ValueError,
)
"""Errors of a config, which is code, and of bad arguments."""

NOT_OF_A_BACKEND = BlockingIOError, FileNotFoundError, ImportError, TypeError, ValueError
"""Errors of ``replay`` that are no failure of the backend."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code; wrong input is reported in one line."""
    parser, commands = _parser()
    given = parser.parse_args(None if arguments is None else list(arguments))
    try:
        return commands[given.command](given[given.command])
    except WRONG_INPUT as error:
        reason = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])]
        line = " ".join(" ".join(reason).split())
        if given[given.command].get("json"):  # for a program that reads the output
            print(json.dumps({"error": line}))
        print(f"lightning-hooks: {line}", file=sys.stderr)
        return 2


def _parser() -> tuple[Any, dict[str, Callable[[Any], int]]]:
    from jsonargparse import ArgumentParser

    parser = ArgumentParser(
        "lightning-hooks", description="Read old hooks and configs of mmcv, and send logs again."
    )
    below = parser.add_subcommands(dest="command")
    commands: dict[str, Callable[[Any], int]] = {}

    def command(run: Callable[[Any], int]) -> Any:
        name, doc = run.__name__.removeprefix("_"), str(run.__doc__)
        commands[name] = run
        one = ArgumentParser(description=doc)
        below.add_subcommand(name, one, help=doc)
        return one

    one = command(_check)
    one.add_argument("target", help="a file, folder, script or config, or a module by name")
    one.add_argument("--json", action="store_true", help="print JSON")
    one.add_argument("--seconds", type=float, default=120.0, help="time that an import may take")
    one = command(_plot)
    one.add_argument("config", help="a .py, YAML or JSON file")
    one.add_argument("--epochs", type=_length, help="epochs of the run; else the config's")
    one.add_argument("--iters-per-epoch", type=_length, help="iterations of each")
    one.add_argument("--out", default="schedule.png", help="the picture")
    one = command(_convert)
    one.add_argument("config", help="a .py, YAML or JSON file")
    one = command(_hooks)
    one.add_argument("--json", action="store_true", help="print JSON")
    one = command(_replay)
    one.add_argument("paths", nargs="+", help="spools, or offline runs of Neptune's")
    one.add_argument("--to", help="another backend than the spool's own")
    one.add_argument("--uri", help="MLflow's tracking URI")
    one.add_argument("--experiment", help="MLflow's experiment")
    one.add_argument("--log-dir", help="TensorBoard's folder")
    one.add_argument("--project", help="W&B's project")
    one.add_argument("--within", help="a folder, outside of which a spool may write no file")
    return parser, commands


def _length(text: str) -> int:
    if int(text) < 1:
        raise ValueError(f"must be at least 1, got {text}")
    return int(text)


def _check(given: Any) -> int:
    """Check whether an old project trains here, and show what to write where it does not."""
    report = check(given.target, given.seconds)
    if given.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, _console())
    return int(report.cannot_run)


def _plot(given: Any) -> int:
    """Draw the learning rate and the momentum over the run of a config."""
    from lightning_hooks.cli.plot import curves_of, in_terminal
    from lightning_hooks.schedules import plot

    with _project():
        curves = curves_of(given.config, given.epochs, given.iters_per_epoch)
    drawn = plot(curves.hooks, given.out, **curves.run)
    print(in_terminal(curves, min(_console().width, 100)))
    print(f"drawn in {drawn}")
    return 0


def _convert(given: Any) -> int:
    """Print the Python for the hooks of a config."""
    from lightning_hooks.cli.convert import convert
    from lightning_hooks.config.full_config import hooks_from_config

    with _project():
        print(convert(hooks_from_config(given.config)))
    return 0


def _hooks(given: Any) -> int:
    """List all hooks, with a one-line description of each."""
    from lightning_hooks.cli.list_hooks import all_hooks, table_of

    rows = all_hooks()
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        _console().print(table_of(rows))
    return 0


def _replay(given: Any) -> int:
    """Send undelivered records, or all records to another backend."""
    from rich.console import Console
    from rich.progress import Progress

    from lightning_hooks.loggers.replay import WRITERS

    backends = [name for name in WRITERS if name != "lightning"]  # which needs a logger
    if given.to not in (None, *backends):
        raise ValueError(f"--to must be one of {', '.join(backends)}, got {given.to!r}")
    names = ("uri", "experiment", "log_dir")
    arguments: dict[str, Any] = {name: given[name] for name in names if given[name] is not None}
    if given.project is not None:
        arguments["init"] = {"project": given.project}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("sending", total=None)

        def on_sent(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        options = {"to": given.to, "on_sent": on_sent, "within": given.within, **arguments}
        counts = [_try_to_replay(path, options) for path in given.paths]
    print(f"{sum(count or 0 for count in counts)} records sent")
    return int(None in counts)


def _try_to_replay(path: str, options: dict[str, Any]) -> int | None:
    """Send the records of a file; return None if the backend failed, most often for being down."""
    from lightning_hooks.loggers.replay import replay

    try:
        return replay(path, **options)
    except NOT_OF_A_BACKEND:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        print(f"lightning-hooks: {path} stays as it is: {reason}", file=sys.stderr)
        return None


def _console() -> Any:
    from rich.console import Console

    return Console()


@contextlib.contextmanager
def _project() -> Iterator[None]:
    """Let a config import the modules of the project in the current directory, and mmcv."""
    from lightning_hooks import standin

    sys.path.insert(0, "")
    try:
        with standin.installed():
            yield
    finally:
        sys.path.remove("")
