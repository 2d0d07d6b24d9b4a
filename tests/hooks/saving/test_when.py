"""CheckpointHook writes a file after minutes, and when an exception or a signal ends the run."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, ClosureHook, newest_valid
from lightning_hooks.hooks.saving import checkpoint
from support.training import NoValidation, fit

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint", "ignore:the run goes on in epoch"
)


def names(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*_*.pth"), key=os.path.getmtime)]


def test_a_file_is_written_when_the_minutes_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def pass_a_minute(runner: Any) -> None:
        clock.now += 60

    hook = CheckpointHook(interval=2, every_minutes=3)
    ticks = ClosureHook("before_train_iter", pass_a_minute)
    fit(tmp_path, ticks, hook, module=NoValidation, max_epochs=3, batches=4)
    # the file of an epoch starts the minutes anew
    assert names(tmp_path) == [
        "iter_3.pth",
        "iter_6.pth",
        "epoch_2.pth",
        "iter_11.pth",
        "epoch_3.pth",
    ]


def test_ranks_agree_on_the_minutes_in_few_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    runner = SimpleNamespace(iter=0, world_size=2)
    runner.trainer = SimpleNamespace(strategy=SimpleNamespace(broadcast=lambda found: found))
    monkeypatch.setattr(
        checkpoint, "time", SimpleNamespace(monotonic=lambda: asked.append(1) or runner.iter + 1.0)
    )
    hook = CheckpointHook(every_minutes=10)
    for runner.iter in range(1000):  # a second each
        if hook.minutes_are_over(runner):
            break
    assert runner.iter + 1 == 600
    assert len(asked) < 30


@pytest.mark.parametrize("how", ["SIGTERM", KeyboardInterrupt(), ValueError("bad")], ids=str)
@pytest.mark.parametrize("background", [False, True])
def test_what_ends_a_run_writes_a_file_to_go_on_from(
    how: Any, background: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def stop(runner: Any) -> None:
        if runner.iter == 5 and how != "SIGTERM":
            raise how
        if runner.iter == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    def hook() -> CheckpointHook:
        return CheckpointHook(1, max_keep_ckpts=2, background=background, on_exception=True)

    options: dict[str, Any] = {"module": NoValidation, "max_epochs": 3, "batches": 4}
    with pytest.raises(BaseException):  # noqa: B017, PT011  # Lightning exits with a status
        fit(tmp_path, hook(), ClosureHook("before_train_iter", stop), **options)
    done = 6 if how == "SIGTERM" else 5  # Lightning finishes the batch before it ends
    path = str(tmp_path / f"iter_{done}.pth")
    assert newest_valid(tmp_path) == path
    (line,) = [m for m in caplog.messages if "to go on" in m]
    assert f"after {done} iterations; to go on from {path} write" in line
    assert 'ckpt_path="last"' in line
    trainer = fit(tmp_path, hook(), ckpt_path="last", **options)
    assert names(tmp_path) == ["epoch_2.pth", "epoch_3.pth"]
    assert trainer.global_step == 12


def test_no_file_is_written_twice_at_an_exception(tmp_path: Path) -> None:
    def stop(runner: Any) -> None:
        if runner.iter == 4:
            raise ValueError("bad")

    hooks = CheckpointHook(interval=1, on_exception=True), ClosureHook("before_train_epoch", stop)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, *hooks, module=NoValidation, max_epochs=3, batches=4)
    assert names(tmp_path) == ["epoch_1.pth"]
    assert torch.load(tmp_path / "epoch_1.pth", weights_only=True)["meta"]["iter"] == 4
