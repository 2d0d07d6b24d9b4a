"""Every public name of the utilities gives real mmcv's results; see utilities.py."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from utilities import walk

HERE = Path(__file__).parent
LITE = Path(os.environ.get("MMCV_LITE", HERE.parents[1] / ".oracle" / "lite"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the results with the stand-in, and with real mmcv."""
    assert (LITE / "mmcv").is_dir(), f"pip install --no-deps --target {LITE} mmcv-lite==2.2.0"
    runs = {tmp_path_factory.mktemp("ours"): [str(LITE)], tmp_path_factory.mktemp("theirs"): []}
    command = [sys.executable, str(HERE / "utilities.py"), "results"]
    path = os.pathsep.join([str(HERE), *(p for p in map(os.path.abspath, sys.path) if p)])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen([*command, *lite], cwd=folder, env=environment, stderr=subprocess.PIPE)
        for folder, lite in runs.items()
    ]
    errors = [process.communicate()[1].decode() for process in processes]
    assert not any(process.returncode for process in processes), errors
    return [pickle.loads((folder / "results").read_bytes()) for folder in runs]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, (torch.Tensor, np.ndarray)):
        ours, theirs = np.asarray(one), np.asarray(other)
        return ours.dtype == theirs.dtype and np.array_equal(
            ours, theirs, equal_nan=ours.dtype.kind == "f"
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", [*(".".join(found) for found in walk()), "helpers", "configs"])
def test_equal(name: str, both: list[dict[str, Any]]) -> None:
    ours, theirs = (results[name] for results in both)
    assert [given for given, _ in ours] == [given for given, _ in theirs]
    for (given, mine), (_, wanted) in zip(ours, theirs, strict=True):
        assert same(mine, wanted), (given, mine, wanted)
    if not name.startswith("mmcv.video.processing."):  # without ffmpeg
        assert any(not isinstance(mine, str) for _, mine in ours), "errors only"
