"""Check a project in a separate process, and print the verdict."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.project import Project, find
from lightning_hooks.engine.error_notes import listed

__all__ = ["ABSENT", "OURS", "PIP", "UNKNOWN", "Finding", "Report", "check", "show"]

ABSENT = " is not installed"
OURS = "an error inside lightning_hooks"
PIP = "pip install "
UNKNOWN = "find out what provides "


@dataclasses.dataclass(frozen=True)
class Finding:
    """A reason why a project, or a part of the project, does not run on the machine."""

    path: str
    line: int
    """0 for the file as a whole."""
    what: str
    write: str
    """The advice; empty if ``what`` is enough."""
    level: str
    """``"start"``: training does not start; ``"gpu"``: training needs a GPU and there is none;
    ``"part"``: training does not need the file; ``"note"``: a possible error on use."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of a check."""

    findings: tuple[Finding, ...]
    hooks: tuple[dict[str, Any], ...]
    """For each hook class of the project a dict: ``path``, ``line``, ``name``; ``dialect`` for an
    adapter (empty if no adapter takes the hook); ``points`` of the class and its bases, without
    empty methods; ``attention``, methods without a point, or why no adapter takes the hook."""
    script: str
    """The training script; empty for a project without a script."""
    path: str = ""
    """The folder that must be on Python's path, where the script finds its packages; or empty."""

    @property
    def starts(self) -> bool:
        """Whether the imports of the training script, or of the only file, run."""
        return not self.of("start")

    @property
    def verdict(self) -> str:
        """``trains``, ``runs``, ``runs except ...``, or ``does not start because ...``.

        An error inside this package is said in each of them.
        """
        ours = [
            f"{finding.what} ({place(finding)})"
            for finding in self.of("part")
            if finding.what.startswith(OURS)
        ]
        return "; ".join([self._verdict(), *([listed(ours, 2)] if ours else [])])

    def _verdict(self) -> str:
        stops = self.of("start")
        absent = [
            finding.what.removesuffix(ABSENT) for finding in stops if finding.what.endswith(ABSENT)
        ]
        reasons = [
            f"{finding.what} ({place(finding)})"
            for finding in stops
            if not finding.what.endswith(ABSENT)
        ]
        if absent:
            verb = ABSENT if len(absent) == 1 else " are not installed"
            reasons.insert(0, f"{', '.join(absent)}{verb}")
        if reasons:
            return f"does not start because {listed(reasons, 2)}"
        for finding in self.of("gpu"):
            return f"trains on a machine with a GPU ({place(finding)} {finding.what})"
        if self.script:
            return "trains"
        parts = [*dict.fromkeys(finding.path for finding in self.of("part"))]
        return f"runs except {listed(parts, 6)}" if parts else "runs"

    @property
    def next_steps(self) -> list[str]:
        """The commands to type: for missing packages, then for the training or a hook."""
        needed = [finding.write for finding in self.of("start") if finding.write]
        if not self.script:
            needed += [finding.write for finding in self.of("part") if finding.write]
        needed = list(dict.fromkeys(needed))
        exact = [command for command in needed if command.startswith(f"{PIP}--no-deps ")]
        steps = _joined(f"{PIP}--no-deps ", exact, " ")
        steps += _joined(PIP, [command for command in needed if command not in exact], " ")
        steps += _joined(UNKNOWN, needed, ", ")
        steps += [command for command in needed if not command.startswith((PIP, UNKNOWN))]
        mmcv_hooks = [hook["name"] for hook in self.hooks if hook["dialect"] == "mmcv"]
        if self.script:
            path = f"PYTHONPATH={shlex.quote(self.path)} " if self.path else ""
            steps.append(f"{path}python -m lightning_hooks.standin {self.script} ...")
        elif mmcv_hooks:
            install = "from lightning_hooks import HookAdapter, standin; standin.install()"
            hosted = f"Trainer(callbacks=[HookAdapter([{mmcv_hooks[0]}(...)])])"
            steps.append(f"{install}; then {hosted}")
        return steps

    def of(self, level: str) -> list[Finding]:
        """Return the findings of a level."""
        return [finding for finding in self.findings if finding.level == level]

    def as_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        verdict = {"verdict": self.verdict, "starts": self.starts, "write": self.next_steps}
        return {**verdict, **dataclasses.asdict(self)}


