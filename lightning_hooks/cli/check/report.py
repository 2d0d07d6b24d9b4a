"""Hold what ``check`` finds, and print it in the order in which a newcomer meets it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["ABSENT", "TORCH", "Finding", "HookReport", "Report", "short", "show", "some"]

TORCH = "torch"
"""The dialect of hooks of torch modules, which no runner calls."""
PIP = "pip install "
ABSENT = " is not installed"
MARKS = {"start": "[red]does not start[/red]", "part": "[red]cannot run[/red]", "note": "attention"}
TOPICS = (
    "version",
    "packages",
    "imports",
    "config",
    "placeholders",
    "runners",
    "numpy and Python",
    "hooks",
    "GPU",
)


@dataclasses.dataclass(frozen=True)
class Finding:
    """A reason why a project or a part of it cannot run, or a note for its user."""

    path: str
    line: int
    """0 for the file as a whole."""
    what: str
    write: str
    level: str
    """``"start"`` if nothing trains, ``"part"`` if the subject cannot run."""
    topic: str = "imports"
    subject: str = ""
    """The hook, runner or type; empty for the file."""


@dataclasses.dataclass(frozen=True)
class HookReport:
    """One hook class."""

    path: str
    line: int
    name: str
    dialect: str
    points: list[str]
    """Those that are not its library's empty ones."""
    reads: list[str]
    """Attributes of the runner."""
    writes: list[str]


@dataclasses.dataclass(frozen=True)
class Report:
    """All findings on a project."""

    findings: tuple[Finding, ...]
    hooks: tuple[HookReport, ...]
    script: str
    """The script that trains; empty for a project that has none."""
    root: str
    """The folder from which the project's packages are imported."""

    @property
    def starts(self) -> bool:
        """Whether the project starts, with parts that cannot run or without."""
        return all(finding.level != "start" for finding in self.findings)

    @property
    def cannot_run(self) -> bool:
        """Whether one of the findings stops something."""
        return any(finding.level != "note" for finding in self.findings)

    @property
    def verdict(self) -> str:
        """``trains``, ``trains except ...``, or ``does not start because ...``."""
        stops = [one for one in self.findings if one.level == "start"]
        absent = [one.what.removesuffix(ABSENT) for one in stops if one.what.endswith(ABSENT)]
        reasons = [f"these are not installed: {', '.join(absent)}"] if len(absent) > 1 else []
        for one in stops:
            if not (reasons and one.what.endswith(ABSENT)):
                reasons.append(f"{one.what} ({self.place(one)})")
        if reasons:
            return f"does not start because {some(list(dict.fromkeys(reasons)), 2)}"
        parts = [
            one.subject or self.place(one).partition(":")[0]
            for one in self.findings
            if one.level == "part"
        ]
        verb = "trains" if self.script else "runs"
        return f"{verb} except {some(list(dict.fromkeys(parts)), 6)}" if parts else verb

    @property
    def next_steps(self) -> list[str]:
        """The commands that install packages, and the one that trains, or how to host a hook."""
        found = [one.write for one in self.findings if one.write.startswith(PIP)]
        plain = [one.removeprefix(PIP) for one in dict.fromkeys(found) if " -" not in one]
        steps = [one for one in dict.fromkeys(found) if " -" in one]
        steps += [PIP + " ".join(plain)] if plain else []
        mmcv_hooks = [hook.name for hook in self.hooks if hook.dialect == "mmcv"]
        if self.script:
            steps.append(f"python -m lightning_hooks.standin {self.script} ...")
        elif mmcv_hooks:
            install = "from lightning_hooks import HookAdapter, standin; standin.install()"
            hosted = f"Trainer(callbacks=[HookAdapter([{mmcv_hooks[0]}(...)])])"
            steps.append(f"{install}; then {hosted}")
        return steps

    def place(self, finding: Finding) -> str:
        """Return where a finding is, from the project's root on."""
        path = finding.path.removeprefix(f"{self.root}{os.sep}")
        return f"{path}:{finding.line}" if finding.line else path

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        verdict = {"verdict": self.verdict, "starts": self.starts, "cannot_run": self.cannot_run}
        return {**verdict, "write": self.next_steps, **dataclasses.asdict(self)}


def short(path: str | Path) -> str:
    """Return a path relative to the current directory, if it is below that."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def show(report: Report, console: Any) -> None:
    """Print the report on rich's console: findings by topic, hooks, and the verdict."""
    from rich.markup import escape

    groups: dict[tuple[str, str, str], list[Finding]] = {}
    levels = [*MARKS]
    for one in sorted(report.findings, key=lambda one: levels.index(one.level)):
        what = f"{one.subject} {one.what}" if one.topic == "hooks" else one.what
        groups.setdefault((one.topic, what, one.write), []).append(one)
    for topic in TOPICS:
        found = [(key, same) for key, same in groups.items() if key[0] == topic]
        if found:
            console.print(f"{topic}:", style="bold")
        for (_, what, write), same in found:
            places = some([report.place(one) for one in same], 2)
            line = f"  {MARKS[same[0].level]}: {escape(places)}: {escape(what)}"
            console.print(line, soft_wrap=True)
            if write and not write.startswith(PIP):
                console.print(f"    write: {escape(write)}", soft_wrap=True, style="dim")
    if report.hooks:
        console.print(_table(report))
    console.print(f"[bold]verdict: {escape(report.verdict)}[/bold]", soft_wrap=True)
    for write in report.next_steps:
        console.print(f"write: {escape(write)}", style="dim", soft_wrap=True)


def _table(report: Report) -> Any:
    from rich.markup import escape
    from rich.table import Table

    levels = {(one.path, one.subject): one.level for one in report.findings}
    table = Table("hook", "dialect", "points", "of the runner", title="hooks", min_width=60)
    for hook in report.hooks:
        level = levels.get((hook.path, hook.name))
        style = "green" if level is None else "yellow" if level == "note" else "red"
        used = [*hook.reads, *(f"{name} =" for name in hook.writes)]
        name = f"[{style}]{escape(hook.name)}[/{style}]"
        table.add_row(name, hook.dialect, ", ".join(hook.points) or "none", ", ".join(used))
    return table


def some(items: Sequence[str], count: int) -> str:
    """Return the first items, and the number of the others."""
    more = f" and {len(items) - count} more" if len(items) > count else ""
    return ", ".join(items[:count]) + more
