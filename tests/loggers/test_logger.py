"""LoggerHook: the logged values, their names, and the iterations of the lines."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import Hook, HookAdapter, IterTimerHook, TextLoggerHook
from lightning_hooks.loggers.base import LoggerHook
from support import training
from support.logs.kept import KeepHook
from support.training import NoValidation, TinyModule


class Log(LoggerHook):
    """Records mode, epoch, iterations, step and tags of each log."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.calls: list[tuple[Any, ...]] = []
        self.tags: list[dict[str, Any]] = []

    def log(self, runner: Any) -> None:
        self.calls.append(
            (
                self.get_mode(runner),
                self.get_epoch(runner),
                self.get_iter(runner),
                self.get_iter(runner, inner_iter=True),
                self.get_step(runner),
            )
        )
        self.tags.append(self.get_loggable_tags(runner))


class Evaluation(Hook):
    """Reports an accuracy at the end of each epoch."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output.update(acc=0.5, loss=0.1, name="cat", eval_iter_num=2)
        runner.log_buffer.ready = True


fit = partial(training.fit, val=2, num_sanity_val_steps=0)


def test_values_are_logged_as_mmcv_names_and_counts_them(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, IterTimerHook(), log, max_epochs=2)
    assert log.calls == [
        ("train", 1, 2, 2, 2),
        ("train", 1, 4, 4, 4),
        ("val", 1, 5, 2, 1),
        ("train", 2, 6, 2, 6),
        ("train", 2, 8, 4, 8),
        ("val", 2, 9, 2, 2),
    ]
    assert set(log.tags[0]) == {"train/loss", "learning_rate", "momentum"}
    assert set(log.tags[2]) == {"val/val_loss", "learning_rate", "momentum"}
    assert log.tags[0]["learning_rate"] == 0.1
    assert log.tags[0]["momentum"] == 0.9


@pytest.mark.parametrize(("ignore_last", "iters"), [(True, [3]), (False, [3, 4])])
def test_the_last_iterations_of_an_epoch_can_be_ignored(
    tmp_path: Path, ignore_last: bool, iters: list[int]
) -> None:
    log = Log(3, ignore_last)
    fit(tmp_path, log)
    assert [call[2] for call in log.calls if call[0] == "train"] == iters


def test_interval_0_logs_at_the_end_of_the_epoch_only(tmp_path: Path) -> None:
    module, log = TinyModule(), Log(interval=0, ignore_last=False)
    fit(tmp_path, log, module=module)
    assert [call[2] for call in log.calls if call[0] == "train"] == [4]
    assert log.tags[0]["train/loss"] == pytest.approx(sum(module.losses) / 4)


def test_by_iteration(tmp_path: Path) -> None:
    log = Log(interval=3, by_epoch=False)
    fit(tmp_path, HookAdapter(log, by_epoch=False), max_steps=8)
    assert [(call[0], *call[2:4]) for call in log.calls] == [
        ("train", 3, 3),
        ("val", 4, 4),
        ("train", 6, 6),
        ("val", 8, 8),
    ]
    assert "val/val_loss" in log.tags[1] or "val/loss" in log.tags[1]


def test_departure_without_a_timer_training_values_are_train(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log)
    assert [call[0] for call in log.calls] == ["train", "train", "val"]


@pytest.mark.parametrize("timer", [[IterTimerHook()], []])
def test_an_evaluation_is_val(tmp_path: Path, timer: list[Hook]) -> None:
    log = Log(interval=2)
    fit(tmp_path, *timer, Evaluation(), log, limit_val_batches=0)
    assert [call[0] for call in log.calls] == ["train", "train", "val"]
    assert set(log.tags[2]) == {"val/acc", "val/loss", "learning_rate", "momentum"}


def test_departure_the_number_of_batches_of_an_evaluation_is_no_tag(tmp_path: Path) -> None:
    class Counted(Evaluation):
        def after_train_epoch(self, runner: Any) -> None:
            super().after_train_epoch(runner)
            runner.log_buffer.output["eval_iter_num"] = 5

    log = Log(interval=2)
    fit(tmp_path, IterTimerHook(), Counted(), log, limit_val_batches=0)
    assert not [name for tags in log.tags for name in tags if "eval_iter_num" in name]


def test_departure_every_logger_sees_an_evaluation(tmp_path: Path) -> None:
    first, last = Log(interval=2, reset_flag=True), Log(interval=2)
    fit(tmp_path, IterTimerHook(), Evaluation(), first, last, limit_val_batches=0)
    assert first.tags == last.tags
    assert len(first.tags) == 3


def test_departure_a_run_does_not_change_the_reset_flag_of_the_next(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log)
    assert log.reset_flag  # the last logger
    fit(tmp_path, log, Log(interval=2))
    assert not log.reset_flag
    assert Log(reset_flag=True).reset_flag


def test_old_subclasses_that_mark_the_last_logger_themselves(tmp_path: Path) -> None:
    class Old(Log):
        seen = None

        def before_run(self, runner: Any) -> None:  # as mmcv's NeptuneLoggerHook: no super()
            self.reset_flag = True

        def after_train_epoch(self, runner: Any) -> None:
            type(self).seen = self.reset_flag
            super().after_train_epoch(runner)

    fit(tmp_path, Old(interval=2))
    assert Old.seen is True


def test_departure_validation_within_an_epoch_has_its_number(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log, max_epochs=2, val_check_interval=2)
    assert [call[:2] for call in log.calls] == [("train", 1), ("val", 1)] * 2 + [
        ("train", 2),
        ("val", 2),
    ] * 2
    assert all("train/val_loss" not in tags for tags in log.tags)


class Named(TinyModule):
    """A module that logs a name with the mode as a prefix."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val/acc", 0.5)


