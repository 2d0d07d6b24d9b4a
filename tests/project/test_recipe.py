"""The project of docs/guides/recipe.md: trained, killed, resumed, and used by another program."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
import torch

from lightning_hooks import last_checkpoint
from support.paths import ROOT
from support.processes import Forks, environment

PAGE = (ROOT / "docs/guides/recipe.md").read_text(encoding="utf-8")
SCRIPTS = dict(re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE, re.M | re.S))
FIT, _, RESUME = re.findall(r"^(?:python|kill) .*$", PAGE, re.M)


def start(folder: Path, command: str) -> Forks:
    """Start a command of the page."""
    program, *arguments = command.split()
    assert program == "python"
    folder.mkdir(exist_ok=True)
    for name, code in SCRIPTS.items():
        (folder / name).write_text(code)
    quiet = environment(WANDB_SILENT="true", WANDB_MODE="offline")
    return Forks(arguments, [quiet], folder)


def test_the_recipe_is_killed_resumed_and_used(tmp_path: Path) -> None:
    for package in ("jsonargparse", "wandb"):
        pytest.importorskip(package)
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    first, deadline = start(killed, FIT), time.monotonic() + 120
    while not (killed / "run/epoch_3.pth").exists():
        assert time.monotonic() < deadline, first.kill()
        time.sleep(0.02)
    first.kill()
    uninterrupted = start(whole, FIT)
    assert re.search(r"goes on after \d+ epochs", start(killed, RESUME).wait())
    (shown,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
    assert start(killed, "python predict.py").wait().endswith(shown)
    assert len({path.name[-8:] for path in killed.glob("run/wandb/offline-run-*")}) == 1
    uninterrupted.wait()
    weights = [
        torch.load(last_checkpoint(folder / "run"), weights_only=True)["state_dict"]
        for folder in (killed, whole)
    ]
    assert all(torch.equal(weight, weights[1][name]) for name, weight in weights[0].items())
