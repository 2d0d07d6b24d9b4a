"""Check a project in a process of its own, which may print, exit or hang."""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import re
import tempfile
import threading
from pathlib import Path
from typing import Any

from lightning_hooks.cli.check.project import find
from lightning_hooks.cli.check.report import Finding, HookReport, Report, short

__all__ = ["check"]


def check(target: str, seconds: float = 120.0) -> Report:
    """Judge a file, all files below a folder, a config, or a module or package by name.

    Args:
        target: A path, or a dotted name that Python finds. Its files are imported, without their
            code for ``__main__``.
        seconds: The time that importing one file may take.

    Raises:
        FileNotFoundError: if there is no such path and no such module.
        ValueError: if there is no Python file, or a number of seconds that is none to wait for.
        RuntimeError: if the process of the check fails.
    """
    if not 0 < seconds <= threading.TIMEOUT_MAX:
        raise ValueError(f"seconds must be above 0, and what a clock can wait, got {seconds}")
    project = find(target)
    stopped: dict[str, Finding] = {}
    while True:
        loading, result, log = _probe(target, list(stopped), seconds)
        if result is not None:
            findings = [*stopped.values(), *(Finding(**one) for one in result["findings"])]
            hooks = [HookReport(**one) for one in result["hooks"]]
            script = short(project.script) if project.script else ""
            return Report(tuple(findings), tuple(hooks), script, str(project.root))
        frames = re.findall(r'File "(.+)", line (\d+) in', log)
        path, line = next((one for one in frames if project.has(one[0])), (loading[0], "0"))
        if not path or path in stopped:
            raise RuntimeError(f"the check of {target} ends early: {log.strip()[-2000:]}")
        what = "ends the process when it is imported"
        if "Timeout (" in log:
            what = f"takes more than {seconds:g} s when it is imported"
        stopped[path] = Finding(short(path), int(line), what, "", loading[1])


def _probe(target: str, skipped: list[str], seconds: float) -> tuple[list[str], Any, str]:
    """Return the last file that was imported and its level, the result, and all other output."""
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else None)
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder, "out"), Path(folder, "log")
        request = {"target": target, "skipped": skipped, "seconds": seconds, "out": str(out)}
        process = context.Process(target=_run, args=(request, str(log)))
        process.start()
        process.join()
        lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    found = [["", "note"], *map(json.loads, lines)]
    result = found.pop() if isinstance(found[-1], dict) else None
    return found[-1], result, text


def _run(request: dict[str, Any], log: str) -> None:
    """Run the probe with its output in a file, and end with it."""
    streams = [os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_CREAT), 1]
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    from lightning_hooks.cli.check.probe import main

    main(request)
    faulthandler.dump_traceback_later(5, exit=True)  # a thread of the project may never end
