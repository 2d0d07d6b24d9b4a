"""Read a run's text logs without times and ETAs, which differ between runs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["read_logs"]

TIMES = ("time", "data_time")


def read_logs(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the rows of all ``<time>.log.json`` in a folder, and the lines of all ``.log``."""
    rows = [
        {key: value for key, value in json.loads(line).items() if key not in TIMES}
        for path in sorted(folder.glob("2*.log.json"))
        for line in path.read_text().splitlines()
    ]
    lines = [
        re.sub(r"(eta|time|data_time): [\d:.dayns, ]+?, ", "", line.partition(" - ")[2])
        for path in sorted(folder.glob("2*.log"))
        for line in path.read_text().splitlines()
    ]
    return rows, lines
