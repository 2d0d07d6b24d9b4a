"""Checkpoints by minutes, at errors and signals, in cut validations; the steps lost by a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    ClosureHook,
    EMAHook,
    EvalHook,
    Hook,
    InvalidLossError,
    newest_valid,
)
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.saving import last
from lightning_hooks.hooks.saving.last import Clock
from lightning_hooks.utils.concatenated import separated
from support.logs.kept import KeepHook, Kept
from support.processes import Forks, environment
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:You're resuming from a checkpoint", "ignore:the run goes on in epoch"
    )
]


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


def test_a_file_by_minutes_waits_for_the_accumulated_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(last, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def pass_a_minute(runner: Any) -> None:
        clock.now += 60

    hook = CheckpointHook(interval=-1, every_minutes=3)
    ticks = ClosureHook("before_train_iter", pass_a_minute)
    fit(tmp_path, ticks, hook, module=NoValidation, batches=8, accumulate_grad_batches=2)
    assert names(tmp_path) == ["iter_4.pth", "epoch_1.pth"]


def test_of_a_best_file_between_two_steps_a_line_tells_the_lost_gradients(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"accumulate_grad_batches": 3, "val_check_interval": 2, "val": 1, "batches": 4}
    best = BestCheckpointHook("val_loss", by_epoch=False)
    fit(tmp_path, best, module=TinyModule, **options)
    path = tmp_path / "best_val_loss_iter_2.pth"
    fit(tmp_path / "b", CheckpointHook(), module=TinyModule, ckpt_path=path, **options)
    assert "the next step has no gradients of the 2 batches before the file" in caplog.text


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
    """With a clock on each rank, the ranks would save at different iterations."""
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

    def of_two_ranks(module: Any, **options: Any) -> None:
        module.mean /= 2

    monkeypatch.setattr(Runner, "world_size", 2)
    monkeypatch.setattr(last, "sync_buffers", of_two_ranks)
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
    done = 6 if how == "SIGTERM" else 5  # Lightning finishes the current batch
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
        _writer_class = Takes

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
    """A run that stops early has no other checkpoint of its last iterations."""

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


class Cut(TinyModule):
    """A module that logs 10 to 13 in four batches and raises an error in the second validation."""

    error: BaseException | None = None
    place = "validation_step"

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def fail(self, place: str) -> None:
        if self.error is not None and place == self.place and self.trainer.current_epoch == 1:
            raise self.error

    def on_validation_start(self) -> None:
        self.fail("on_validation_start")
        self.batches.append(0)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            self.fail("validation_step")
        self.batches[-1] += 1
        self.log("val_loss", torch.tensor(10.0 + batch_idx))

    def on_validation_epoch_end(self) -> None:
        self.fail("on_validation_epoch_end")

    def on_validation_end(self) -> None:
        self.fail("on_validation_end")


PLACES = ["on_validation_start", "validation_step", "on_validation_epoch_end", "on_validation_end"]


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_validation_is_whole(tmp_path: Path, place: str) -> None:
    def train(error: BaseException | None, **words: Any) -> tuple[Any, Any]:
        best, module = BestCheckpointHook("val_loss"), Cut()
        module.error, module.place = error, place
        last = CheckpointHook(interval=1)
        fit(tmp_path, best, last, EMAHook(), module=module, val=4, max_epochs=3,
            num_sanity_val_steps=0, **words)  # fmt: skip
        return module, best

    with pytest.raises(RuntimeError, match="cut"):
        train(RuntimeError("cut"))
    assert "epoch_2.pth" in names(tmp_path)
    module, best = train(None, ckpt_path="last")
    assert module.batches == [4, 4]
    assert module.trainer.global_step == 12
    assert best.best_model_score == 11.5
    path = tmp_path / "epoch_3.pth"
    again = Cut()
    options = {"val": 4, "max_epochs": 4, "num_sanity_val_steps": 0, "ckpt_path": path}
    fit(tmp_path, CheckpointHook(), EMAHook(), module=again, **options)
    assert again.batches == [4]  # a later file repeats no validation


class Broken(TensorDataset):
    def evaluate(self, results: Any, logger: Any = None) -> Any:
        raise RuntimeError("bug in evaluate")


@pytest.mark.parametrize(("by_epoch", "due"), [(True, "epoch_2.pth"), (False, "iter_4.pth")])
def test_a_due_file_is_written_when_an_evaluation_raises(
    tmp_path: Path, by_epoch: bool, due: str, caplog: pytest.LogCaptureFixture
) -> None:
    interval = 2 if by_epoch else 4
    loader = DataLoader(Broken(torch.ones(2, 1)))
    evaluation = EvalHook(loader, interval=interval, by_epoch=by_epoch, test_fn=lambda m, x: [0])
    last = CheckpointHook(interval=interval, by_epoch=by_epoch)
    with pytest.raises(RuntimeError, match="bug in evaluate"):
        fit(tmp_path, evaluation, last, module=NoValidation, max_epochs=3)
    assert names(tmp_path) == [due]
    line = f"with a file due; to go on from {tmp_path / due} write"
    assert line in caplog.text


def test_a_due_best_file_is_written_when_the_validation_raises(tmp_path: Path) -> None:
    class Raises(Callback):
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                raise RuntimeError("cut")

    class Scored(TensorDataset):
        def evaluate(self, results: Any, logger: Any = None) -> Any:
            return {"acc": 0.5}

    loader = DataLoader(Scored(torch.ones(2, 1)))
    evaluation = EvalHook(loader, interval=2, save_best="acc", test_fn=lambda model, x: [0])
    with pytest.raises(RuntimeError, match="cut"):
        fit(tmp_path, evaluation, callbacks=[Raises()], val=1, max_epochs=3, num_sanity_val_steps=0)
    assert names(tmp_path) == ["best_acc_epoch_2.pth"]


def test_a_bad_state_is_not_written_after_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * float("nan")

    hooks = CheckpointHook(interval=1, by_epoch=False), CheckInvalidLossHook(interval=1)
    with pytest.raises(InvalidLossError):
        fit(tmp_path, *hooks, module=Bad)
    assert names(tmp_path) == []


@pytest.mark.parametrize("by_epoch", [True, False])
def test_later_hooks_of_the_point_find_the_path_of_the_file(tmp_path: Path, by_epoch: bool) -> None:
    told: list[str] = []

    def look(runner: Any) -> None:
        told.append(Path(runner.meta["hook_msgs"]["last_ckpt"]).name)

    point = "after_train_epoch" if by_epoch else "after_train_iter"
    hooks = CheckpointHook(interval=1, by_epoch=by_epoch), ClosureHook(point, look)
    fit(tmp_path, *hooks, val=1, max_epochs=2, batches=2, meta={})
    unit, count = ("epoch", 2) if by_epoch else ("iter", 4)
    assert told == [f"{unit}_{n}.pth" for n in range(1, count + 1)]


@pytest.mark.parametrize("beside", [False, True])
def test_fast_dev_run_tells_no_path(tmp_path: Path, beside: bool) -> None:
    hook: Any = (
        CheckpointHook(1, save_best="val_loss") if beside else BestCheckpointHook("val_loss")
    )
    trainer = fit(tmp_path, hook, val=1, fast_dev_run=True, meta={})
    assert hook.best_model_path == hook.last_model_path == ""
    assert hook.best_k_models == {}
    with pytest.raises(ValueError, match="fast_dev_run"):
        trainer.test(trainer.lightning_module, make_loader(1), ckpt_path="best")


@pytest.mark.parametrize("calls_super", [False, True])
def test_a_hook_with_a_save_point_of_its_own_gets_no_further_file(
    tmp_path: Path, calls_super: bool
) -> None:
    class At(CheckpointHook):
        def after_train_iter(self, runner: Any) -> None:
            if calls_super:
                super().after_train_iter(runner)

    class Stops(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 2

    fit(tmp_path, At(by_epoch=False), Stops(), module=NoValidation, max_epochs=2)
    assert names(tmp_path) == (["iter_3.pth"] if calls_super else [])


def test_export_without_a_path_names_the_hook() -> None:
    for hook in (CheckpointHook(), BestCheckpointHook("val_loss"), EvalHook(save_best="val_loss")):
        with pytest.raises(TypeError, match=rf"^{type(hook).__name__}.export\(\) needs a path"):
            hook.export()


BATCHES = 4


PLAIN: dict[str, Any] = {}


MINUTES = {"every_minutes": 1e-9}  # over at each iteration


EXCEPTION = {"on_exception": True}


def run(folder: Path, how: str | None, options: dict[str, Any], **words: Any) -> NoValidation:
    """Train three epochs; end the run in the seventh iteration."""

    def end(runner: Any) -> None:
        if how is not None and runner.iter == 6:
            if how == "exception":
                raise RuntimeError("ended")
            os.kill(os.getpid(), getattr(signal, how))

    module = NoValidation()
    hooks = CheckpointHook(interval=1, **options), ClosureHook("before_train_iter", end)
    trainer = make_trainer(folder, *hooks, max_epochs=3, enable_checkpointing=True)
    trainer.fit(module, make_loader(BATCHES), **words)
    return module


def run_in_a_process(folder: Path, how: str, options: dict[str, Any]) -> int | None:
    arguments = f"Path({str(folder)!r}), {how!r}, {options!r}"
    script = f"from pathlib import Path; from {__name__} import run; run({arguments})"
    (code,) = Forks(["-c", script], [environment()], folder).wait_for_all(120)
    return code


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Restore Python's handler of SIGINT, which a shell disables for background processes."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("how", "options", "newest"),
    [
        ("exception", PLAIN, "epoch_1.pth"),
        ("exception", MINUTES, "iter_6.pth"),
        ("exception", EXCEPTION, "iter_6.pth"),
        ("SIGINT", PLAIN, "epoch_1.pth"),
        ("SIGINT", MINUTES, "iter_6.pth"),
        ("SIGINT", EXCEPTION, "iter_6.pth"),
        ("SIGTERM", PLAIN, "epoch_1.pth"),
        ("SIGTERM", MINUTES, "iter_7.pth"),  # Lightning finishes the batch
        ("SIGTERM", EXCEPTION, "iter_7.pth"),
        ("SIGKILL", PLAIN, "epoch_1.pth"),
        ("SIGKILL", MINUTES, "iter_6.pth"),
        ("SIGKILL", EXCEPTION, "epoch_1.pth"),
    ],
)
def test_what_the_end_of_a_run_loses(
    tmp_path: Path, how: str, options: dict[str, Any], newest: str, ctrl_c: None
) -> None:
    if how == "SIGKILL":
        assert run_in_a_process(tmp_path, how, options) == -signal.SIGKILL
    else:
        with pytest.raises((RuntimeError, SystemExit)):
            run(tmp_path, how, options)
    assert newest_valid(tmp_path) == str(tmp_path / newest)
    done = torch.load(tmp_path / newest, weights_only=True)["meta"]["iter"]
    module = run(tmp_path, None, options, ckpt_path="last")  # the line to type
    assert len(module.losses) == 3 * BATCHES - done
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_3.pth")
    if newest == "epoch_1.pth":
        whole = run(tmp_path / "whole", None, options)
        assert all(map(torch.equal, module.parameters(), whole.parameters()))


class Plateau(TinyModule):
    """A module with ReduceLROnPlateau, which halves the rate in each epoch of the test."""

    monitor = "val_loss"

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.log("mean", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        options = {"patience": 0, "threshold": 1.0, "factor": 0.5}
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, **options)
        return [optimizer], [{"scheduler": scheduler, "monitor": self.monitor}]


class OfTraining(Plateau):
    monitor = "mean"


@pytest.mark.parametrize("kind", [Plateau, OfTraining])
@pytest.mark.parametrize("how", [{}, {"val_check_interval": 2}, {"max_steps": 12}])
def test_a_rate_that_waits_for_a_metric_goes_on(
    tmp_path: Path, kind: Any, how: dict[str, Any]
) -> None:
    def train(**words: Any) -> Any:
        module, hook = kind(), CheckpointHook(2, by_epoch=False)
        options = {"max_epochs": 3, "enable_checkpointing": True, **how}
        trainer = make_trainer(tmp_path, hook, **options)
        trainer.fit(module, make_loader(4), make_loader(1), **words)
        return module, trainer.optimizers[0].param_groups[0]["lr"]

    whole, rate = train()
    assert rate <= 0.1 / 4
    for iteration in (2, 4, 6, 8, 10):
        module, found = train(ckpt_path=tmp_path / f"iter_{iteration}.pth")
        assert found == rate
        assert all(map(torch.equal, module.parameters(), whole.parameters()))


class StopsIn(Callback):
    """Raises an error after a number of batches, or in the second validation."""

    def __init__(self, batches: int = 0) -> None:
        self.batches = batches

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        if self.batches and trainer.global_step == self.batches:
            raise InterruptedError

    def on_validation_batch_start(self, trainer: Any, *args: Any) -> None:
        if not self.batches and trainer.current_epoch == 1:
            raise InterruptedError


def test_a_file_written_anew_has_the_metrics_of_its_epoch(tmp_path: Path) -> None:
    def train(folder: str, *callbacks: Any, **words: Any) -> Any:
        module, hook = OfTraining(), CheckpointHook(1)
        options = {"max_epochs": 4, "enable_checkpointing": True}
        trainer = make_trainer(tmp_path / folder, hook, *callbacks, **options)
        trainer.fit(module, make_loader(4), make_loader(1), **words)
        return trainer.callback_metrics["mean"]

    whole = train("a")
    with pytest.raises(InterruptedError):
        train("b", StopsIn())
    with pytest.raises(InterruptedError):
        train("b", StopsIn(8), ckpt_path="last")
    files = [torch.load(tmp_path / folder / "epoch_2.pth", weights_only=True) for folder in "ba"]
    of_file, expected = (separated(file["lightning_hooks"]["metrics"][0][0]) for file in files)
    assert of_file == expected
    assert train("b", ckpt_path="last") == whole


# -- the start and the contents of saves -------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "begin", "expected"),
    [(2, 5, ["5", "7", "9"]), (3, 3, ["3", "6", "9"]), (4, 0, ["4", "8"]), (-1, 2, [])],
)
@pytest.mark.parametrize("by_epoch", [True, False])
def test_the_first_file_is_of_save_begin(
    tmp_path: Path, interval: int, begin: int, expected: list[str], by_epoch: bool
) -> None:
    hook = CheckpointHook(interval, by_epoch, save_begin=begin, save_last=False)
    batches, epochs = (1, 10) if by_epoch else (10, 1)
    fit(tmp_path, hook, module=NoValidation, batches=batches, max_epochs=epochs)
    assert sorted(name.split("_")[1][:-4] for name in names(tmp_path)) == expected


class Falls(TinyModule):
    """A module with a better score in each epoch."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", 1 / (1.0 + self.trainer.current_epoch))


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("hooks", ["one hook", "two hooks"])
def test_the_best_files_may_be_without_the_optimizer(
    tmp_path: Path, hooks: str, background: bool
) -> None:
    def make() -> list[Any]:
        best = {"keep_best": 2, "background": background}
        if hooks == "one hook":
            return [CheckpointHook(2, save_optimizer="last", save_best="val_loss", **best)]
        return [CheckpointHook(2), BestCheckpointHook("val_loss", save_optimizer=False, **best)]

    fit(tmp_path, *make(), module=Falls, val=1, max_epochs=3, batches=2)
    has = {
        name: "optimizer_states" in torch.load(tmp_path / name, weights_only=True)
        for name in names(tmp_path)
    }
    assert has == {
        "best_val_loss_epoch_2.pth": False,
        "best_val_loss_epoch_3.pth": False,
        "epoch_2.pth": True,
        "epoch_3.pth": True,
    }
    (tmp_path / "epoch_3.pth").unlink()  # as if killed before
    with pytest.warns(UserWarning, match=r"epoch_3.pth is missing: .*epoch_2.pth is taken"):
        resumed = fit(
            tmp_path, *make(), module=Falls, val=1, batches=2, max_epochs=4, ckpt_path="last"
        )
    assert resumed.global_step == 8


def test_a_misspelt_save_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'last'"):
        CheckpointHook(save_optimizer="lst")  # type: ignore[arg-type]


def test_a_worker_that_dies_during_the_save_costs_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch's SIGCHLD handler raises the error at any point of the main thread."""
    real, calls = torch.save, []

    def save(*args: Any, **kwargs: Any) -> None:
        calls.append(args)
        if len(calls) == 1:
            raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
        real(*args, **kwargs)

    class Fails(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if batch_idx == 2:
                raise ArithmeticError("mine")
            return super().training_step(batch, batch_idx)

    monkeypatch.setattr(torch, "save", save)
    hook = CheckpointHook(by_epoch=False, on_exception=True)
    with pytest.raises(ArithmeticError, match="mine"):
        make_trainer(tmp_path, hook, enable_checkpointing=True).fit(Fails(), make_loader(4))
    assert newest_valid(str(tmp_path)) == str(tmp_path / "iter_2.pth")
