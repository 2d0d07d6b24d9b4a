"""Run programs of the tests in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import GOLDEN, ROOT, TESTS

__all__ = ["environment", "job_command", "read_ranks", "run_job", "run_program", "write_rank"]


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which programs import what the tests import, and see no GPU."""
    paths = os.pathsep.join(map(str, (ROOT, TESTS, GOLDEN)))
    found = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", **variables}
    found.pop("LOCAL_RANK", None)
    return found


def job_command(job: str, *arguments: Any) -> list[str]:
    """Return the command that runs ``support/jobs/<job>.py``."""
    module = f"support.jobs.{job}"
    return [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]


def run_job(job: str, *arguments: Any, timeout: float = 240) -> str:
    """Run a job to its end; return its output."""
    command = job_command(job, *arguments)
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def run_program(code: str, *arguments: Any, flags: tuple[str, ...] = (), **options: Any) -> str:
    """Run a program, given as code, to its end; return its output."""
    command = [sys.executable, "-W", "ignore", *flags, "-c", code, *map(str, arguments)]
    options = {"env": environment(), "timeout": 240, "check": False, **options}
    done = subprocess.run(command, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def write_rank(out: Path, found: Any, name: str = "rank") -> None:
    """Write the results of this process of a job, for ``read_ranks``."""
    (out / f"{name}{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))


def read_ranks(out: Path, name: str = "rank") -> list[Any]:
    """Return the results of both processes of a job."""
    return [json.loads((out / f"{name}{rank}.json").read_text()) for rank in (0, 1)]
