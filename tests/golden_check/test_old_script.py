"""An old training script under real mmcv and under the stand-in, equal bit for bit.

Run by ``make golden-check`` in the oracle environment, on one and on two processes.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from record_old_project import CASES as PROJECT
from record_old_project import TRAIN
from record_old_script import CASES, results, run

RUN_SCRIPT = Path(__file__).parents[1] / "golden" / "run_script.py"
MORE = {
    "epoch_val_every_2": [["--limit", "5", "--workflow", "[('train', 2), ('val', 1)]"]],
    "epoch_cumulative": [["--limit", "5", "--cumulative", "3"]],
    "iter_two_loaders": [
        shlex.split(
            "--runner iter --limit 13 --ema --cumulative 2 --wrapped "
            "--workflow \"[('train', 3), ('train', 2), ('val', 2)]\""
        )
    ],
}


def command(which: str) -> list[str]:
    return [sys.executable, "-W", "ignore", str(RUN_SCRIPT), which]


def assert_equal_files(ours: Path, theirs: Path) -> None:
    names = {path.name for path in theirs.glob("*.pth")}
    assert names == {path.name for path in ours.glob("*.pth")}
    for name in names:
        one, other = (torch.load(d / name, weights_only=False) for d in (ours, theirs))
        for key, value in other["state_dict"].items():
            assert torch.equal(one["state_dict"][key], value), (name, key)
        for index, state in other["optimizer"]["state"].items():
            for key, value in state.items():
                mine: Any = one["optimizer"]["state"][index][key]
                assert torch.equal(torch.as_tensor(mine), torch.as_tensor(value)), (name, key)


@pytest.mark.parametrize("case", [*CASES, *MORE])
def test_equal_bit_for_bit(case: str, tmp_path: Path) -> None:
    runs = {**CASES, **MORE}[case]
    for which in ("mmcv", "standin"):
        run(command(which), runs, str(tmp_path / which))
    ours, theirs = (results(str(tmp_path / which)) for which in ("standin", "mmcv"))
    assert ours == theirs
    assert_equal_files(tmp_path / "standin", tmp_path / "mmcv")


@pytest.mark.parametrize("case", PROJECT)
def test_a_project_too(case: str, tmp_path: Path) -> None:
    runs = [shlex.split(line) for line in PROJECT[case]]
    for which in ("mmcv", "standin"):
        run(command(which), runs, str(tmp_path / which), TRAIN)
    ours, theirs = (results(str(tmp_path / which)) for which in ("standin", "mmcv"))
    assert ours == theirs
