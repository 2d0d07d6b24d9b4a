"""The commands of ``lightning-hooks``: functions of the parsed arguments that return an exit code.

A function checks the paths first, and imports modules with torch afterwards: the import takes
seconds, and a wrong path is reported at once.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.utils.printable import printable

__all__ = ["average", "check", "convert", "decay", "files", "hooks", "plot", "replay", "report"]

DECAY_REQUEST = "start_decay"
"""The file in a run's work directory that a ``WSDLrUpdaterHook`` looks for."""

USER_ERRORS = BlockingIOError, FileNotFoundError, ImportError, TypeError, ValueError
"""Errors of ``replay`` for wrong arguments and files; a tracker raises other errors."""


def check(given: Namespace) -> int:
    """Run a project's code to check whether training starts (exit code 0) or not (1)."""
    from lightning_hooks.cli.check.report import check, show

    report = check(given.target, given.seconds, given.of_script)
    if given.json:
        print(json.dumps(report.as_dict(), indent=2))
    else:
        show(report, _console())
    return int(not report.starts)


def plot(given: Namespace) -> int:
    """Run a config's code and draw the schedules, or draw the logged values of runs."""
    width = min(_console().width, 100)
    out = given.out and (given.out if Path(given.out).suffix else f"{given.out}.png")
    is_run = [Path(target).is_dir() or target.endswith(".log.json") for target in given.target]
    if (given.epochs or given.iters_per_epoch) if all(is_run) else given.keys or given.all:
        raise ValueError(
            "--keys is for runs, as is --all; --epochs and --iters-per-epoch are for a config"
        )
    if all(is_run):
        for path in given.target:
            _check_path(path)
        from lightning_hooks.cli import plot_runs

        runs = [plot_runs.read_run(path) for path in given.target]
        for run in runs:
            if run.damaged:
                print(f"{run.path}: {run.damaged} damaged lines are left out", file=sys.stderr)
        names = given.keys or plot_runs.quantities(runs)
        keys = names if given.keys or given.all else plot_runs.changed_most(runs)
        drawn = ", ".join(map(str, plot_runs.draw_runs(runs, out or "curves.png", keys)))
        print(plot_runs.runs_in_terminal(runs, width, keys))
        if len(keys) < len(names):
            print(
                f"the {len(keys)} of {len(names)} quantities that changed most; `--all` draws the "
                "rest, `--keys NAME` one"
            )
    elif any(is_run) or len(given.target) > 1:
        raise ValueError(f"plot draws one config, or runs, got {' '.join(given.target)}")
    else:
        _check_path(given.target[0])
        from lightning_hooks.cli.plot_config import curves_of, in_terminal
        from lightning_hooks.schedules import plot

        with _project():
            hooks, length = curves_of(given.target[0], given.epochs, given.iters_per_epoch)
        drawn = str(plot(hooks, out or "schedule.png", **length))
        print(in_terminal(hooks, length, width))
    print(f"drawn in {drawn}")
    return 0


def convert(given: Namespace) -> int:
    """Run a config's code and print the Python for the hooks, or a whole training script."""
    _check_path(given.config)
    from lightning_hooks.cli.check.project import find
    from lightning_hooks.cli.convert import convert, split_unknown
    from lightning_hooks.config.full_config import hooks_from_config
    from lightning_hooks.utils.config_files import read_config

    project = find(given.config) if given.config.endswith((".py", ".yml", ".yaml")) else None
    with _project(project.root if project else None):
        for name in given.imports:
            importlib.import_module(name)
        script = project.script if project and project.config else None
        config, comments = split_unknown(read_config(given.config), script)
        if given.to == "script":
            from lightning_hooks.cli.convert_script import as_script

            hooks = hooks_from_config({**config, "evaluation": None})
            print(as_script(given.config, config, hooks, comments))
        else:
            print(*comments, convert(hooks_from_config(config)), sep="\n")
    return 0


