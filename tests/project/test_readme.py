"""The code in README.md runs and prints the shown output."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import lightning as L
import pytest

import lightning_hooks
from lightning_hooks import standin
from support.paths import ROOT
from support.shown import without_numbers
from support.training import TinyModule, make_loader

PACKAGE = Path(lightning_hooks.__file__).parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {
        "L": L,
        "module": TinyModule(),
        "train_loader": make_loader(4),
        "val_loader": make_loader(2),
    }
    with standin.installed():
        exec(compile(code, "README.md", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _quiet_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the tests' default arguments for every Trainer on the page."""
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_model_summary": False}
    quiet |= {"accelerator": "cpu", "enable_progress_bar": False, "default_root_dir": tmp_path}
    for name, value in quiet.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))


def test_the_first_script_trains_and_ends_with_the_lines_below_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    names = run(next(code for kind, code in BLOCKS if kind == "python"))
    assert names["trainer"].callback_metrics["accuracy"] > 0.95
    shown = next(code for kind, code in BLOCKS if kind == "none")
    given = "\n".join(caplog.messages).replace(str(tmp_path), "/home/me/run")
    assert without_numbers(shown) <= without_numbers(given)
    files = {path.name for path in tmp_path.glob("*.pth")}
    assert files >= {"epoch_7.pth", "epoch_8.pth"}
    assert len(files) == 4  # the best, and latest.pth


def test_python_blocks_print_the_text_below_them(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        (code, text)
        for (kind, code), (next_kind, text) in itertools.pairwise(BLOCKS)
        if (kind, next_kind) == ("python", "text")
    ]
    assert found
    for code, text in found:
        capsys.readouterr()
        run(code)
        assert capsys.readouterr().out == text


def test_it_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 120


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists() or (PACKAGE.parent / target).exists(), target


def test_its_ratios_are_those_of_the_benches() -> None:
    goals = (ROOT / "docs" / "results" / "goals.md").read_text(encoding="utf-8")
    rows = [[cell.strip() for cell in line.split("|")] for line in goals.splitlines()[2:] if line]
    found = {(row[2], f"{float(row[3]):.2f}", row[6]) for row in rows if len(row) == 8}
    (steps,) = re.findall(r"a training step takes (\S+ to \S+) of", README)
    for claim, of in {
        r"an update takes (\S+) of the time of Lightning's": "Lightning EMAWeightAveraging",
        r"`DataLoader`, which then takes (\S+) of its time": "a DataLoader",
        r"of an adapter it takes (\S+) of the memory without": "none",
        r"of 200 groups takes (\S+) of the time of mmcv's": "mmcv",
        r"a step takes (\S+) of the time without norms": "a text log",
        r"five values take (\S+) of the time of Lightning's": "MLFlowLogger",
    }.items():
        (ratio,) = re.findall(claim, README)
        assert (of, ratio, "yes") in found
    own = [row for row in rows if row[1:2] and row[1].startswith("a step of ")]
    ratios = sorted(row[3] for row in own if row[2] == "Lightning with its own callbacks")
    assert steps == f"{float(ratios[0]):.2f} to {float(ratios[-1]):.2f}"


def test_its_kills_are_those_of_the_torture() -> None:
    page = (ROOT / "docs" / "results" / "torture.md").read_text(encoding="utf-8")
    killed = page.partition("### SIGKILL")[2].partition("### ")[0]
    rows = re.findall(r"^\| [a-z].*?\| (\d+) \| (\d+) \| \d+ \| (\d+) \| (\d+) \|$", killed, re.M)
    kills, in_a_write, losses, equal = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert f"{kills} kills, {in_a_write} of them during a write, cost no file" in README
    assert f"bit for bit: {equal} of {equal}" in README
    assert losses == 0
