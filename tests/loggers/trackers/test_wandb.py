"""Weights & Biases with the real client: the tests read the logged values back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import Hook, WandbLoggerHook
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import StoredSpool
from lightning_hooks.loggers.trackers.wandb import WandbWriter, has_wandb_key
from lightning_hooks.utils.samples import Table
from support.logs.trackers import (
    REAL_CLIENTS,
    Crash,
    Sent,
    Talk,
    Tuned,
    exit_code,
    fit,
    history,
    inspect_wandb,
    read_wandb,
    replay_as_told,
    warnings_in,
)
from support.paths import ROOT
from support.processes import environment
from support.training import TinyModule, make_loader, make_trainer

wandb = pytest.importorskip("wandb")
pytestmark = REAL_CLIENTS
KEEPS_RUNS_OPEN = "x_transaction_log_flush_interval" in wandb.Settings.__annotations__
keeps_runs_open = pytest.mark.skipif(
    not KEEPS_RUNS_OPEN,
    reason="before W&B 0.31 the rows of an open run are not on the disk: the fit ends its run",
)


def test_departure_wandb_is_offline_unless_configured(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WANDB_MODE")
    (work / "config.py").write_text("lr = 0.1")
    sent = Sent(interval=1)
    hook = WandbLoggerHook(
        init_kwargs={"project": "digits", "config": {"seed": 7}},
        interval=1,
        define_metric_cfg={"val/val_loss": "min"},
    )
    fit(work, sent, hook)
    records = read_wandb(work)
    assert history(records) == sent.rows
    assert list(sent.rows) == [*range(1, 10)]
    assert {"val/val_loss", "train/loss"} <= sent.rows[5].keys()  # one row from two lines
    assert exit_code(records) == 0
    text = json.dumps(records)
    assert '"project": "digits"' in text
    assert "config.py" in text  # the artifact
    assert os.listdir() == []


@pytest.mark.slow
def test_wandb_without_step_logs_it_as_a_value(work: Path) -> None:
    sent = Sent(interval=2)
    fit(work, sent, WandbLoggerHook(interval=2, with_step=False, log_artifact=False))
    rows = list(history(read_wandb(work)).values())
    assert rows == [{**row, "global_step": step} for step, row in sent.rows.items()]


def test_a_wandb_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("requests")
    assert not has_wandb_key()
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password secret\n")
    assert has_wandb_key()
    (tmp_path / "netrc").unlink()
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    assert has_wandb_key()


def test_a_failed_training_is_a_failed_wandb_run(work: Path) -> None:
    with pytest.raises(RuntimeError, match="crash"):
        fit(work, WandbLoggerHook(interval=2), Crash())
    records = read_wandb(work)
    assert exit_code(records) == 1
    assert len(history(records)) == 3


def test_an_unknown_summary_is_refused() -> None:
    match = r"define_metric_cfg\['acc'\] must be one of min, .*, got 'median'"
    with pytest.raises(ValueError, match=match):
        WandbLoggerHook(define_metric_cfg={"acc": "median"})


def test_wandb_without_a_server_stops_no_training(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hook = WandbLoggerHook({"mode": "online"}, interval=1, timeout=1.0)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("WANDB_API_KEY", "a" * 40)
    hook.init_kwargs["settings"] = {"init_timeout": 2}
    module = fit(work, hook, epochs=1)
    assert len(module.losses) == 4
    assert len(warnings_in(caplog)) == 1
    (path,) = work.glob("spool/*.jsonl")
    assert "a" * 40 not in path.read_text()
    assert len(StoredSpool(str(path))) == 5
    # W&B's service was told to end; otherwise the process would wait for the service
    assert not [name for name in os.environ if name.startswith("WANDB_SERVICE")]


@pytest.mark.slow
def test_the_printed_command_sends_the_rest_to_the_offline_run(
    work: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = WandbWriter.log

    def some(writer: WandbWriter, record: Any) -> None:
        if record.step > 2:
            raise ConnectionError("the disk is gone")
        real(writer, record)

    with monkeypatch.context() as patch:
        patch.setattr(WandbWriter, "log", some)
        fit(work, WandbLoggerHook(interval=1, timeout=0.5), epochs=1)
    for thread in threading.enumerate():  # the end of the run may come after the time is up
        if thread.name == "lightning_hooks wandb":
            thread.join(30)
    replay_as_told(caplog)  # in the same process: the run may still be open
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"), key=os.path.getmtime)
    rows = [step for file in files for step in history(inspect_wandb(file))]
    assert rows == [*range(1, 6)]
    assert len({file.name for file in files}) == 1  # the run's id
    assert len(files) == (1 if KEEPS_RUNS_OPEN else 2)
    assert not (work / "spool").exists()


@keeps_runs_open
def test_two_hooks_have_a_run_each_and_one_stays_idle(work: Path) -> None:
    sent = Sent(interval=1)
    fit(work, sent, WandbLoggerHook(interval=1), WandbLoggerHook(interval=1))
    wandb.finish()
    files = sorted(work.glob("wandb/offline-run-*/run-*.wandb"))
    assert [history(inspect_wandb(file)) for file in files] == [sent.rows, sent.rows]
    with wandb.init(dir=str(work), settings={"console": "off"}) as run:
        assert run.id not in {file.stem.removeprefix("run-") for file in files}


def test_a_run_that_starts_too_late_is_ended(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, runs, goes_on = wandb.init, list[Any](), threading.Event()

    def start_late(**arguments: Any) -> Any:
        goes_on.wait()
        runs.append(start(**arguments))
        return runs[0]

    monkeypatch.setattr(wandb, "init", start_late)
    monkeypatch.setattr(WandbWriter, "slow_start", 0.0)
    hook = WandbLoggerHook(timeout=0.1)
    fit(work, hook, epochs=1)
    goes_on.set()
    (sender,) = (t for t in threading.enumerate() if t.name == "lightning_hooks wandb")
    sender.join(30)
    assert wandb.run is None
    assert hook.status()["sent"] == 0
    with start(dir=str(work), settings={"console": "off"}) as run:
        assert run.id != runs[0].id


@pytest.mark.slow
def test_a_late_teardown_of_a_run_given_up_spares_the_next_run(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("dead")

    def end_late() -> None:
        end = time.monotonic() + 4
        while wandb.run is None and time.monotonic() < end:
            time.sleep(0.02)
        teardown()

    teardown = wandb.teardown
    monkeypatch.setattr(wandb, "teardown", end_late)
    with monkeypatch.context() as patch:
        patch.setattr(wandb, "init", refuse)
        fit(work.parent / "dead", WandbLoggerHook(timeout=0.1), epochs=1)
    sent = Sent(interval=1)
    fit(work, sent, WandbLoggerHook(interval=1, log_artifact=False))
    assert history(read_wandb(work)) == sent.rows


@pytest.mark.slow
def test_departure_global_step_is_the_axis_in_a_given_run(work: Path) -> None:
    with wandb.init(dir=str(work), settings={"console": "off"}) as run:
        fit(work, WandbLoggerHook(interval=2, log_artifact=False, run=run), epochs=1)
    records = read_wandb(work)
    axes = {r["metric"]["name"]: r["metric"] for r in records if r["type"] == "metric"}
    assert axes["train/loss"]["step_metric"] == "trainer/global_step"
    assert [row["global_step"] for row in history(records).values()] == [2, 4, 5]


@keeps_runs_open
def test_a_run_that_goes_on_finds_the_rows_of_a_torn_file(tmp_path: Path) -> None:
    init = {"dir": str(tmp_path), "mode": "offline", "settings": {"console": "off"}}
    with wandb.init(id="torn", **init) as run:
        for step in range(300):
            run.log({"text": "x" * (40000 if step == 150 else 500)}, step=step)  # of many blocks
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    whole = len(history(inspect_wandb(file)))
    file.write_bytes(file.read_bytes()[:90000])  # by a kill
    left = [*history(inspect_wandb(file))]
    assert 50 < len(left) < whole == 300
    writer = WandbWriter.connect(init=init, run_id="torn", after=10)
    writer.close(failed=True)
    assert writer.stored["text"] == {*left}


def test_a_table_that_wandb_truncates_is_named(work: Path) -> None:
    writer = WandbWriter.connect(init={"dir": str(work), "mode": "offline"})
    rows = tuple((row,) for row in range(10_001))
    writer.write([Record(0, 1.0, 1, tables={"small": Table(("id",), rows[:10_000])})])
    assert not writer.note
    writer.write([Record(1, 1.0, 2, tables={"big": Table(("id",), rows)})])
    assert writer.note.startswith("W&B truncates tables to 10000 rows: big; before")
    writer.close(failed=True)


class Figures(TinyModule):
    """A module that logs by ``wandb.log`` from the first step on."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        wandb.log({"figure": batch_idx})
        return super().training_step(batch, batch_idx)


