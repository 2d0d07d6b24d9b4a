"""Record the behavior of MMEngine, mmdet 3.x, detectron2 and fvcore, downloaded from PyPI."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SISTERS = HERE.parent / "sister_code"
DOWNLOADS = HERE.parents[1] / ".old_code" / "sisters"


def run(which: str) -> dict[str, Any]:
    """Run all hooks in a subprocess; return the results."""
    sys.path[:0] = [str(SISTERS), str(HERE.parent / "old_code")]
    from sister_packages import fetch

    fetch(DOWNLOADS)
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "out.json"
        job = [str(SISTERS / "run_sisters.py"), which, str(DOWNLOADS), str(out)]
        subprocess.run(
            [sys.executable, "-W", "ignore", *job],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            check=True,
            timeout=500,
            capture_output=True,
        )
        found: dict[str, Any] = json.loads(out.read_text())
        return found


def record() -> dict[str, Any]:
    """Record every case."""
    cases = run("library")
    errors = {name: case["error"] for name, case in cases.items() if "error" in case}
    if errors:
        raise RuntimeError(f"not recorded: {errors}")
    return {"cases": cases}
