"""Sharded gradients are clipped by the norm of the whole, as unsharded ones are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import TinyModule
from torch.nn.utils import clip_grad_norm_

HERE = Path(__file__).parent


def by_hand(ranks: list[Any]) -> tuple[list[float], torch.Tensor]:
    """Train on the batches of both ranks, whose gradients are averaged."""
    module, norms = TinyModule(), []
    optimizer = module.configure_optimizers()
    for batches in zip(*[rank["batches"] for rank in ranks], strict=True):
        optimizer.zero_grad()
        for batch in batches:
            (module.loss([torch.tensor(part) for part in batch]) / 2).backward()
        norms.append(float(clip_grad_norm_(module.parameters(), 0.1)))
        optimizer.step()
    return norms, module.net.weight


def test_departure_sharded_gradients_are_clipped_by_their_whole_norm(tmp_path: Path) -> None:
    paths = [str(HERE.parent), str(HERE), str(HERE / "golden")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
    script = [sys.executable, str(HERE / "clip_job.py"), str(tmp_path)]
    done = subprocess.run(script, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-3000:]
    ranks = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in (0, 1)]
    norms, weight = by_hand(ranks)
    assert len(norms) == 2
    assert min(norms) > 0.1
    for found in ranks:
        assert found["kinds"] == ["Tensor"]
        assert found["norms"] == pytest.approx(norms, rel=1e-5)
        torch.testing.assert_close(torch.tensor(found["weight"]), weight.detach())
