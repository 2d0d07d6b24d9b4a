"""``lightning-hooks check``: whether old hook files run here, without running them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.parse import read_source
from lightning_hooks.cli.check.report import FileReport
from lightning_hooks.cli.check.source import SourceFile
from lightning_hooks.cli.check.verdict import judge

__all__ = ["as_dicts", "check", "show"]

SKIPPED = {"__pycache__", "build", "node_modules", "site-packages", "venv"}


def check(target: str) -> list[FileReport]:
    """Read a file, all files below a folder, or a module or package by its name, and judge them.

    Args:
        target: A path, or a dotted name that Python finds; nothing is imported.

    Returns:
        A report for each file that has hooks or cannot be read, or imported.

    Raises:
        FileNotFoundError: if there is neither.
        ValueError: if there is no Python file.
    """
    found = _found(target)
    read = functools.cache(_read)
    files = {path: read(path) for path in _files(found)}
    if not files:
        raise ValueError(_no_python(found))
    folder = found if found.is_dir() else found.parent
    return judge(files, read, roots=[Path.cwd(), folder])


def _found(target: str) -> Path:
    path = Path(target).expanduser()
    return path if target and path.exists() else _module_path(target)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".py" else []
    return sorted(
        found
        for found in path.rglob("*.py")
        if (found.is_file() or found.is_symlink())
        and not any(p in SKIPPED or p.startswith(".") for p in found.relative_to(path).parts)
    )


def _no_python(path: Path) -> str:
    if path.is_dir():
        return f"there is no Python file in {path}"
    if path.suffix == ".ipynb":
        return f"{path} is a notebook: jupyter nbconvert --to script {path} makes a file to check"
    return f"{path} is no Python file, whose name ends in .py"


def _read(path: Path) -> SourceFile:
    try:
        return read_source(_short(path), path.read_bytes())
    except OSError as error:
        return SourceFile(_short(path), error=f"cannot be read: {error.strerror or error}")


def _module_path(name: str) -> Path:
    root, *rest = name.split(".")
    missing = FileNotFoundError(f"there is no file, folder or module {name!r}")
    try:
        spec = importlib.util.find_spec(root) if root.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise missing
    if spec.origin in ("built-in", "frozen"):
        raise ValueError(f"{name} is built into Python: there is no file to read")
    if not spec.submodule_search_locations:
        if rest:
            raise missing
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations)), *rest)
    for found in (path, path.with_suffix(".py")):
        if found.exists():
            return found
    raise missing


def _short(path: Path) -> str:
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def as_dicts(reports: Sequence[FileReport]) -> list[dict[str, Any]]:
    """Return the reports as what JSON can hold."""
    return [{**dataclasses.asdict(one), "cannot_run": one.cannot_run} for one in reports]


def show(reports: Sequence[FileReport], console: Any) -> None:
    """Print the reports on rich's console."""
    from rich.markup import escape

    for report in reports:
        if report.hooks:
            console.print(_table(report))
        for name, finding in _findings(report):
            mark = "[red]cannot run[/red]" if finding.cannot_run else "[yellow]attention[/yellow]"
            where = f"{report.path}:{finding.line}" if finding.line else report.path
            subject = f"{name} " if name else ""
            console.print(
                f"{escape(where)}: {mark}: {escape(subject + finding.what)}", soft_wrap=True
            )
            console.print(f"    write: {escape(finding.write)}", soft_wrap=True, style="dim")
    hooks = [hook for report in reports for hook in report.hooks if hook.is_of_runner]
    files = [report for report in reports if any(hook.is_of_runner for hook in report.hooks)]
    stopped = sum(report.cannot_run for report in reports)
    verdict = f"{_count(stopped, 'file')} cannot run here" if stopped else "all can run"
    if not hooks:
        console.print("no class of a hook found" + (f"; {verdict}" if stopped else ""))
        return
    counted = f"{_count(len(hooks), 'class', 'classes')} of hooks in {_count(len(files), 'file')}"
    console.print(f"{counted}; {verdict}")
    old = [hook.name for hook in hooks if hook.dialect == "mmcv"]
    if old:
        console.print(
            "write: from lightning_hooks import HookAdapter, standin; standin.install(); then "
            f"Trainer(callbacks=[HookAdapter([{old[0]}(...)])])",
            style="dim",
            soft_wrap=True,
        )


def _findings(report: FileReport) -> list[tuple[str, Any]]:
    whole = [("", finding) for finding in report.findings]
    return whole + [(hook.name, one) for hook in report.hooks for one in hook.findings]


def _table(report: FileReport) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", "dialect", "points", "of the runner", title=report.path, min_width=60)
    for hook in report.hooks:
        wrong = any(finding.cannot_run for finding in hook.findings) or report.cannot_run
        style = "red" if wrong else "yellow" if hook.findings else "green"
        touched = [*hook.reads, *(f"{name} =" for name in hook.writes)]
        points = ", ".join(hook.points) or ("its base's" if hook.inherits else "none")
        name = f"[{style}]{escape(hook.name)}[/{style}]"
        table.add_row(name, hook.dialect, points, ", ".join(touched))
    return table


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
