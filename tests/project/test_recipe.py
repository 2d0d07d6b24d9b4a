"""The project of docs/guides/recipe.md: trained, killed, resumed, and used by another program."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lightning_hooks import last_checkpoint
from support.paths import ROOT
from support.processes import environment

PAGE = (ROOT / "docs/guides/recipe.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.M | re.S))
FIT, _, RESUME = re.findall(r"^(?:python|kill) .*$", PAGE, re.M)


def start(folder: Path, command: str) -> subprocess.Popen[str]:
    program, *arguments = command.split()
    assert program == "python"
    folder.mkdir(exist_ok=True)
    for name, code in SCRIPTS.items():
        (folder / name).write_text(code)
    return subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment(WANDB_SILENT="true", WANDB_MODE="offline"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """Wait for a program; return what it has printed."""
    printed = process.communicate(timeout=240)[0]
    assert process.returncode == 0, printed
    return printed


def test_the_recipe_is_killed_resumed_and_used(tmp_path: Path) -> None:
    for package in ("jsonargparse", "wandb"):
        pytest.importorskip(package)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first, deadline = start(killed, FIT), time.monotonic() + 120
    while not (killed / "run/epoch_3.pth").exists():
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.kill()
    first.communicate()
    uninterrupted = start(whole, FIT)
    assert re.search(r"goes on after \d+ epochs", end(start(killed, RESUME)))
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
    assert end(start(killed, "python predict.py")).endswith(shown)
    assert len({path.name[-8:] for path in killed.glob("run/wandb/offline-run-*")}) == 1
    end(uninterrupted)
    weights = [
        torch.load(last_checkpoint(folder / "run"), weights_only=True)["state_dict"]
        for folder in (killed, whole)
    ]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