def test_departure_a_mode_is_not_put_in_front_twice(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log, module=Named())
    assert set(log.tags[-1]) == {"val/acc", "learning_rate", "momentum"}


class Manual(TinyModule):
    """Has no optimizer."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> None:  # type: ignore[override]
        return None


@pytest.mark.filterwarnings("ignore:.*configure_optimizers. returned .None")
def test_departure_without_optimizer_there_is_no_learning_rate(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log, module=Manual())
    assert set(log.tags[0]) == {"train/loss"}


class WithoutRate(torch.optim.Optimizer):
    """An optimizer whose parameter groups have no ``lr``."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"size": 0.1})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        closure()


@pytest.mark.parametrize("all_groups", [False, True])
def test_an_optimizer_without_rates_has_none_in_lines(all_groups: bool, tmp_path: Path) -> None:
    class Module(NoValidation):
        def configure_optimizers(self) -> Any:
            return WithoutRate(self.parameters())

    log, tracker = Log(interval=2), KeepHook(all_groups=all_groups, interval=2)
    fit(tmp_path, log, tracker, TextLoggerHook(interval=2), module=Module(), val=0)
    values = [*log.tags, *(record.scalars for record in tracker.kept.records)]
    assert not any(name.startswith("learning_rate") for tags in values for name in tags)
    assert len(values) >= 4


def test_tags_can_be_chosen(tmp_path: Path) -> None:
    seen = {}

    class Choosy(LoggerHook):
        def log(self, runner: Any) -> None:
            runner.log_buffer.output["name"] = "cat"
            rates = {"learning_rate": 0.1, "momentum": 0.9}

            def tags(**kwargs: Any) -> dict[str, Any]:
                found = self.get_loggable_tags(runner, **kwargs)
                return {k: v for k, v in found.items() if k not in rates}

            seen.update(
                text=tags(allow_text=True, allow_scalar=False),
                bare=set(tags(add_mode=False)),
                skip=set(tags(tags_to_skip=("loss",))),
            )

    fit(tmp_path, IterTimerHook(), Choosy(interval=4), limit_val_batches=0)
    assert seen["text"] == {"train/name": "cat"}
    assert seen["bare"] == {"loss"}
    assert seen["skip"] == {"train/time", "train/data_time"}


def test_departure_a_0d_tensor_is_a_scalar() -> None:
    assert LoggerHook.is_scalar(torch.tensor(1.0))
    assert LoggerHook.is_scalar(torch.ones(1))
    assert LoggerHook.is_scalar(np.array(1.0))
    assert LoggerHook.is_scalar(np.float32(1.0))
    assert not LoggerHook.is_scalar(torch.ones(2))
    assert not LoggerHook.is_scalar(np.ones(1))
    assert not LoggerHook.is_scalar(torch.tensor(1.0), include_torch=False)
    assert not LoggerHook.is_scalar(np.array(1.0), include_np=False)
    assert not LoggerHook.is_scalar("1")


def test_a_logger_must_define_log(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match=r"LoggerHook must define log\(runner\)"):
        fit(tmp_path, LoggerHook(interval=1))


def test_it_pickles_after_a_run(tmp_path: Path) -> None:
    log = Log(interval=2)
    fit(tmp_path, log)
    assert pickle.loads(pickle.dumps(log)).calls == log.calls
