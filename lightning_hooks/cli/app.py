"""The arguments of ``lightning-hooks``, and how a command's failure is reported."""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from lightning_hooks import __version__
from lightning_hooks.cli import commands
from lightning_hooks.loggers.trackers.table import OPTIONS, TRACKERS
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import masked

__all__ = ["parser", "run"]


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit code; report wrong input in a single line."""
    given = parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warn_once = functools.cache(_warn)
            warnings.showwarning = lambda message, *_: warn_once(str(message))
            code: int = given.run(given)
            sys.stdout.flush()
            return code
    except BrokenPipeError:  # the reader has enough, as in ``lightning-hooks hooks | head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes once more
        return 1
    except Exception as error:  # configs are Python code, and may raise any
        notes = [f" ({note})" for note in getattr(error, "__notes__", [])]
        reason = "".join([f"{type(error).__name__}: {error}", *notes])
        line = printable(masked(" ".join(reason.split())))
        if getattr(given, "json", False):  # for a program that reads the output
            print(json.dumps({"error": line}))
        print(f"lightning-hooks: {line}", file=sys.stderr)
        return 2


def _warn(message: str) -> None:
    """Print a warning without the line of the code."""
    print(f"lightning-hooks: {printable(masked(message))}", file=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    import shtab

    whole = argparse.ArgumentParser(
        "lightning-hooks",
        description="Check old mmcv projects, convert and draw configs, list, draw and report on "
        "runs, end one with a decay, average checkpoints, replay logs.",
    )
    whole.add_argument("--version", action="version", version=f"lightning-hooks {__version__}")
    shtab.add_argument_to(whole, "--print-completion", help="print the completion for a shell")
    below = whole.add_subparsers(dest="command", required=True)

    def command(run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        doc = str(run.__doc__)
        subparser = below.add_parser(run.__name__, description=doc, help=doc)
        subparser.set_defaults(run=run)
        return subparser

    def add_path(name: str, **options: Any) -> None:
        subparser.add_argument(name, **options).complete = shtab.FILE  # type: ignore[attr-defined]

    subparser = command(commands.check)
    add_path("target", help="a file, folder, script or config, or a module by name")
    subparser.add_argument("--json", action="store_true", help="print JSON")
    subparser.add_argument(
        "--seconds", type=float, default=120.0, help="time limit of an import, or of the run (120)"
    )
    subparser.add_argument(
        "--run",
        dest="of_script",
        nargs=argparse.REMAINDER,
        metavar="ARGUMENT",
        help="then run the training script with these arguments until its first batch is trained; "
        "write it last",
    )
    subparser = command(commands.plot)
    add_path("target", nargs="+", help="a config (.py, YAML, JSON), or work dirs of runs")
    subparser.add_argument("--epochs", type=_length, help="epochs of the run; else the config's")
    subparser.add_argument("--iters-per-epoch", type=_length, help="iterations of an epoch")
    subparser.add_argument("--keys", nargs="+", default=(), help="quantities of a run, e.g. loss")
    subparser.add_argument(
        "--all", action="store_true", help="all quantities; else the 40 that changed most"
    )
    add_path("--out", help="the picture (schedule.png for a config, curves.png for runs)")
    subparser = command(commands.convert)
    add_path("config", help="a .py, YAML or JSON file")
    subparser.add_argument(
        *("--import", "-i"),
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="a module that registers hooks when it is imported; may be repeated",
    )
    subparser.add_argument(
        "--to",
        choices=("hooks", "script"),
        default="hooks",
        help="print the hooks (default), or a script that trains a config of mmcls, mmdet or mmseg",
    )
    subparser = command(commands.average)
    add_path("paths", nargs="+", help="checkpoint files, or the folder of a run")
    which = subparser.add_mutually_exclusive_group()
    which.add_argument("--best", type=_length, metavar="N", help="the N best files of the run")
    which.add_argument("--last", type=_length, metavar="N", help="the N last files of the run")
    add_path("--out", required=True, help="the file to write")
    subparser = command(commands.decay)
    add_path("run_dir", metavar="RUN", help="the work directory of a training run")
    subparser = command(commands.files)
    add_path("run_dir", metavar="RUN", help="the work directory of a run")
    subparser.add_argument("--json", action="store_true", help="print JSON")
    subparser = command(commands.report)
    add_path("run_dirs", nargs="+", metavar="RUN", help="the work directories of runs")
    add_path("--out", default="report.html", help="the file to write (report.html)")
    subparser = command(commands.hooks)
    subparser.add_argument("--json", action="store_true", help="print JSON")
    subparser = command(commands.replay)
    add_path("paths", nargs="+", help="spools, or offline runs of Neptune's")
    subparser.add_argument("--to", required=True, choices=TRACKERS, help="the tracker")
    subparser.add_argument(
        "--everything", action="store_true", help="copy all records, also those sent before"
    )
    subparser.add_argument(
        "--new-run", action="store_true", help="begin a run instead of going on with the spool's"
    )
    for name, text in OPTIONS.items():
        subparser.add_argument(f"--{name.replace('_', '-')}", help=text)
    return whole


def _length(text: str) -> int:
    try:
        length = int(text)
    except ValueError:
        length = 0
    if length < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, got {shown(text)}")
    return length
