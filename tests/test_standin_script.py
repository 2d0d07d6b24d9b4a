"""An old training script, unchanged, does under the stand-in what it did under real mmcv."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from record_old_script import SCRIPT, results, run

GOLDEN = json.loads((Path(__file__).parent / "golden" / "old_script.json").read_text())["cases"]
COMMAND = [sys.executable, "-m", "lightning_hooks.standin"]
NUMBER = re.compile(r"-?\d+\.\d+(?:e-?\d+)?")


def assert_close(ours: Any, theirs: Any, rel: float = 5e-6, absolute: float = 1e-6) -> None:
    """Compare nested values: floats nearly, for kernels differ between machines; else exactly."""
    if isinstance(theirs, dict):
        assert set(ours) == set(theirs)
        for key in theirs:
            assert_close(ours[key], theirs[key], rel, absolute)
    elif isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_close(one, other, rel, absolute)
    elif isinstance(theirs, float):
        assert ours == pytest.approx(theirs, rel=rel, abs=absolute)
    else:
        assert ours == theirs


def check_results(work_dir: Path, want: dict[str, Any], absolute: float = 2e-5) -> None:
    """Compare what a script has left behind with what it left under real mmcv."""
    found = json.loads(json.dumps(results(str(work_dir))))
    for ours, theirs in zip(found["notes"], want["notes"], strict=True):
        for key in ("at", "of", "lr", "momentum", "training"):  # plain Python: to the last bit
            assert ours[key] == theirs[key], (theirs["at"], key)
    assert_close(found["notes"], want["notes"])
    assert found["latest"] == want["latest"]
    assert_close(found["files"], want["files"])
    assert_close(found["json"], want["json"], absolute=absolute)
    assert [NUMBER.sub("x", line) for line in found["log"]] == [
        NUMBER.sub("x", line) for line in want["log"]
    ]
    numbers = [[float(n) for line in log for n in NUMBER.findall(line)]
               for log in (found["log"], want["log"])]  # fmt: skip
    assert numbers[0] == pytest.approx(numbers[1], abs=2e-4)


SLOW = (
    "epoch_two_loaders",
    "epoch_two_processes_resumed",
    "iter_resumed",
    "iter_two_processes",
    "iter_two_processes_resumed",
    "iter_val_resumed",
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else []) for case in GOLDEN],
)
def test_the_script_does_what_it_did(case: str, tmp_path: Path) -> None:
    want = GOLDEN[case]
    run(COMMAND, want["runs"], str(tmp_path))
    check_results(tmp_path, want)


def test_a_script_that_is_not_there_is_said() -> None:
    done = subprocess.run([*COMMAND, "no_such.py"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "there is no script 'no_such.py'" in done.stderr


def test_the_script_gets_its_arguments_and_finds_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("VALUE = 7\n")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, neighbour, mmcv\n"
        "print(__name__, sys.argv[1:], neighbour.VALUE, mmcv.__version__)\n"
    )
    done = subprocess.run(
        [*COMMAND, str(script), "--lr", "0.1"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("__main__ ['--lr', '0.1'] 7 1.7.2")


def test_the_script_knows_nothing_of_us() -> None:
    assert "lightning" not in re.sub(r'^""".*?"""', "", SCRIPT.read_text(), flags=re.DOTALL)
