"""Run old scripts and runners under the stand-in, and compare the results."""

from __future__ import annotations

import json
import logging
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from record_old_script import SCRIPT, results, run
from torch import nn

from lightning_hooks.standin.installed_mmcv import find_installed
from lightning_hooks.standin.lite import LITE_VERSIONS, MMENGINE_VERSIONS
from support.golden import assert_close
from support.processes import Forks


def has(package: str, versions: tuple[str, ...]) -> bool:
    """Return whether a wheel with mmcv's files is installed."""
    installed = find_installed(sys.meta_path, package)
    return installed is not None and installed.version in versions


HAS_LITE = has("mmcv", LITE_VERSIONS) and has("mmengine", MMENGINE_VERSIONS)
needs_lite = pytest.mark.skipif(not HAS_LITE, reason="mmcv-lite or mmengine is not installed")


class Idle(nn.Module):
    """A model with a trivial step."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
        loss = (self.weight * torch.as_tensor(data).float()).sum()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": 1}

    val_step = train_step


def silent_logger() -> logging.Logger:
    logger = logging.Logger("standin")
    logger.addHandler(logging.NullHandler())
    return logger


def make(kind: str, limit: int, work_dir: Path, model: Any = None, **kwargs: Any) -> Any:
    from mmcv.runner import build_runner

    model = Idle() if model is None else model
    kwargs.setdefault("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
    defaults = {"model": model, "work_dir": str(work_dir), "logger": silent_logger(), **kwargs}
    unit = "max_epochs" if kind in ("EpochBasedRunner", "Runner") else "max_iters"
    return build_runner({"type": kind, unit: limit}, default_args=defaults)


COMMAND = [sys.executable, "-m", "lightning_hooks.standin"]


def run_forked(runs: list[list[str]], work_dir: Path, script: Path = SCRIPT) -> None:
    """Run a script under the stand-in, once for each list of arguments."""

    def launch(command: list[str], environments: list[dict[str, str]]) -> None:
        Forks(command, environments).wait()

    run(COMMAND[1:], runs, str(work_dir), script, launch)


NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def check_results(work_dir: Path, want: dict[str, Any], absolute: float = 2e-5) -> None:
    """Compare a script's files and output with the results under real mmcv."""
    found = json.loads(json.dumps(results(str(work_dir))))
    for ours, theirs in zip(found["notes"], want["notes"], strict=True):
        for key in ("at", "of", "lr", "momentum", "training"):  # plain Python: to the last bit
            assert ours[key] == theirs[key], (theirs["at"], key)
    assert_close(found["notes"], want["notes"], rel=5e-6, absolute=1e-6)
    assert found["latest"] == want["latest"]
    assert_close(found["files"], want["files"], rel=5e-6, absolute=1e-6)
    assert_close(found["json"], want["json"], rel=5e-6, absolute=absolute)
    assert [NUMBER.sub("x", line) for line in found["log"]] == [
        NUMBER.sub("x", line) for line in want["log"]
    ]
    numbers = [[float(n) for line in log for n in NUMBER.findall(line)]
               for log in (found["log"], want["log"])]  # fmt: skip
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-4)
