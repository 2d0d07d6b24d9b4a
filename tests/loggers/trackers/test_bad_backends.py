"""Every tracker's real client, spoiled: the training ends, and nothing that it logged is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.loggers.delivery.spool import read_spool
from support.logs.trackers import (
    history,
    points,
    read_clearml,
    read_dvclive,
    read_neptune,
    read_tensorboard,
    read_visdom_log,
    read_wandb,
    series,
)
from support.processes import environment

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_elsewhere")]
PACKAGES = ("clearml", "dvclive", "mlflow", "neptune", "tensorboard", "visdom", "wandb")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of the job, in a process of its own that has ended by itself, and its report."""
    for package in PACKAGES:
        pytest.importorskip(package)
    root = tmp_path_factory.mktemp("bad")
    command = [sys.executable, "-m", "support.torture.bad_backends_job", str(root)]
    subprocess.run(command, cwd=root, env=environment(), check=True, timeout=550)
    return root, json.loads((root / "found.json").read_text())


def about(package: str, lines: list[str]) -> list[str]:
    return [line for line in lines if f"{package}loggerhook: " in line.lower()]


@pytest.mark.parametrize(
    ("trouble", "told", "taken"),
    [
        ("start", "cannot be started (ConnectionError: dead)", 0),
        ("write", "cannot be written to (ConnectionError: dead)", 1),
        ("hang", "it does not answer", 1),
    ],
)
def test_what_no_backend_has_taken_is_in_its_spool(
    trouble: str, told: str, taken: int, job: tuple[Path, dict[str, Any]]
) -> None:
    root, found = job[0], job[1][trouble]
    assert found["steps"] == 4
    for package in PACKAGES:
        lines = about(package, found["told"])
        assert any(told in line for line in lines), package
        assert sum(line.startswith("WARNING") for line in lines) == 1, lines
        assert found["sent"][package] == taken
        (path,) = (root / trouble).glob(f"spool/*-{package}.jsonl")
        rows: dict[str, dict[str, float]] = {}
        for record in read_spool(str(path))[1]:
            rows.setdefault(str(record.step), {}).update(record.scalars)
        assert rows == found["rows"]


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        ("close", "cannot be closed (ConnectionError: dead)"),
        ("full", "kept in memory until it is sent"),
    ],
)
def test_all_backends_have_all_in_spite_of_it(
    trouble: str, told: str, job: tuple[Path, dict[str, Any]]
) -> None:
    root, found = job[0] / trouble, job[1][trouble]
    assert found["steps"] == 4
    for package in PACKAGES:
        lines = about(package, found["told"])
        assert any(told in line for line in lines), package
        assert sum(line.startswith("WARNING") for line in lines) == 1, lines
    rows = {int(step): row for step, row in found["rows"].items()}
    assert read_clearml(root / "clearml") == rows
    assert read_dvclive(root / "dvclive") == rows
    assert points(root / "mlflow.db") == rows
    assert series(read_neptune(root)) == rows
    assert read_visdom_log(root / "visdom") == rows
    drawn, _ = read_tensorboard(root / "tf_logs")
    assert drawn.keys() == rows.keys()
    assert all(drawn[step] == pytest.approx(rows[step], rel=1e-6) for step in rows)
    assert history(read_wandb(root)) == rows
    assert not (root / "spool").exists()
