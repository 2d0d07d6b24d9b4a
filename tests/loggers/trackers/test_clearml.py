"""ClearML with the real client: the tests read the logged values back."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import ClearMLLoggerHook, Hook, log_image
from lightning_hooks.loggers.trackers.clearml import ClearMLWriter, has_clearml_server
from support.logs.trackers import (
    REAL_CLIENTS,
    Odd,
    Sent,
    Talk,
    Tuned,
    everything_in,
    fit,
    quiet,
    read_clearml,
)
from support.training import TinyModule

clearml = pytest.importorskip("clearml")
pytestmark = REAL_CLIENTS


def test_clearml_is_read_back(work: Path, caplog: pytest.LogCaptureFixture) -> None:
    sent = Sent(interval=2)
    hook = ClearMLLoggerHook({"task_name": "digits"}, interval=2)
    fit(work, sent, hook, module=Tuned(0.2, {"size": 8}))
    assert read_clearml(work / "clearml") == sent.rows
    (path,) = (work / "clearml").glob("offline/*/task.json")
    task = json.loads(path.read_text())
    assert task["name"] == "digits"
    assert task["hyperparams"]["General"]["lr"]["value"] == "0.2"
    assert quiet(caplog)
    assert os.listdir() == []


def test_departure_clearml_stores_no_nan_as_zero(work: Path) -> None:
    fit(work, Odd(), ClearMLLoggerHook(interval=1), epochs=1)
    lines = [
        line
        for path in (work / "clearml").glob("offline/*/metrics.jsonl")
        for line in path.read_text().splitlines()
    ]
    events = [event for line in lines for event in json.loads(line)]
    points = [event for event in events if event.get("metric") == "train/odd"]
    assert [(e["iter"], e["variant"], e["value"]) for e in points] == [
        (1, "nonfinite", 1.0),
        (2, "nonfinite", 1.0),
        (3, "nonfinite", 1.0),
        (4, "train/odd", 1.5),
    ]


def copies() -> set[str]:
    """Return the child processes with the command line of this process.

    A child process has this command line briefly while it starts a program.
    """
    children = " ".join(p.read_text() for p in Path("/proc/self/task").glob("*/children")).split()
    own, found = Path("/proc/self/cmdline").read_bytes(), set()
    for pid in children:
        with contextlib.suppress(OSError):  # the process has ended
            if Path(f"/proc/{pid}/cmdline").read_bytes() == own:
                found.add(pid)
    return found


class Forks(Hook):
    """Looks for forked copies of this process after the tracker has sent a record."""

    def __init__(self, tracker: Any) -> None:
        self.tracker = tracker

    def after_train_epoch(self, runner: Any) -> None:
        while not self.tracker.status()["sent"]:
            time.sleep(0.05)
        for _ in range(5):
            self.found = copies()
            time.sleep(0.1)
            self.found &= copies()
            if not self.found:
                break


def test_departure_clearml_is_offline_and_forks_not(work: Path) -> None:
    hook = ClearMLLoggerHook(interval=2)
    look = Forks(hook)
    fit(work, hook, Talk(), look, epochs=1)
    assert read_clearml(work / "clearml").keys() == {2, 4, 5}
    assert b"a line for the console" not in everything_in(work / "clearml")
    assert not look.found


def test_departure_each_clearml_run_is_a_new_task(work: Path) -> None:
    for _ in range(2):
        fit(work, ClearMLLoggerHook({"task_name": "same"}, interval=2), epochs=1)
    assert len([*(work / "clearml").glob("offline/*/task.json")]) == 2


def test_departure_the_programs_task_is_used_and_left_open(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLEARML_CACHE_DIR", str(tmp_path / "cache"))
    clearml.Task.set_offline(True)
    task = clearml.Task.init("p", "t", reuse_last_task_id=False, auto_connect_streams=False)
    try:
        fit(work, ClearMLLoggerHook(interval=2), epochs=1)
        fit(work, ClearMLLoggerHook(interval=2, run=task), epochs=1)
        task.get_logger().report_scalar("mine", "mine", 1.0, 7)
        task.flush(wait_for_uploads=True)  # close alone may omit the last upload
    finally:
        task.close()
    rows = read_clearml(tmp_path / "cache")
    assert rows.keys() == {2, 4, 5, 7}
    assert not (work / "clearml").exists()


def test_a_task_without_an_id_in_the_checkpoint_is_found(work: Path) -> None:
    given = {"init": {"project_name": "p", "task_name": "n"}, "folder": str(work), "run_id": "1f"}
    tasks = []
    for after in (None, 4):  # the second process is resumed
        writer = ClearMLWriter.connect(**given, offline=True, after=after)
        tasks.append(writer.run_id())
        writer.close()
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize("killed", [False, True])
def test_a_killed_task_is_stopped(
    work: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    stop, reasons = clearml.Task.mark_stopped, list[str]()

    def note(task: Any, force: bool, status_message: str) -> None:
        reasons.append(status_message)  # offline a task has no status
        stop(task, force=force, status_message=status_message)

    monkeypatch.setattr(clearml.Task, "mark_stopped", note)
    writer = ClearMLWriter.connect(init={"project_name": "p"}, folder=str(work), offline=True)
    writer.killed = killed
    writer.close()
    assert reasons == ["the process was killed"] * killed


@pytest.mark.parametrize(
    ("variables", "has_server"),
    [
        ({}, False),
        ({"CLEARML_API_HOST": "http://127.0.0.1:9"}, True),
        ({"CLEARML_API_HOST": "http://127.0.0.1:9", "CLEARML_OFFLINE_MODE": "1"}, False),
    ],
)
def test_clearmls_variables_name_its_server(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], has_server: bool
) -> None:
    monkeypatch.delenv("CLEARML_OFFLINE_MODE")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert has_clearml_server() == has_server


class Current(TinyModule):
    """Records in the first step whether the process has a task."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        if self.global_step == 0:
            self.task = clearml.Task.current_task()
        return super().training_step(batch, batch_idx)


def test_the_task_is_open_for_calls_of_the_module(work: Path) -> None:
    hook = ClearMLLoggerHook(timeout=60.0)
    module = fit(work, hook, module=Current(), epochs=1)
    assert module.task is hook.task


def test_an_image_with_alpha_is_a_png(work: Path) -> None:
    """ClearML writes images as JPEG, which has no alpha channel."""
    from PIL import Image

    class Shows(TinyModule):
        def on_train_start(self) -> None:
            log_image(self, "clear", torch.rand(4, 6, 5))
            log_image(self, "plain", torch.rand(3, 6, 5))

    fit(work, ClearMLLoggerHook(interval=1), module=Shows(), epochs=1)
    found = [path for path in (work / "clearml").rglob("*") if "train" in path.as_posix()]
    by_kind = {path.suffix: Image.open(path) for path in found if path.is_file()}
    assert {kind: (image.mode, image.size) for kind, image in by_kind.items()} == {
        ".png": ("RGBA", (5, 6)),
        ".jpeg": ("RGB", (5, 6)),
    }
