"""Record the behavior of real packages' hooks under real mmcv; the packages come from PyPI."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OLD_CODE = HERE.parent / "old_code"
DOWNLOADS = HERE.parents[1] / ".old_code"


def run(which: str, *cases: str, job: str = "run_hooks.py") -> dict[str, Any]:
    """Run all or some cases of a job in a subprocess; return the results."""
    sys.path.insert(0, str(OLD_CODE))
    from packages import fetch

    fetch(DOWNLOADS, {case.partition(".")[0] for case in cases})
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.json"
        command = [str(OLD_CODE / job), which, str(DOWNLOADS / "src"), str(out), *cases]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        ended = subprocess.run(
            [sys.executable, "-W", "ignore", *command],
            env=environment,
            timeout=500,
            capture_output=True,
            text=True,
        )
        if ended.returncode:
            raise RuntimeError(f"{job} ended with {ended.returncode}:\n{ended.stderr}")
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def record() -> dict[str, Any]:
    """Record every case."""
    return {"cases": run("mmcv")}
