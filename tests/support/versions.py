"""Add a row to the table of tested releases in docs/install.md, as run by ``.ci/versions``."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

__all__ = ["PACKAGES", "counts", "with_row"]

PACKAGES = (
    *("torch", "lightning", "torchmetrics", "numpy"),
    *("wandb", "mlflow", "tensorboard", "neptune", "dvclive", "clearml"),
)
"""The packages of the table's columns."""


def counts(junit: str) -> str:
    """Return how many tests have passed, failed and been skipped, from pytest's XML.

    >>> counts('<all><testsuite tests="9" failures="1" errors="1" skipped="2"/></all>')
    '5 passed, 2 failed, 2 skipped'
    """
    suite = next(ET.fromstring(junit).iter("testsuite"))
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    failed = number["failures"] + number["errors"]
    passed = number["tests"] - failed - number["skipped"]
    return f"{passed} passed, {failed} failed, {number['skipped']} skipped"


def with_row(page: str, age: str, row: list[str]) -> str:
    """Return a page with another row for an age in the table of tried releases.

    >>> print(with_row("| tried | torch |\\n|---|---|\\n| oldest | 1 |", "oldest", ["2"]))
    | tried | torch |
    |---|---|
    | oldest | 2 |
    """
    return re.sub(rf"(?m)^\| {age} \|.*$", "| " + " | ".join([age, *row]) + " |", page)


def main(age: str, junit: str, page: str) -> None:
    """Write the row of an age into a page."""
    tried = [importlib.metadata.version(name).partition("+")[0] for name in PACKAGES]
    row = [platform.python_version(), *tried, datetime.date.today().isoformat()]
    row.append(counts(Path(junit).read_text(encoding="utf-8")))
    path = Path(page)
    path.write_text(with_row(path.read_text(encoding="utf-8"), age, row), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
