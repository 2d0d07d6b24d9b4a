"""What a page of the documentation shows as the output of a run, but for its numbers."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["shown_on", "without_numbers"]


def without_numbers(lines: str) -> set[str]:
    """Return the lines with a 0 for each number, and one blank for several."""
    return {re.sub(r"\d+", "0", " ".join(line.split())) for line in lines.splitlines()}


def shown_on(page: Path) -> set[str]:
    """Return the lines of the blocks that a page shows as output."""
    blocks = re.findall(r"^```none\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return without_numbers("".join(blocks))
