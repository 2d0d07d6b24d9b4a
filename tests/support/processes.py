"""Run test programs in separate processes."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support import forks
from support.paths import GOLDEN, ROOT, TESTS

__all__ = [
    "Forks",
    "Job",
    "environment",
    "free_port",
    "read_ranks",
    "run_job",
    "run_new",
    "run_program",
    "run_python",
    "write_rank",
]


# the rank, and the variables by which W&B's and ClearML's clients join the run of the parent
_OF_THIS_PROCESS = (
    *("LOCAL_RANK", "WANDB_SERVICE"),
    *("CLEARML_PROC_MASTER_ID", "TRAINS_PROC_MASTER_ID"),
)


def environment(**variables: str) -> dict[str, str]:
    """Return environment variables with the tests' import paths and without a GPU."""
    paths = os.pathsep.join(map(str, (ROOT, TESTS, GOLDEN)))
    found = {**os.environ, "PYTHONPATH": paths, "CUDA_VISIBLE_DEVICES": "", **variables}
    return {name: value for name, value in found.items() if name not in _OF_THIS_PROCESS}


class Forks:
    """Runs a program in forked processes, one for each environment.

    Args:
        arguments: The arguments of ``python``; see :func:`support.forks.start`.
        environments: The environment variables of each process.
        folder: The working directory.
    """

    def __init__(
        self, arguments: list[str], environments: list[dict[str, str]], folder: Path = ROOT
    ) -> None:
        outputs = Path(tempfile.mkdtemp())
        self._outputs = [outputs / str(rank) for rank in range(len(environments))]
        self._processes = [
            forks.start(arguments, environment, output, folder)
            for environment, output in zip(environments, self._outputs, strict=True)
        ]

    def wait(self, timeout: float = 240, check: bool = True) -> str:
        """Wait for the end; return the output of the first process. With ``check``, errors fail."""
        codes = forks.wait(self._processes, timeout)
        printed = [output.read_text() for output in self._outputs if output.exists()]
        shutil.rmtree(self._outputs[0].parent)
        assert not (check and any(codes)), "\n".join(text[-4000:] for text in printed)
        return printed[0]

    def kill(self) -> str:
        """Kill all processes; return the output of the first process."""
        return self.wait(0, check=False)

    def wait_for_all(self, timeout: float) -> list[int | None]:
        """Wait until each has ended, by itself or a signal; return the exit codes."""
        for process in self._processes:
            process.join(timeout)
        codes = [process.exitcode for process in self._processes]
        self.kill()
        return codes


class Job(Forks):
    """Runs ``support/jobs/<job>.py``.

    Args:
        job: The name of the file.
        arguments: The arguments of the job.
        ranks: Number of processes to start. With 1, Lightning starts the other ranks.
    """

    def __init__(self, job: str, *arguments: Any, ranks: int = 2) -> None:
        command = ["-m", f"support.jobs.{job}", *map(str, arguments)]
        super().__init__(command, [{**environment(), **group} for group in _groups(ranks)])


def run_job(job: str, *arguments: Any, ranks: int = 2, timeout: float = 240) -> str:
    """Run a job to the end; return the output."""
    return Job(job, *arguments, ranks=ranks).wait(timeout)


def _groups(ranks: int) -> list[dict[str, str]]:
    """Return the environment variables of each rank; no variables for a single process."""
    if ranks == 1:
        return [{}]
    common = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        {**common, "WORLD_SIZE": str(ranks), "NODE_RANK": "0", "LOCAL_RANK": str(rank)}
        for rank in range(ranks)
    ]


def free_port() -> int:
    """Return a free local port."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run_python(*command: Any, folder: Path = ROOT, timeout: float = 240) -> str:
    """Run the equivalent of a ``python`` command in a fork; return the output.

    Args:
        command: ``-c`` and code, ``-m`` and a module, or a script; then the program's arguments.
        folder: The working directory.
        timeout: Seconds until the process is killed, which is an error.
    """
    return Forks([*map(str, command)], [environment()], folder).wait(timeout)


def run_program(code: str, *arguments: Any) -> str:
    """Run code in a fork to the end; return the output."""
    return run_python("-c", code, *arguments)


def run_new(code: str) -> str:
    """Run code in a new interpreter without imported packages, which takes seconds."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    ).stdout


def write_rank(out: Path, found: Any, name: str = "rank") -> None:
    """Write the results of a job's process for ``read_ranks``."""
    (out / f"{name}{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))


def read_ranks(out: Path, name: str = "rank") -> list[Any]:
    """Return the results of both processes of a job."""
    return [json.loads((out / f"{name}{rank}.json").read_text()) for rank in (0, 1)]