def test_the_run_is_open_for_calls_of_the_module(work: Path) -> None:
    fit(work, WandbLoggerHook(interval=2, log_artifact=False), module=Figures, epochs=1)
    rows = history(read_wandb(work)).values()
    assert [row["figure"] for row in rows if "figure" in row] == [0, 1, 2, 3]


# -- contents of a run in W&B's UI --


def config_in(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the merged config of all records of a run."""
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
    """Waits for the run before the epoch begins."""

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
    kept = [each["output_raw"]["line"] for each in read_wandb(work) if "output_raw" in each]
    assert ("a line for the console" in "".join(kept)) == (not console)


@keeps_runs_open
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


@keeps_runs_open
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


FORKS = """
import multiprocessing, os, sys
from pathlib import Path

import wandb
from lightning_hooks import WandbLoggerHook
from support.logs.trackers import fit
from support.training import make_loader, make_trainer

hook, work = WandbLoggerHook(interval=2, log_artifact=False, timeout=60.0), Path(sys.argv[1])


def child():
    fit(work / "child", WandbLoggerHook(log_artifact=False, timeout=60.0), epochs=1)
    wandb.finish()
    os._exit(0)


module = fit(work / "parent", hook, epochs=1)
process = multiprocessing.get_context("fork").Process(target=child)
process.start()
process.join()
assert process.exitcode == 0
wandb.log({"after": 1.0})
wandb.finish()
"""


@keeps_runs_open
@pytest.mark.slow
def test_a_forked_process_leaves_the_run_of_its_parent_alone(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, str(tmp_path)]
    subprocess.run(command, env=environment(), check=True, timeout=240)
    rows = history(read_wandb(tmp_path / "parent")).values()
    assert [row["after"] for row in rows if "after" in row] == [1.0]
    assert len([*tmp_path.glob("*/wandb/offline-run-*")]) == 2
