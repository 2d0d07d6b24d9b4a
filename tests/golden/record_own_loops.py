"""Record what runners with a loop of their own do under real mmcv."""

import tempfile
from pathlib import Path
from typing import Any

import oracle
import own_loops

assert oracle.mmcv_runner.EpochBasedRunner is own_loops.EpochBasedRunner


def record() -> dict[str, Any]:
    """Record all cases."""
    cases = {}
    for case in own_loops.CASES:
        with tempfile.TemporaryDirectory() as folder:
            cases[case] = own_loops.run(case, Path(folder))
    return {"cases": cases}
