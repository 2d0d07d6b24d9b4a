"""What W&B's page shows of a run: config, axis, console, and one folder for a fit and its tests."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import Hook, WandbLoggerHook
from support.logs.trackers import Talk, Tuned, exit_code, fit, history, read_wandb
from support.paths import ROOT
from support.training import TinyModule, make_loader, make_trainer

wandb = pytest.importorskip("wandb")
pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the client's own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


def config_in(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The config that the records of a run add up to."""
    config: dict[str, Any] = {}
    for record in records:
        config |= record.get("config", {}).get("update", {})
    return config


def test_the_config_is_nested_as_the_users(work: Path) -> None:
    aug = {"crop": 32, "scales": (0.5, 2.0), "kind": dict}
    hook = WandbLoggerHook({"config": {"seed": 3}}, log_artifact=False)
    fit(work, hook, module=Tuned(0.2, {"aug": aug}), epochs=1)
    config = config_in(read_wandb(work))
    config.pop("_wandb", None)
    found = {**aug, "scales": [0.5, 2.0], "kind": "<class 'dict'>"}
    assert config == {"lr": 0.2, "data": {"aug": found}, "seed": 3}


def test_the_axis_is_lightnings(work: Path) -> None:
    fit(work, WandbLoggerHook(interval=2, log_artifact=False), epochs=1)
    records = read_wandb(work)
    axes = [record["metric"] for record in records if record["type"] == "metric"]
    (every,) = [metric for metric in axes if metric.get("glob_name") == "*"]
    assert every["step_metric"] == "trainer/global_step"
    assert every["options"]["step_sync"]
    rows = [record["history"]["item"] for record in records if record["type"] == "history"]
    assert [row["trainer/global_step"] for row in rows] == [2, 4, 5]
    assert [row["_step"] for row in rows] == [2, 4, 5]


class Patient(Hook):
    """Trains once the run has begun."""

    def __init__(self, tracker: WandbLoggerHook) -> None:
        self.tracker = tracker

    def before_train_epoch(self, runner: Any) -> None:
        while self.tracker.client_run is None:
            time.sleep(0.02)


@pytest.mark.parametrize("console", ["", "off"])
def test_the_console_is_kept_unless_it_is_turned_off(
    work: Path, console: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = {"settings": {"console": console}} if console else {}
    hook = WandbLoggerHook(chosen, log_artifact=False)
    fit(work, hook, Patient(hook), Talk(), epochs=1)
    read_wandb(work)  # ends the run
    kept = [path.read_text() for path in work.glob("wandb/offline-run-*/files/output.log")]
    assert ("a line for the console" in "".join(kept)) == (not console)


def test_a_fit_and_its_tests_have_one_folder(tmp_path: Path) -> None:
    hook = WandbLoggerHook({"dir": str(tmp_path)}, interval=2, log_artifact=False)
    trainer = make_trainer(tmp_path, hook)
    module = Evaluated()
    trainer.fit(module, make_loader(), make_loader(2))
    trainer.validate(module, make_loader(2), verbose=False)
    trainer.test(module, make_loader(2), verbose=False)
    records = read_wandb(tmp_path)  # of the only folder
    assert {"train/loss", "val/val_loss", "test/acc"} <= set().union(*history(records).values())
    rows = [record["history"]["item"] for record in records if record["type"] == "history"]
    assert [row["trainer/global_step"] for row in rows] == [2, 4, 5, 5, 5]


class Evaluated(TinyModule):
    """Logs in tests too."""

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", 0.5)


def test_a_second_fit_is_a_run_of_its_own(work: Path) -> None:
    hook = WandbLoggerHook(interval=2, log_artifact=False)
    fit(work, hook, epochs=1)
    first = wandb.run
    fit(work, hook, epochs=1)
    assert wandb.run.id != first.id
    assert len({path.name for path in work.glob("wandb/offline-run-*/run-*.wandb")}) == 2


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lightning_hooks import WandbLoggerHook
from support.logs.trackers import fit
fit(Path(sys.argv[2]), WandbLoggerHook(log_artifact=False), epochs=1)
"""


@pytest.mark.slow
def test_the_end_of_the_process_ends_the_run(work: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, str(ROOT / "tests"), str(work)]
    subprocess.run(command, check=True, timeout=300, stdout=subprocess.DEVNULL)
    records = read_wandb(work)
    assert exit_code(records) == 0
    assert len(history(records)) == 2
