"""Real projects of the mmcv 1.x era: installed, and run under real mmcv or under the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trainers.projects import PROJECTS

from support.paths import ROOT

TRAINERS = Path(__file__).parent / "trainers"
DOWNLOADS = ROOT / ".old_code"
SITE = DOWNLOADS / "site"
PYTHONS = {"mmcv": ROOT / ".oracle" / "bin" / "python", "standin": Path(sys.executable)}


def install_packages() -> None:
    """Install the packages into a separate folder if missing."""
    wanted = TRAINERS / "requirements.txt"
    installed = SITE / "installed.txt"
    if installed.is_file() and installed.read_text() == wanted.read_text():
        return
    # packages without wheels, whose builds import torch
    beside_torch = ["--no-build-isolation", "-r", str(TRAINERS / "built_beside_torch.txt")]
    for packages in (["-r", str(wanted)], beside_torch):
        options = ["-q", "--no-deps", "--upgrade", "--target", str(SITE), *packages]
        subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True, timeout=1200)
    installed.write_text(wanted.read_text())


def run(name: str, side: str) -> Any:
    """Train, resume and test a project in a subprocess; return the results."""
    directory = DOWNLOADS / "runs" / name / side
    job = [str(TRAINERS / "run_trainer.py"), name, str(SITE), str(directory), side]
    ended = subprocess.run(
        [str(PYTHONS[side]), "-W", "ignore", *job],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1800,
        capture_output=True,
        text=True,
    )
    if ended.returncode:
        raise RuntimeError(f"{name} ended with {ended.returncode}:\n{ended.stderr}")
    return json.loads((directory / "found.json").read_text())


def lay_out(name: str, directory: Path) -> Callable[..., str]:
    """Create a project's config and data in an empty folder.

    Returns:
        A function that runs Python with the given arguments in the folder and returns the output.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [TRAINERS, TRAINERS / "habits", SITE, ROOT])),
        "PYTHONWARNINGS": "ignore",
        "OLD_SIDE": "standin",
        "OLD_MMCV": PROJECTS[name].version,
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }

    def python(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        pipes = {"capture_output": True, "text": True, "timeout": 900}
        ended = subprocess.run(command, cwd=directory, env=environment, check=False, **pipes)
        assert ended.returncode == 0, ended.stderr[-4000:]
        return str(ended.stdout)

    laying_out = "import run_trainer, sys; run_trainer.lay_out(*sys.argv[1:])"
    python("-c", laying_out, name, str(SITE))
    return python


def training(name: str, directory: str) -> list[str]:
    """Return the path of a project's training script, and the arguments of a run."""
    project = PROJECTS[name]
    options = ["--work-dir", directory, "--seed", "0", "--deterministic"]
    device = ["--device", "cpu"] if "--device" in project.train else []
    return [f"site/{project.package}/.mim/tools/train.py", "config.py", *options, *device]


def script_rows(name: str, directory: Path, line: str) -> dict[str, list[Any]]:
    """Train a project with its training script and with the converted script.

    Args:
        name: The project.
        directory: An empty folder.
        line: An additional line of the config.

    Returns:
        The log rows of both runs, ``"old"`` and ``"converted"``.
    """
    python = lay_out(name, directory)
    with (directory / "config.py").open("a", encoding="utf-8") as config:
        config.write(f"{line}\n")
    script = python("-m", "lightning_hooks", "convert", "config.py", "--to", "script")
    (directory / "train.py").write_text(script, encoding="utf-8")
    python("train.py")
    python("-m", "lightning_hooks.standin", *training(name, "old"))
    folders = {"old": "old", "converted": "work_dirs/config"}
    return {side: _rows(directory / folder) for side, folder in folders.items()}


def _rows(work_dir: Path) -> list[dict[str, Any]]:
    (log,) = work_dir.glob("*.log.json")
    rows = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return [_compared(row) for row in rows if "mode" in row]


def _compared(row: dict[str, Any]) -> dict[str, Any]:
    """Return a rounded row without times; validation rows also lose ``iter``, the batch count."""
    left_out = {"time", "data_time", "memory"} | ({"iter"} if row["mode"] == "val" else set())
    kept = {key: value for key, value in row.items() if key not in left_out}
    return {key: round(value, 4) if type(value) is float else value for key, value in kept.items()}
