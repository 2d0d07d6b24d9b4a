"""Brings the numbers of README.md's tables up to date; ``make bench`` ends with it.

A row of README's is told by its first cells: two of docs/results/goals.md, one of the first table
in docs/torture.md. Which rows there are is README's choice; what they say is not.
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
    """Return the rows of a page's first table that is drawn with boxes; a cell may go on below."""
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
    """Return what stands between the edges."""
    return [cell.strip() for cell in line.strip(edge).split(edge)]


def main() -> None:
    """Write README anew."""
    path = ROOT / "README.md"
    pages = [ROOT / "docs" / "results" / "goals.md", ROOT / "docs" / "torture.md"]
    texts = [page.read_text(encoding="utf-8") for page in (path, *pages)]
    path.write_text(renewed(*texts), encoding="utf-8")


if __name__ == "__main__":
    main()
