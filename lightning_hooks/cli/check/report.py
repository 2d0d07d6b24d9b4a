"""Hold the findings of ``check`` by file and hook, and print them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["TORCH", "FileReport", "Finding", "HookReport", "as_dicts", "short", "show"]

TORCH = "torch"
"""The dialect of hooks of torch modules, which no runner calls."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A reason why a hook cannot run, or a note for its user."""

    line: int
    """0 for the file as a whole."""
    what: str
    write: str
    cannot_run: bool = True


@dataclasses.dataclass(frozen=True)
class HookReport:
    """One hook class."""

    name: str
    line: int
    dialect: str
    points: tuple[str, ...]
    """Its own, and those of its bases in the files."""
    reads: tuple[str, ...]
    """Attributes of the runner."""
    writes: tuple[str, ...]
    findings: tuple[Finding, ...]
    inherits: bool = False
    """Whether a base outside of the files may have further points."""

    @property
    def is_of_runner(self) -> bool:
        """Whether a runner calls it."""
        return self.dialect != TORCH


@dataclasses.dataclass(frozen=True)
class FileReport:
    """A file that has hooks, cannot be read, or cannot be imported."""

    path: str
    hooks: tuple[HookReport, ...]
    findings: tuple[Finding, ...]
    """Those of the file as a whole: its imports."""

    @property
    def cannot_run(self) -> bool:
        """Whether one of the findings stops it."""
        return any(finding.cannot_run for _, finding in _named_findings(self))


def short(path: Path) -> str:
    """Return a path relative to the current directory, if it is below that."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def as_dicts(reports: Sequence[FileReport]) -> list[dict[str, Any]]:
    """Return the reports as dicts for JSON."""
    return [{**dataclasses.asdict(one), "cannot_run": one.cannot_run} for one in reports]


def show(reports: Sequence[FileReport], console: Any) -> None:
    """Print the reports on rich's console."""
    from rich.markup import escape

    for report in reports:
        if report.hooks:
            console.print(_table(report))
        for name, finding in _named_findings(report):
            mark = "[red]cannot run[/red]" if finding.cannot_run else "[yellow]attention[/yellow]"
            where = f"{report.path}:{finding.line}" if finding.line else report.path
            what = f"{name} {finding.what}" if name else finding.what
            console.print(f"{escape(where)}: {mark}: {escape(what)}", soft_wrap=True)
            console.print(f"    write: {escape(finding.write)}", soft_wrap=True, style="dim")
    stopped = sum(report.cannot_run for report in reports)
    verdict = f"{_count(stopped, 'file')} cannot run here" if stopped else "all can run"
    by_file = [[hook for hook in report.hooks if hook.is_of_runner] for report in reports]
    hooks = [hook for of_file in by_file for hook in of_file]
    if not hooks:
        console.print("no hook class found" + (f"; {verdict}" if stopped else ""))
        return
    files = _count(sum(map(bool, by_file)), "file")
    console.print(f"{_count(len(hooks), 'class', 'classes')} of hooks in {files}; {verdict}")
    old = [hook.name for hook in hooks if hook.dialect == "mmcv"]
    if old:
        console.print(
            "write: from lightning_hooks import HookAdapter, standin; standin.install(); then "
            f"Trainer(callbacks=[HookAdapter([{old[0]}(...)])])",
            style="dim",
            soft_wrap=True,
        )


def _named_findings(report: FileReport) -> list[tuple[str, Finding]]:
    """Return all findings with the names of their hooks, empty for the file as a whole."""
    of_hooks = [(hook.name, finding) for hook in report.hooks for finding in hook.findings]
    return [*(("", finding) for finding in report.findings), *of_hooks]


def _table(report: FileReport) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("class", "dialect", "points", "of the runner", title=report.path, min_width=60)
    for hook in report.hooks:
        is_stopped = report.cannot_run or any(finding.cannot_run for finding in hook.findings)
        style = "red" if is_stopped else "yellow" if hook.findings else "green"
        points = ", ".join(hook.points) or ("its base's" if hook.inherits else "none")
        used = [*hook.reads, *(f"{name} =" for name in hook.writes)]
        name = f"[{style}]{escape(hook.name)}[/{style}]"
        table.add_row(name, hook.dialect, points, ", ".join(used))
    return table


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
