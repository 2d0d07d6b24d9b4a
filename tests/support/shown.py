"""Compare the output shown on a page of the documentation with a run, ignoring numbers."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["shown_on", "without_numbers"]


def without_numbers(lines: str) -> set[str]:
    """Return the lines with each number replaced by 0 and repeated blanks by a single blank."""
    return {re.sub(r"\d+", "0", " ".join(line.split())) for line in lines.splitlines()}


def shown_on(page: Path) -> set[str]:
    """Return the lines of a page's output blocks."""
    blocks = re.findall(r"^```none\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)
    return without_numbers("".join(blocks))
