"""CheckpointHook writes a file after minutes, and when an exception or a signal ends the run."""

from __future__ import annotations

import os
import signal
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    ClosureHook,
    InvalidLossError,
    newest_valid,
)
from lightning_hooks.hooks.saving import last
from lightning_hooks.hooks.saving.last import Clock
from support.logs.kept import KeepHook, Kept
from support.training import NoValidation, fit, make_loader

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint", "ignore:the run goes on in epoch"
)


def names(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*_*.pth"), key=os.path.getmtime)]


def test_a_file_is_written_when_the_minutes_are_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(last, "time", SimpleNamespace(monotonic=lambda: clock.now))

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
    asked, now = [], SimpleNamespace(seconds=100.0)
    monkeypatch.setattr(last, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    strategy = SimpleNamespace(broadcast=lambda found: asked.append(found) or found)
    trainer: Any = SimpleNamespace(world_size=2, strategy=strategy)
    clock = Clock(50)
    for done in range(51, 1000):
        now.seconds += 1  # for each iteration
        if clock.is_past(10, done, trainer):
            break
    assert done == 50 + 600
    assert len(asked) < 30


def test_a_rank_takes_the_clock_of_rank_0() -> None:
    """Ranks that looked at their own clocks would write at different iterations."""
    strategy = SimpleNamespace(broadcast=lambda found: (1.5, 7))
    trainer: Any = SimpleNamespace(world_size=2, strategy=strategy)
    clock = Clock(0)
    assert clock.is_past(60, 1, trainer)
    assert not clock.is_past(60, 6, trainer)  # before the next look
    assert clock.is_past(60, 7, trainer)


def test_assigned_attributes_of_mmcv_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(last, "time", SimpleNamespace(monotonic=lambda: now.seconds))

    def pass_a_minute(runner: Any) -> None:
        now.seconds += 60

    hook = CheckpointHook(
        interval=1, by_epoch=False, max_keep_ckpts=9, every_minutes=3, filename_tmpl="step_{}.pth"
    )
    hook.interval, hook.save_last, hook.max_keep_ckpts = -1, False, 2
    ticks = ClosureHook("before_train_iter", pass_a_minute)
    fit(tmp_path, ticks, hook, module=NoValidation, max_epochs=1, batches=10)
    assert names(tmp_path) == ["step_6.pth", "step_9.pth"]
    (tmp_path / "checkpoints.json").unlink()
    with pytest.warns(UserWarning, match="is taken for the newest"):
        assert hook.last_checkpoint == str(tmp_path / "step_9.pth")


def test_the_buffers_of_a_run_that_ends_early_are_averaged_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counts(NoValidation):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(()))

    def stop(runner: Any) -> None:
        runner.should_stop = True

    def of_the_ranks(self: Any, tensor: torch.Tensor, *group: Any, **how: Any) -> torch.Tensor:
        return tensor / 2 if tensor.ndim == 0 else tensor

    monkeypatch.setattr(SingleDeviceStrategy, "reduce", of_the_ranks)
    hook = CheckpointHook(sync_buffer=True)
    fit(tmp_path, ClosureHook("after_train_iter", stop), hook, module=Counts, max_epochs=3)
    (name,) = names(tmp_path)
    assert torch.load(tmp_path / name, weights_only=True)["state_dict"]["mean"] == 0.5


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


def test_an_error_after_the_fit_writes_no_file(tmp_path: Path) -> None:
    class Failing(NoValidation):
        def test_step(self, *batch: Any) -> None:
            raise ValueError("bad")

    hook = CheckpointHook(interval=2, max_keep_ckpts=1, save_last=False, on_exception=True)
    trainer = fit(tmp_path, hook, module=Failing, max_epochs=3, batches=4)
    with pytest.raises(ValueError, match="bad"):
        trainer.test(trainer.lightning_module, make_loader(1), verbose=False)
    assert names(tmp_path) == ["epoch_2.pth"]


@pytest.mark.parametrize(("where", "done"), [("start", 5), ("step", 5), ("end", 6)])
def test_ctrl_c_line_name_and_file_tell_the_same_iterations(
    where: str, done: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def press(place: str, trainer: Any) -> None:
        if place == where and trainer.fit_loop.epoch_loop.batch_progress.total.ready == 6:
            raise KeyboardInterrupt

    class Pressed(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            press("step", self.trainer)
            return super().training_step(batch, batch_idx)

        def on_train_batch_end(self, *args: Any) -> None:
            press("end", self.trainer)

    start = ClosureHook("before_train_iter", lambda runner: press("start", runner.trainer))
    with pytest.raises(SystemExit):
        fit(tmp_path, CheckpointHook(1, on_exception=True), start, module=Pressed, max_epochs=2)
    assert names(tmp_path)[-1] == f"iter_{done}.pth"
    assert f"KeyboardInterrupt after {done} iterations" in caplog.text

    seen: list[int] = []
    look = ClosureHook("after_train_iter", lambda runner: seen.append(runner.iter))
    path = tmp_path / f"iter_{done}.pth"
    trainer = fit(tmp_path, look, module=NoValidation, max_epochs=2, ckpt_path=path)
    assert seen == [*range(done, 8)]
    assert trainer.global_step == 8


def test_a_copy_made_in_a_fit_shows_the_error_of_its_own_setup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing(NoValidation):
        def setup(self, stage: str) -> None:
            raise ValueError("bad")

    copies = []
    hook = CheckpointHook(interval=-1, on_exception=True)
    copying = ClosureHook("before_train_epoch", lambda _: copies.append(deepcopy(hook)))
    fit(tmp_path, hook, copying, module=NoValidation)
    before = names(tmp_path)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, copies[0], module=Failing)
    assert names(tmp_path) == before
    assert not any("go on from" in message for message in caplog.messages)


def test_trackers_send_the_file_of_an_exception(tmp_path: Path) -> None:
    def stop(runner: Any) -> None:
        if runner.iter == 5:
            raise ValueError("bad")

    class Takes(Kept):
        takes = ("checkpoints",)

    class Tracker(KeepHook):
        writer_class = Takes

    tracker = Tracker(Takes, upload="all")
    hooks = tracker, CheckpointHook(1, on_exception=True), ClosureHook("before_train_iter", stop)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, *hooks, module=NoValidation, max_epochs=3, batches=4)
    sent = [name for record in tracker.kept.records for name in record.checkpoints]
    assert sent == ["epoch_1.pth", "iter_5.pth"]
    assert tracker.kept.closed == [True]


def test_an_old_hook_with_a_constructor_of_its_own_writes_files(tmp_path: Path) -> None:
    class Old(CheckpointHook):
        def __init__(self) -> None:
            self.interval, self.max_keep_ckpts, self.save_last = 1, -1, True
            self.sync_buffer = False

    def stop(runner: Any) -> None:
        if runner.iter == 5:
            raise ValueError("bad")

    hooks = Old(), ClosureHook("before_train_iter", stop)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, *hooks, module=NoValidation, max_epochs=3, batches=4)
    assert names(tmp_path) == ["epoch_1.pth"]


