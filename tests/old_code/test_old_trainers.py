"""Real projects of the mmcv 1.x era train, resume and test unchanged.

``make old-code`` installs the projects from PyPI, draws tiny datasets, and runs each project's
``tools/train.py`` and ``tools/test.py`` with the project's configs, under real mmcv 1.7.2 and under
the stand-in. Log rows, files, checkpoints and results must be equal. The results are not recorded,
because another processor rounds differently and the training diverges after eight steps.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from old_trainers import (
    PYTHONS,
    SITE,
    TRAINERS,
    install_packages,
    lay_out,
    run,
    script_rows,
    training,
)
from trainers.projects import PROJECTS

from support.differences import differences
from support.paths import ROOT
from support.pypi import skipped_without_pypi

needs_mmcv = pytest.mark.skipif(
    not PYTHONS["mmcv"].exists(), reason="needs real mmcv: make old-code installs it"
)


@pytest.mark.slow
@needs_mmcv
@pytest.mark.parametrize("name", PROJECTS)
def test_a_project_trains_resumes_and_tests_as_under_mmcv(name: str) -> None:
    with skipped_without_pypi():
        install_packages()
    theirs = run(name, "mmcv")  # the stand-in resumes from some of real mmcv's files
    assert differences(run(name, "standin"), theirs) == []


CONVERTED = {"mmcls": 2, "mmdet": 2, "mmseg": 8}
"""The projects with a script by ``convert --to script``, and the length of each run."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CONVERTED)
def test_a_converted_script_trains_as_the_old_one(name: str, tmp_path: Path) -> None:
    with skipped_without_pypi():
        install_packages()
    # an evaluation within the run would draw random numbers of mmcv's run alone
    rows = script_rows(name, tmp_path, f"evaluation.update(interval={CONVERTED[name]})")
    assert rows["converted"] == rows["old"]
    assert any(row["mode"] == "val" for row in rows["old"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mmcls", "mmseg"])
def test_check_runs_a_script_until_its_first_batch(name: str, tmp_path: Path) -> None:
    with skipped_without_pypi():
        install_packages()
    python = lay_out(name, tmp_path)
    script, *arguments = training(name, "work")
    command = ["-m", "lightning_hooks", "check", script, "--json", "--run", *arguments]
    report = json.loads(python(*command))
    assert report["verdict"] == "trains: its first batch was trained"
    assert shlex.split(*report["write"])[-len(arguments) :] == arguments
    assert not [*tmp_path.rglob("*.pth")]


REPOSITORY = """
import sys, pathlib
sys.path.insert(0, {trainers!r})
from draw import DATA
DATA["classes"](pathlib.Path("data"))
"""


def make_repository(folder: Path) -> None:
    """Create a folder with mmcls's repository layout, a test config, and data."""
    package = SITE / "mmcls"
    shutil.copytree(package / ".mim", folder)
    shutil.copytree(package, folder / "mmcls", ignore=shutil.ignore_patterns(".mim"))
    ours = (TRAINERS / "configs" / "mmcls.py").read_text()
    base = "_base_ = './resnet/resnet18_8xb16_cifar10.py'\n"
    (folder / "configs" / "x.py").write_text(base + ours)
    drawing = REPOSITORY.format(trainers=str(TRAINERS))
    subprocess.run([sys.executable, "-c", drawing], cwd=folder, check=True)


@pytest.mark.slow
def test_the_five_minutes_of_the_guide(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "coming" / "mmcv.md").read_text(encoding="utf-8")
    shell = guide.partition("five minutes\n\n```sh\n")[2].partition("```")[0]
    installing, *commands = shell.splitlines()
    assert installing.startswith("pip install")
    with skipped_without_pypi():
        install_packages()
    project = tmp_path / "my_project"
    make_repository(project)
    path = [project, TRAINERS / "habits", SITE, ROOT]
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(map(str, path)),
        "PYTHONWARNINGS": "ignore",
        "OLD_SIDE": "standin",
        "CUDA_VISIBLE_DEVICES": "",
    }
    ended = subprocess.run(
        ["sh", "-c", "\n".join(commands)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert "\nverdict: trains" in ended.stdout
    assert {"epoch_1.pth", "epoch_2.pth"} <= {path.name for path in (project / "work").iterdir()}
    assert "resumed epoch 1" in ended.stderr + ended.stdout
    assert (project / "result.pkl").is_file()
