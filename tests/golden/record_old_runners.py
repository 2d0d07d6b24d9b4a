"""Record the behavior of real packages' runners under real mmcv; the packages come from PyPI."""

from typing import Any

import record_old_code


def record() -> dict[str, Any]:
    """Record every case."""
    return {"cases": record_old_code.run("mmcv", job="run_runners.py")}
