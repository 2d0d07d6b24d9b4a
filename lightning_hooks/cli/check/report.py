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
from lightning_hooks.utils.secrets import masked

__all__ = ["ABSENT", "OURS", "PIP", "UNKNOWN", "Finding", "Report", "check", "show"]

ABSENT = " is not installed"
OURS = "an error inside lightning_hooks"
PIP = "pip install "
STOPS = "stops before its first batch"
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
    """``"start"``: training does not start; ``"run"``: the command stops before its first batch;
    ``"gpu"``: training needs a GPU and there is none; ``"part"``: training does not need the file;
    ``"note"``: a possible error on use."""


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
    arguments: tuple[str, ...] | None = None
    """The arguments that the script was run with; None if the script was not run."""
    trained: bool = False
    """Whether the script has trained the first batch."""

    @property
    def starts(self) -> bool:
        """Whether the imports of the training script, or of the only file, run.

        Of a script that was run: whether its first batch was trained.
        """
        return not (self.of("start") or self.of("run"))

    @property
    def verdict(self) -> str:
        """``trains``, ``runs``, ``runs except ...``, or ``does not start because ...``.

        Of a script that was run ``trains: ...`` or ``stops before its first batch: ...``.
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
        for finding in self.of("run"):
            return f"{STOPS}: {finding.what} ({place(finding)})"
        if self.trained:
            return "trains: its first batch was trained"
        for finding in self.of("gpu"):
            return f"trains on a machine with a GPU ({place(finding)} {finding.what})"
        if self.script:
            return "trains"
        parts = [*dict.fromkeys(finding.path for finding in self.of("part"))]
        return f"runs except {listed(parts, 6)}" if parts else "runs"

    @property
    def next_steps(self) -> list[str]:
        """The commands to type: for missing packages, then for the training or a hook."""
        stops = (*self.of("start"), *self.of("run"))
        needed = [finding.write for finding in stops if finding.write]
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
            rest = ":$PYTHONPATH" if os.environ.get("PYTHONPATH") else ""
            path = f"PYTHONPATH={shlex.quote(self.path)}{rest} " if self.path else ""
            arguments = "..." if self.arguments is None else shlex.join(self.arguments)
            command = f"python -m lightning_hooks.standin {shlex.quote(self.script)} {arguments}"
            steps.append(f"{path}{command}".rstrip())
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


def check(target: str, seconds: float = 120.0, run: Sequence[str] | None = None) -> Report:
    """Import a project in a separate process, and report failures.

    Args:
        target: The path of a file, a folder or a config, or the dotted name of an installed module.
            Files are imported without the code for ``__main__``.
        seconds: The time limit of each import, and of the run up to the first batch.
        run: The arguments of the training script. After the imports, the script is run with the
            arguments, in the current folder, until its first batch is trained. By default the
            script is not run.

    Raises:
        FileNotFoundError: if the path or module does not exist.
        ValueError: if the target has no Python file, or no script to run, or ``seconds`` is not
            positive and finite.
        RuntimeError: if a process fails outside of the project's files.
    """
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(
            f"seconds must be above 0 and at most {threading.TIMEOUT_MAX:g}, got {seconds:g}"
        )
    project = find(target)
    if run is not None and not project.script:
        raise ValueError(f"there is no training script to run in {target}")
    lines = _written_by("probe", project, [target], seconds)
    path = next(iter(_of("path", lines)), "")
    if run is not None and all(finding["level"] != "start" for finding in _of("finding", lines)):
        trained = _written_by("first_batch", project, [target, *run], seconds, path)
        if not path and _of("path", trained):  # the script imports its packages in a function
            (path,) = _of("path", trained)
            trained = _written_by("first_batch", project, [target, *run], seconds, path)
        lines += trained
    return Report(
        findings=tuple(Finding(**_shortened(finding)) for finding in _of("finding", lines)),
        hooks=tuple(_shortened(hook) for hook in _of("hook", lines)),
        script=_short(project.script) if project.script else "",
        path=path,
        arguments=None if run is None else tuple(run),
        trained={"trained": True} in lines,
    )


def _written_by(
    process: str, project: Project, arguments: Sequence[str], seconds: float, path: str = ""
) -> list[dict[str, Any]]:
    """Run a process of a check; return the lines that it writes, and a finding of an early end.

    Args:
        process: The module of the process, in this package.
        project: The files.
        arguments: The target of the check, and further arguments.
        seconds: The time limit.
        path: A folder to put on Python's path.

    Raises:
        RuntimeError: if the process ends before it runs the project's code.
    """
    paths = filter(None, (path, os.environ.get("PYTHONPATH")))
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "out"), Path(folder, "log")
        module = f"lightning_hooks.cli.check.{process}"
        with log.open("wb") as stream:
            subprocess.run(
                [sys.executable, "-m", module, str(out), str(seconds), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            )
        text = out.read_text("utf-8") if out.exists() else ""
        told = log.read_text("utf-8", "replace").strip()
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    if {"done": True} not in lines:
        loading = _of("loading", lines)
        if not loading:
            raise RuntimeError(f"the check of {arguments[0]} ends early: {told[-2000:]}")
        path, level = loading[-1]
        finding = _end_of(project, path, level, told, seconds)
        lines.append({"finding": dataclasses.asdict(finding)})
    return lines


def _of(kind: str, lines: Sequence[dict[str, Any]]) -> list[Any]:
    """Return what a process has written of a kind."""
    return [line[kind] for line in lines if kind in line]


def _end_of(project: Project, path: str, level: str, told: str, seconds: float) -> Finding:
    """Return why a process has ended early, by what it has printed."""
    frames = re.findall(r'File "(.+)", line (\d+) in', told)
    path, line = next((frame for frame in frames if project.has(frame[0])), (path, "0"))
    until, is_late = "" if level == "run" else " when it is imported", "Timeout (" in told
    what = f"takes more than {seconds:g} s{until}" if is_late else f"ends the process{until}"
    if level == "run" and told and not is_late:  # with argparse's error, as a rule
        what += f": {masked(told.splitlines()[-1])[:300]}"
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

    for level, title in (("start", "does not start"), ("run", STOPS)):
        for finding in report.of(level):
            line = f"[red]{title}[/red]: {escape(place(finding))}: {escape(finding.what)}"
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
