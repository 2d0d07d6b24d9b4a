"""Record runners with custom loops under real mmcv."""

import json
import tempfile
from pathlib import Path
from typing import Any

import oracle
import own_loops
from torch import multiprocessing

assert oracle.mmcv_runner.EpochBasedRunner is own_loops.EpochBasedRunner


def _on_rank(rank: int, folder: str) -> None:
    """Run on a rank in a process that imports real mmcv with this file."""
    own_loops.run_on_rank(rank, Path(folder))


def record() -> dict[str, Any]:
    """Record all cases."""
    cases = {}
    for case in own_loops.CASES:
        with tempfile.TemporaryDirectory() as folder:
            cases[case] = own_loops.run(case, Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(_on_rank, (folder,), nprocs=own_loops.RANKS)
        files = [Path(folder, f"{rank}.json") for rank in range(own_loops.RANKS)]
        ranks = [json.loads(file.read_text()) for file in files]
    return {"cases": cases, "ranks": ranks}