def test_no_file_is_written_twice_at_an_exception(tmp_path: Path) -> None:
    def stop(runner: Any) -> None:
        if runner.iter == 4:
            raise ValueError("bad")

    hooks = CheckpointHook(interval=1, on_exception=True), ClosureHook("before_train_epoch", stop)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, *hooks, module=NoValidation, max_epochs=3, batches=4)
    assert names(tmp_path) == ["epoch_1.pth"]
    assert torch.load(tmp_path / "epoch_1.pth", weights_only=True)["meta"]["iter"] == 4


def test_a_last_file_that_fails_is_written_at_the_exception(tmp_path: Path) -> None:
    """A run that ends early has nothing else since its last file."""

    class Failing(NoValidation):
        fails = True

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            if self.fails:
                self.fails = False
                raise OSError("disk full")

    def stop(runner: Any) -> None:
        runner.should_stop = runner.iter == 2

    hooks = CheckpointHook(interval=5, on_exception=True), ClosureHook("after_train_iter", stop)
    with pytest.raises(OSError, match="disk full"):
        fit(tmp_path, *hooks, module=Failing, max_epochs=3, batches=4)
    assert names(tmp_path) == ["iter_3.pth"]


@pytest.mark.filterwarnings("ignore:.*there is no last checkpoint available")
@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("at", ["on_train_epoch_start", "on_train_batch_end"])
def test_no_epoch_is_lost_by_an_error_between_epochs(
    tmp_path: Path, by_epoch: bool, at: str
) -> None:
    class Failing(NoValidation):
        fails, steps = True, 0

        def fail(self, *args: Any) -> None:
            if self.fails and self.trainer.global_step == 8:
                raise ValueError("bad")

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.steps += 1
            return super().training_step(batch, batch_idx)

    setattr(Failing, at, Failing.fail)

    def train(ckpt_path: str | None = None) -> Any:
        hook = CheckpointHook(interval=-1, on_exception=True)
        options = {"module": Failing, "max_epochs": 4, "ckpt_path": ckpt_path}
        return fit(tmp_path, hook, by_epoch=by_epoch, **options).lightning_module

    with pytest.raises(ValueError, match="bad"):
        train()
    Failing.fails = False
    assert train("last").steps == 8


def test_the_line_at_an_exception_names_a_file_to_go_on_from(tmp_path: Path, caplog: Any) -> None:
    class Failing(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            factor = float("nan") if self.global_step == 5 else 1.0
            return super().training_step(batch, batch_idx) * factor

    caplog.set_level("INFO")
    hooks = CheckpointHook(interval=1, on_exception=True), CheckInvalidLossHook(interval=1)
    with pytest.raises(InvalidLossError):
        fit(tmp_path, *hooks, module=Failing, max_epochs=2, batches=4)
    (line,) = [m for m in caplog.messages if "go on from" in m]
    assert f"to go on from {tmp_path / 'epoch_1.pth'} write" in line
    assert names(tmp_path) == ["epoch_1.pth"]


def test_an_error_in_the_first_batch_has_no_file_to_go_on_from(tmp_path: Path, caplog: Any) -> None:
    def stop(runner: Any) -> None:
        raise ValueError("bad")

    caplog.set_level("INFO")
    hooks = CheckpointHook(1, on_exception=True), ClosureHook("before_train_iter", stop)
    with pytest.raises(ValueError, match="bad"):
        fit(tmp_path, *hooks, module=NoValidation)
    assert "ValueError after 0 iterations; no file to go on from" in caplog.messages


def test_a_file_that_the_strategy_writes_itself_is_listed(tmp_path: Path) -> None:
    class Own(SingleDeviceStrategy):
        def save_checkpoint(self, checkpoint: Any, filepath: Any, **options: Any) -> None:
            torch.save(checkpoint, filepath)

    hook = CheckpointHook(interval=1, max_keep_ckpts=1)
    fit(tmp_path, hook, module=NoValidation, max_epochs=2, strategy=Own("cpu"))
    assert names(tmp_path) == ["epoch_2.pth"]
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_2.pth")
