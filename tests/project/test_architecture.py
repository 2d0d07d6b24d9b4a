"""docs/architecture.md shows the folders that there are, and the walks as they are measured."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import lightning_hooks
from support.paths import ROOT
from support.walks import Walk, mlflow, old_hook, rate, save, text_log

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
CONSOLE = "utils/default_logger.py"
PACKAGE = Path(lightning_hooks.__file__).parent


def test_the_tree_names_every_folder() -> None:
    shown = set(re.findall(r"(?<= )(\w+)/", BLOCKS[0]))
    folders = {path.parent.name for path in PACKAGE.rglob("*.py")} - {PACKAGE.name}
    assert shown == folders


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="comprehensions are no calls from 3.12 on")
@pytest.mark.parametrize("walk", [text_log, mlflow, rate, old_hook, save])
def test_the_walks_are_those_of_a_real_fit(walk: Callable[[Path], Walk], tmp_path: Path) -> None:
    lists = [block.split() for block in BLOCKS if block.split()[0].endswith(".py")]
    # its handler writes to the console where pytest does not replace it
    assert without(CONSOLE, walk(tmp_path).visits) in [without(CONSOLE, shown) for shown in lists]


def without(file: str, files: list[str]) -> list[str]:
    return [name for name in files if name != file]
