"""Real projects of the mmcv 1.x era: installed, and run under real mmcv or under the stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.paths import ROOT

TRAINERS = Path(__file__).parent / "trainers"
DOWNLOADS = ROOT / ".old_code"
SITE = DOWNLOADS / "site"
PYTHONS = {"mmcv": ROOT / ".oracle" / "bin" / "python", "standin": Path(sys.executable)}


def install_packages() -> None:
    """Install the packages into a folder of their own, unless they are there."""
    wanted = TRAINERS / "requirements.txt"
    installed = SITE / "installed.txt"
    if installed.is_file() and installed.read_text() == wanted.read_text():
        return
    # these have no wheels, and their builds import torch
    beside_torch = ["--no-build-isolation", "-r", str(TRAINERS / "built_beside_torch.txt")]
    for packages in (["-r", str(wanted)], beside_torch):
        options = ["-q", "--no-deps", "--upgrade", "--target", str(SITE), *packages]
        subprocess.run([sys.executable, "-m", "pip", "install", *options], check=True, timeout=1200)
    installed.write_text(wanted.read_text())


def run(name: str, side: str) -> Any:
    """Train, resume and test a project in a process of its own; return what it left."""
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
