"""Sphinx extension: the page of departures from mmcv, from the notes of the docstrings."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning_hooks

PACKAGE = Path(lightning_hooks.__file__).parent
ROOMS = {
    "The run": ("engine", "config", "utils"),
    "Hooks": ("hooks", "schedules"),
    "Loggers": ("loggers",),
    "The stand-in": ("standin",),
    "Hooks of other libraries": ("dialects",),
}


def notes(room: str) -> Iterator[tuple[str, str]]:
    """Yield the classes and functions of a folder that depart, with what their notes say."""
    for path in sorted((PACKAGE / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                text = ast.get_docstring(node) or ""
                found = re.search(
                    r"^ +Departures? from [^:]+: (.*?)(?=\n\S|\n\n|\Z)", text, re.M | re.S
                )
                if found:
                    yield node.name, markdown(found[1])


def markdown(text: str) -> str:
    """Return a sentence of a docstring in Markdown."""
    plain = re.sub(r":\w+:`~?(?:\w+\.)*(\w+)`", r"``\1``", " ".join(text.split()))
    return plain.replace("``", "`")


def sections() -> str:
    """Return the page's lists."""
    return "\n\n".join(
        "\n".join(
            [f"## {title}\n", *(f"- `{name}`: {text}" for r in rooms for name, text in notes(r))]
        )
        for title, rooms in ROOMS.items()
    )


def add(app: Any, docname: str, source: list[str]) -> None:
    """Put the lists in the place of the page's mark."""
    if "% departures" in source[0]:  # the search through all files of the package takes seconds
        source[0] = source[0].replace("% departures", sections())


def setup(app: Any) -> dict[str, bool]:
    """Connect them."""
    app.connect("source-read", add)
    return {"parallel_read_safe": True}
