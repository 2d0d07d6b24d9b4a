"""The ways to run of docs/install.md: without asserts and docstrings, from a zip, read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.paths import ROOT

SCRIPT = """
import warnings
from pathlib import Path

from lightning_hooks import *  # every name, so that every module is imported
from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook, OptimizerHook, standin
standin.install()
from mmcv.runner import EpochBasedRunner

warnings.simplefilter("ignore")  # of Lightning and torch in a fit
from support.training import TinyModule, make_loader, make_trainer

hooks = [EMAHook(0.1), CheckpointHook(1), BestCheckpointHook("val_loss"), OptimizerHook()]
trainer = make_trainer(Path.cwd(), *hooks, max_epochs=2, enable_checkpointing=True)
trainer.fit(TinyModule(), make_loader(4), make_loader(1))
print(standin.__file__, sorted(path.name for path in Path.cwd().glob("*.pth")))
"""


def train(work: Path, package: Path, *options: str, before: Sequence[str] = ()) -> str:
    path = os.pathsep.join([str(package), str(ROOT / "tests")])
    run = subprocess.run(
        [*before, sys.executable, *options, "-c", SCRIPT],
        cwd=work,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "'epoch_1.pth', 'epoch_2.pth'" in run.stdout
    return run.stdout


@pytest.mark.slow  # Python has no bytecode of torch without docstrings at hand
def test_hooks_train_without_asserts_and_docstrings(tmp_path: Path) -> None:
    train(tmp_path, ROOT, "-OO")


@pytest.mark.slow
def test_hooks_train_from_a_zip_with_warnings_as_errors(tmp_path: Path) -> None:
    """The zip also proves that the package writes no files next to its modules."""
    with zipfile.ZipFile(tmp_path / "hooks.zip", "w") as file:
        for path in (ROOT / "lightning_hooks").rglob("*"):
            if path.suffix in (".py", ".pyi", ".txt"):
                file.write(path, path.relative_to(ROOT))
    assert "hooks.zip/lightning_hooks" in train(tmp_path, tmp_path / "hooks.zip", "-W", "error")


@pytest.mark.slow
def test_hooks_train_from_a_read_only_folder(tmp_path: Path) -> None:
    site, work = tmp_path / "site", tmp_path / "work"
    without = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "lightning_hooks", site / "lightning_hooks", ignore=without)
    work.mkdir()
    before: list[str] = []
    if os.geteuid() == 0:  # root may write to read-only files
        before = ["setpriv", "--bounding-set", "-dac_override"]
    files = sorted(site.rglob("*"))
    for path in [site, *files]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    touch = [*before, "touch", str(site / "lightning_hooks" / "new")]
    assert subprocess.run(touch, capture_output=True, check=False).returncode != 0
    assert str(site) in train(work, site, before=before)
    assert sorted(site.rglob("*")) == files
    for path in [site, *files]:
        path.chmod(0o755 if path.is_dir() else 0o644)
