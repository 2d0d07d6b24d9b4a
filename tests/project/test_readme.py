"""The code in README.md runs, and prints what it says."""

from __future__ import annotations

import importlib
import re
import runpy
from pathlib import Path
from typing import Any

import lightning as L
import pytest

import lightning_hooks
from lightning_hooks import standin
from lightning_hooks.schedules import sample
from support.paths import ROOT
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
    """Give every Trainer of the page the arguments that a test wants."""
    monkeypatch.chdir(tmp_path)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_model_summary": False}
    quiet |= {"accelerator": "cpu", "enable_progress_bar": False, "default_root_dir": tmp_path}
    for name, value in quiet.items():
        monkeypatch.setenv(f"PL_TRAINER_{name.upper()}", str(value))


def test_the_diff_is_a_script_that_runs(tmp_path: Path) -> None:
    (diff,) = [code for kind, code in BLOCKS if kind == "diff"]
    lines = diff.splitlines()
    assert {line[:1] for line in lines} == {" ", "+"}
    names = run("\n".join(line[1:] for line in lines))
    assert list(tmp_path.glob("wandb/offline-run-*"))
    rates = sample(names["schedule"], max_epochs=names["trainer"].max_epochs, iters_per_epoch=100)
    assert max(rates) == pytest.approx(0.1, rel=0.03)  # what it warms up to is the optimizer's
    assert rates[0] == pytest.approx(0.01)
    assert rates[-1] < 1e-5


def test_without_the_added_lines_the_diff_is_plain_lightning() -> None:
    (diff,) = [code for kind, code in BLOCKS if kind == "diff"]
    run("\n".join(line[1:] for line in diff.splitlines() if line.startswith(" ")))


def test_python_blocks_print_what_follows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [kind for kind, _ in BLOCKS]
    ran = 0
    # CheckpointHook is to Lightning what the quiet Trainers have not: a checkpoint callback
    monkeypatch.delenv("PL_TRAINER_ENABLE_CHECKPOINTING")
    for index, (kind, code) in enumerate(BLOCKS):
        if kind == "python":
            capsys.readouterr()
            run(code)
            if kinds[index + 1 : index + 2] == ["text"]:
                assert capsys.readouterr().out == BLOCKS[index + 1][1]
            ran += 1
    assert ran


def test_what_the_table_says_to_write_exists() -> None:
    rows = re.findall(r"^\| .* \| (.*) \|$", README, re.MULTILINE)
    code = " ".join(rows)
    names = set(re.findall(r"\b(?!My)([A-Z]\w+Hook|Hook\w*|TrainStepModule)\b", code))
    assert names
    imports = dict(re.findall(r"from (lightning_hooks\.[\w.]+) import (\w+)", code))
    for module, name in imports.items():
        assert hasattr(importlib.import_module(module), name)
    exported = {*dir(lightning_hooks), *imports.values()}
    assert names <= exported, "in the table, but not exported"


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (ROOT / target).exists() or (PACKAGE.parent / target).exists(), target


def test_the_extras_named_are_those_declared() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    declared = re.findall(r"^(\w+) = \[", project.partition("[project.optional-dependencies]")[2],
                          re.MULTILINE)  # fmt: skip
    listed = README.partition("Extras: ")[2].partition(".")[0]
    named = set(re.findall(r"`(\w+)`", listed))
    assert named == set(declared[: declared.index("all") + 1])


def test_its_tables_have_the_numbers_of_the_pages_that_they_are_from() -> None:
    renewed = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))["renewed"]
    pages = [ROOT / "docs" / "results" / "goals.md", ROOT / "docs" / "torture.md"]
    goals, torture = (page.read_text(encoding="utf-8") for page in pages)
    assert renewed(README, goals, torture) == README
    number = r"[\d.]+ to [\d.]+|(?<=\| )\d+(?= \|)"
    lines = README.splitlines(keepends=True)
    emptied = "".join(re.sub(number, "?", x) if x.startswith("| ") else x for x in lines)
    assert emptied.count("?") > 30
    assert renewed(emptied, goals, torture) == README
