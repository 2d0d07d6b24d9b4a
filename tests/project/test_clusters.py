"""The scripts of the page "Clusters" go on from job to job, with Slurm's commands emulated."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.paths import ROOT
from support.processes import environment

PAGE = (ROOT / "docs" / "guides" / "clusters.md").read_text(encoding="utf-8")
TRAIN, *SCRIPTS = re.findall(r"^```(?:python|sh)\n(.*?)^```$", PAGE, re.M | re.S)
REQUEUE, RESUBMIT, PREEMPTIBLE, TORCHRUN = SCRIPTS
QUIET = {"PL_TRAINER_LOGGER": "False", "PL_TRAINER_ENABLE_PROGRESS_BAR": "False"}
ITERATIONS = 6


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a home folder with the script, and a PATH with commands that record their calls."""
    project, commands = tmp_path / "project", tmp_path / "commands"
    project.mkdir()
    commands.mkdir()
    (project / "train.py").write_text(TRAIN)
    programs = {
        "python": f'exec {sys.executable} -W ignore "$@"',
        "srun": 'exec "$@"',
        "sleep": "true",
        "torchrun": f'exec {sys.executable} -W ignore -m torch.distributed.run "$@"',
        **{name: f'echo {name} "$@" >> {tmp_path}/calls' for name in ("scontrol", "sbatch")},
    }
    for name, line in programs.items():
        (commands / name).write_text(f"#!/bin/bash\n{line}\n")
        (commands / name).chmod(0o755)
    return project


def start(folder: Path, script: str, ends_in: int = 3600) -> subprocess.Popen[str]:
    home = folder.parent
    variables = environment(
        PATH=f"{home / 'commands'}{os.pathsep}{os.environ['PATH']}",
        HOME=str(home),
        SLURM_JOB_ID="7",
        SLURM_JOB_END_TIME=str(int(time.time()) + ends_in),
        **QUIET,
    )
    command = ["bash", "-c", script]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen(command, cwd=folder, env=variables, **pipes)  # type: ignore[call-overload,no-any-return]


def run(folder: Path, script: str, ends_in: int = 3600) -> str:
    output: str = start(folder, script, ends_in).communicate(timeout=300)[0]
    return output


@pytest.mark.parametrize(
    ("script", "call"),
    [
        (REQUEUE, "scontrol requeue 7"),
        pytest.param(RESUBMIT, "sbatch train.sh", marks=pytest.mark.slow),
    ],
    ids=["requeue", "resubmit"],
)
def test_a_slurm_job_calls_for_the_next(folder: Path, script: str, call: str) -> None:
    calls = folder.parent / "calls"
    first = run(folder, script, ends_in=0)  # the time limit is over, so the job ends at once
    assert "the training is done" not in first
    assert calls.read_text() == f"{call}\n", first
    assert (folder / "iter_2.pth").exists()
    calls.unlink()
    second = run(folder, script)
    assert "goes on after 0 epochs and 2 iterations" in second
    assert "the training is done" in second
    assert not calls.exists()


@pytest.mark.slow
def test_a_preempted_machine_goes_on_at_its_next_start(folder: Path) -> None:
    slow = TRAIN.replace(
        "        return self.layer", "        time.sleep(0.5)\n        return self.layer"
    )
    (folder / "train.py").write_text(
        f"import time\n{slow}".replace(', TimeLimitHook(hours="slurm")', "")
    )
    machine = start(
        folder, f"echo $$ > shell\n{PREEMPTIBLE.replace('until', 'trap exit TERM; until')}"
    )
    seen = ""
    assert machine.stdout is not None
    while "1 hook" not in seen:
        seen += machine.stdout.readline()
    time.sleep(1.2)
    children = subprocess.run(
        ["pgrep", "-P", str(machine.pid)], capture_output=True, text=True, check=True
    )
    os.kill(machine.pid, signal.SIGTERM)
    for child in children.stdout.split():
        os.kill(int(child), signal.SIGTERM)
    machine.communicate(timeout=300)
    assert [*folder.glob("iter_*.pth")]
    assert "the training is done" in run(folder, PREEMPTIBLE)


@pytest.mark.slow
def test_torchrun_starts_again(folder: Path) -> None:
    script = TORCHRUN.replace("per-node=2", "per-node=1")
    output = run(folder, script, ends_in=0)  # each start ends after two iterations
    for done in (2, 4):
        assert f"goes on after 0 epochs and {done} iterations" in output
    assert "the training is done" in output