def decay(given: Namespace) -> int:
    """Have a run with a WSDLrUpdaterHook start its decay, and end with it."""
    if not Path(given.run_dir).is_dir():
        raise FileNotFoundError(f"there is no folder {given.run_dir!r}")
    from lightning_hooks.storage.files import write_bytes

    write_bytes(str(Path(given.run_dir, DECAY_REQUEST)), b"")  # in place of a link, not through it
    print(
        f"a WSDLrUpdaterHook with the work dir {given.run_dir} decays from the next epoch or "
        "validation on"
    )
    return 0


def hooks(given: Namespace) -> int:
    """List all hooks with a short description."""
    from lightning_hooks.cli.list_hooks import COLUMNS, all_hooks

    _print_rows(all_hooks(), COLUMNS, given.json)
    return 0


def average(given: Namespace) -> int:
    """Average the weights of checkpoint files."""
    for path in given.paths:
        _check_path(path)
    count = given.best or given.last
    if count and len(given.paths) > 1:
        raise ValueError(f"--best and --last are for one run, got {' '.join(given.paths)}")
    if not count and Path(given.paths[0]).is_dir():
        raise ValueError(f"{given.paths[0]} is a folder: write --best N or --last N with it")
    from lightning_hooks.storage.average import average_checkpoints, best_files, last_files

    paths = given.paths
    if count:
        paths = (best_files if given.best else last_files)(paths[0], count)
    average_checkpoints(paths, given.out)
    print("the mean of", *paths, sep="\n  ")
    print(f"is in {given.out}")
    return 0


def report(given: Namespace) -> int:
    """Write one HTML file about a run, or several beside each other."""
    for path in given.run_dirs:
        _check_path(path)
    from lightning_hooks.cli.report import report

    print(f"written to {report(given.run_dirs, given.out)}")
    return 0


def files(given: Namespace) -> int:
    """List the checkpoints of a run: scores, sizes, which is last, best or damaged."""
    _check_path(given.run_dir)
    from lightning_hooks.cli.list_files import COLUMNS, listed_files

    _print_rows(listed_files(given.run_dir), COLUMNS, given.json)
    return 0


def replay(given: Namespace) -> int:
    """Send missed records to the tracker, or copy all records to another tracker."""
    from rich.console import Console
    from rich.progress import Progress

    from lightning_hooks.loggers.trackers.table import OPTIONS

    for path in given.paths:
        _check_path(path)
    destination = {name: value for name in OPTIONS if (value := getattr(given, name)) is not None}
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("sending", total=None)

        def on_sent(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        options = {"to": given.to, "everything": given.everything, "on_sent": on_sent}
        options["new_run"] = given.new_run
        options |= destination
        counts = [_try_to_replay(path, options) for path in given.paths]
    print(f"{sum(count or 0 for count in counts)} records sent")
    return int(None in counts)


def _try_to_replay(path: str, options: dict[str, Any]) -> int | None:
    """Send the records of a file; return the number, or None if the tracker fails."""
    from lightning_hooks.loggers.replay import replay
    from lightning_hooks.utils.secrets import describe

    try:
        return replay(path, **options)
    except USER_ERRORS:
        raise
    except Exception as error:
        reason = printable(describe(error))
        print(f"lightning-hooks: {path} stays as it is: {reason}", file=sys.stderr)
        return None


def _check_path(path: str) -> None:
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file or folder {path!r}")


def _print_rows(rows: Sequence[dict[str, Any]], head: Sequence[str], as_json: bool) -> None:
    """Print rows as JSON, as a table in a terminal, or as lines with tabs, for grep."""
    from lightning_hooks.cli.terminal import shown, table

    console = _console()
    cells = [[printable(shown(value)) for value in row.values()] for row in rows]
    if as_json:
        print(json.dumps(rows, indent=2))
    elif console.is_terminal:
        console.print(table(head, cells))
    else:
        print(*map("\t".join, cells), sep="\n")


def _console() -> Any:
    from rich.console import Console

    return Console()


@contextlib.contextmanager
def _project(root: Path | None = None) -> Iterator[None]:
    """Let a config import mmcv, and the modules in the current directory and in the root."""
    from lightning_hooks import standin

    added = [str(root), ""] if root else [""]
    sys.path[:0] = reversed(added)
    try:
        with standin.installed():
            yield
    finally:
        for folder in added:
            sys.path.remove(folder)
