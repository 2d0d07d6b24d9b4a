"""``lightning-hooks check``: whether old hook files run here, without running them."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.cli.judging import FileReport, judge
from lightning_hooks.cli.reading import read_source

__all__ = ["as_dicts", "check", "show"]

SKIPPED = {"__pycache__", "build", "node_modules", "site-packages", "venv"}


def check(target: str) -> list[FileReport]:
    """Read a file, all files below a folder, or a module or package by its name, and judge them.

    Args:
        target: A path, or a dotted name that Python finds; nothing is imported.

    Returns:
        A report for each file that has hooks or cannot be read.

    Raises:
        FileNotFoundError: if there is neither.
        ValueError: if there is no Python file.
    """
    paths = _paths(target)
    if not paths:
        raise ValueError(f"{target} has no Python file")
    sources = [read_source(_short(path), path.read_bytes()) for path in paths]
    return judge(sources, {_package(path) for path in paths})


def _paths(target: str) -> list[Path]:
    path = Path(target).expanduser()
    if not path.exists():
        path = _module_path(target)
    if path.is_file():
        return [path] if path.suffix == ".py" else []
    return sorted(
        found
        for found in path.rglob("*.py")
        if not any(p in SKIPPED or p.startswith(".") for p in found.relative_to(path).parts)
    )


def _module_path(name: str) -> Path:
    root, *rest = name.split(".")
    missing = FileNotFoundError(f"there is no file, folder or module {name!r}")
    try:
        spec = importlib.util.find_spec(root) if root.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or not (spec.submodule_search_locations or spec.origin):
        raise missing
    if not spec.submodule_search_locations:
        if rest:
            raise missing
        return Path(str(spec.origin))
    path = Path(next(iter(spec.submodule_search_locations)), *rest)
    for found in (path, path.with_suffix(".py")):
        if found.exists():
            return found
    raise missing


def _package(path: Path) -> str:
    """Return the name of the top-level package, or module, that a file belongs to."""
    path = path.resolve()
    top = path.parent
    name = path.stem
    while (top / "__init__.py").exists():
        name, top = top.name, top.parent
    return name


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
            where = f"{report.path}:{finding.line}"
            subject = f"{name} " if name else ""
            console.print(
                f"{escape(where)}: {mark}: {escape(subject + finding.what)}", soft_wrap=True
            )
            console.print(f"    write: {escape(finding.write)}", soft_wrap=True, style="dim")
    hooks = [hook for report in reports for hook in report.hooks]
    if not hooks:
        console.print("no class of a hook found")
        return
    stopped = sum(report.cannot_run for report in reports)
    console.print(
        f"{_count(len(hooks), 'class', 'classes')} of hooks in {_count(len(reports), 'file')}; "
        + (f"{_count(stopped, 'file')} cannot run here" if stopped else "all can run")
    )
    if any(hook.dialect == "mmcv" for hook in hooks):
        console.print(
            "write: from lightning_hooks import HookAdapter, standin; standin.install(); then "
            f"Trainer(callbacks=[HookAdapter([{hooks[0].name}(...)])])",
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
        points = ", ".join(hook.points) or "its base's"
        name = f"[{style}]{escape(hook.name)}[/{style}]"
        table.add_row(name, hook.dialect, points, ", ".join(touched))
    return table


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