def check(target: str, seconds: float = 120.0) -> Report:
    """Import a project in a separate process, and report failures.

    Args:
        target: The path of a file, a folder or a config, or the dotted name of an installed module.
            Files are imported without the code for ``__main__``.
        seconds: The time limit of each import.

    Raises:
        FileNotFoundError: if the path or module does not exist.
        ValueError: if the target has no Python file, or ``seconds`` is not positive and finite.
        RuntimeError: if the process fails outside of the project's files.
    """
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"seconds must be above 0 and at most {threading.TIMEOUT_MAX:g}, got {seconds:g}"
        )
    project = find(target)
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "out"), Path(folder, "log")
        probe = [sys.executable, "-m", "lightning_hooks.cli.check.probe"]
        with log.open("wb") as stream:
            subprocess.run(
                [*probe, target, str(out), str(seconds)],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
            )
        text = out.read_text("utf-8") if out.exists() else ""
        told = log.read_text("utf-8", "replace")
    lines = [json.loads(line) for line in text.splitlines()]
    findings = [Finding(**_shortened(line["finding"])) for line in lines if "finding" in line]
    if {"done": True} not in lines:
        loading = next((line["loading"] for line in reversed(lines) if "loading" in line), None)
        if loading is None:
            raise RuntimeError(f"the check of {target} ends early: {told.strip()[-2000:]}")
        path, level = loading
        findings.append(_end_of(project, path, level, told, seconds))
    hooks = tuple(_shortened(line["hook"]) for line in lines if "hook" in line)
    path = next((line["path"] for line in lines if "path" in line), "")
    return Report(tuple(findings), hooks, _short(project.script) if project.script else "", path)


def _end_of(project: Project, path: str, level: str, told: str, seconds: float) -> Finding:
    """Return why the process has ended during an import."""
    frames = re.findall(r'File "(.+)", line (\d+) in', told)
    path, line = next((frame for frame in frames if project.has(frame[0])), (path, "0"))
    what = "ends the process when it is imported"
    if "Timeout (" in told:
        what = f"takes more than {seconds:g} s when it is imported"
    return Finding(_short(path), int(line), what, "", level)


def _shortened(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "path": _short(fields["path"])}


def _short(path: str | Path) -> str:
    """Return a path below the current directory as a relative path, any other as given."""
    near = os.path.relpath(path)
    return str(path) if near.startswith("..") else near


def place(finding: Finding) -> str:
    """Return file and line of a finding."""
    return f"{finding.path}:{finding.line}" if finding.line else finding.path


def show(report: Report, console: Any) -> None:
    """Print failures, hooks and verdict on rich's console."""
    from rich.markup import escape

    for finding in report.of("start"):
        line = f"[red]does not start[/red]: {escape(place(finding))}: {escape(finding.what)}"
        console.print(line, soft_wrap=True)
    parts = [f"{place(finding)}: {finding.what}" for finding in report.of("part")]
    if parts and report.script:
        line = f"not needed for training: {listed(parts, 3)}"
        console.print(escape(line), soft_wrap=True, style="dim")
    for line in (*(() if report.script else parts), *_notes(report.of("note"))):
        console.print(f"attention: {escape(line)}", soft_wrap=True)
    if report.hooks:
        console.print(_table(report.hooks))
    for hook in report.hooks:
        for what in hook["attention"]:
            line = f"attention: {hook['path']}:{hook['line']}: {hook['name']}: {what}"
            console.print(escape(line), soft_wrap=True)
    console.print(f"[bold]verdict: {escape(report.verdict)}[/bold]", soft_wrap=True)
    for write in report.next_steps:
        console.print(f"write: {escape(write)}", style="dim", soft_wrap=True)


def _notes(notes: Sequence[Finding]) -> Iterable[str]:
    places: dict[str, list[str]] = {}
    for finding in notes:
        places.setdefault(finding.what, []).append(place(finding))
    return (f"{listed(lines, 2)}: {what}" for what, lines in places.items())


def _table(hooks: Sequence[dict[str, Any]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table("hook", "dialect", "points", title="hooks", min_width=60)
    for hook in hooks:
        points = ", ".join(hook["points"]) or "none"
        table.add_row(escape(hook["name"]), hook["dialect"] or "none", points)
    return table


def _joined(start: str, lines: Sequence[str], comma: str) -> list[str]:
    """Return the lines with a common start as a single line, if there are any."""
    rest = [line.removeprefix(start) for line in lines if line.startswith(start)]
    return [start + comma.join(rest)] if rest else []
