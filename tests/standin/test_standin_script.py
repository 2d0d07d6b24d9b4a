"""An unchanged training script has the same results under the stand-in as under real mmcv."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from record_old_script import SCRIPT

from lightning_hooks.standin.__main__ import main
from support.golden import recorded
from support.processes import run_python
from support.standin import COMMAND, check_results, needs_lite, run_forked

GOLDEN = recorded("old_script")["cases"]


SLOW = (
    "epoch_two_loaders",
    "epoch_two_processes",
    "epoch_two_processes_resumed",
    "iter_resumed",
    "iter_two_processes",
    "iter_two_processes_resumed",
    "iter_val_resumed",
)


@needs_lite
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in GOLDEN],
)
def test_the_script_equals_mmcv(case: str, tmp_path: Path) -> None:
    want = GOLDEN[case]
    run_forked(want["runs"], tmp_path)
    check_results(tmp_path, want)


def test_a_missing_script_is_an_error() -> None:
    with pytest.raises(SystemExit, match=r"there is no script 'no_such\.py'"):
        main(["no_such.py"])


def test_the_script_gets_its_arguments_and_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, neighbour, mmcv\n"
        "print(__name__, sys.argv[1:], neighbour.VALUE, mmcv.__version__)\n"
    )
    printed = run_python(*COMMAND[1:], script, "--lr", "0.1")
    assert printed.strip().endswith("__main__ ['--lr', '0.1'] 7 1.7.2")


def test_the_script_has_no_line_about_lightning() -> None:
    assert "lightning" not in re.sub(r'^""".*?"""', "", SCRIPT.read_text(), flags=re.DOTALL)
