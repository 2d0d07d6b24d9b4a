"""Update the numbers in README.md's tables; ``make bench`` ends with this.

The first cells identify a row of README: two for docs/results/goals.md, one for the first table
in docs/torture.md. README selects the rows; their numbers come from these pages.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["renewed"]

ROOT = Path(__file__).parents[1]


def renewed(readme: str, goals: str, torture: str) -> str:
    """Return README with the numbers of the two pages."""
    rows = [cells(line, "|") for line in goals.splitlines() if line.startswith("| ")]
    found = {tuple(row[:2]): row[:4] for row in rows}
    found |= {tuple(row[:1]): row for row in boxed(torture)}
    lines = readme.splitlines()
    for i, line in enumerate(lines):
        own = cells(line, "|") if line.startswith("| ") else []
        row = found.get(tuple(own[:2])) or found.get(tuple(own[:1]))
        if row:
            lines[i] = f"| {' | '.join(row)} |"
    return "\n".join(lines) + "\n"


def boxed(page: str) -> list[list[str]]:
    """Return the rows of a page's first box-drawn table; a cell can continue on the next line."""
    table = re.search(r"^┡[^\n]*\n(.*?)^└", page, re.MULTILINE | re.DOTALL)
    rows: list[list[str]] = []
    for line in table[1].splitlines() if table else []:
        row = cells(line, "│")
        if rows and not any(row[1:]):
            rows[-1][0] += f" {row[0]}"
        else:
            rows.append(row)
    return rows


def cells(line: str, edge: str) -> list[str]:
    """Return the cells of a line."""
    return [cell.strip() for cell in line.strip(edge).split(edge)]


def main() -> None:
    """Update README.md."""
    path = ROOT / "README.md"
    pages = [ROOT / "docs" / "results" / "goals.md", ROOT / "docs" / "torture.md"]
    texts = [page.read_text(encoding="utf-8") for page in (path, *pages)]
    path.write_text(renewed(*texts), encoding="utf-8")


if __name__ == "__main__":
    main()
