"""A line of a logger at iteration t, with interval n, averages the iterations (t - n, t]."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader
from torchmetrics import MeanMetric

from lightning_hooks import (
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    OptimizerHook,
    TextLoggerHook,
)
from lightning_hooks.loggers.base import LoggerHook
from support.training import make_loader, make_trainer


class Counting(L.LightningModule):
    """Logs ``i``, the number of the step from 0, and ``rare``, every fifth step's number."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1)
        self.count = 0

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        step, self.count = self.count, self.count + 1
        self.log("i", float(step))
        if step % 5 == 0:
            self.log("rare", float(step))
        return self.net(batch[0]).mean()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("acc", 0.5)

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Lines(LoggerHook):
    """Keeps the step and the values of each line."""

    def log(self, runner: Any) -> None:
        lines: list[Any] = vars(self).setdefault("lines", [])
        lines.append((self.get_iter(runner), self.get_loggable_tags(runner)))

    def of(self, key: str) -> list[tuple[int, float]]:
        return [(step, tags[key]) for step, tags in self.lines if key in tags]


HOW = pytest.mark.parametrize(("hosted", "by_epoch"), [(False, True), (True, False)])


def fit(
    tmp_path: Path,
    *hooks: Any,
    batches: int = 20,
    epochs: int = 2,
    hosted: bool = False,
    by_epoch: bool = True,
    module: Any = None,
    val: int = 0,
    **arguments: Any,
) -> Any:
    for hook in hooks:
        if isinstance(hook, LoggerHook):
            hook.by_epoch = by_epoch
    callbacks = [HookAdapter([*hooks], by_epoch=by_epoch)] if hosted else [*hooks]
    module = module or Counting()
    trainer = L.Trainer(
        callbacks=callbacks,
        max_epochs=epochs,
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        limit_val_batches=val,
        **arguments,
    )
    trainer.fit(module, make_loader(batches), make_loader(max(val, 1)))
    return module


@HOW
def test_a_value_of_every_fifth_step_is_averaged_over_the_interval(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    log = Lines(interval=10)
    fit(tmp_path, log, hosted=hosted, by_epoch=by_epoch)
    assert log.of("train/rare") == [(10, 2.5), (20, 12.5), (30, 22.5), (40, 32.5)]
    assert log.of("train/i") == [(10, 4.5), (20, 14.5), (30, 24.5), (40, 34.5)]


@HOW
def test_the_gradients_norm_under_accumulation(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    class Ramp(Counting):
        """A module whose mean gradient norm equals the mean of the step numbers."""

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.count += 1
            return self.net.bias.sum() * (self.count - (self.count - 1) % 5 + 2) * 2

    log = Lines(interval=10)
    options = {"accumulate_grad_batches": 5, "module": Ramp()}
    optimizer = OptimizerHook({"max_norm": 1e9})
    fit(tmp_path, optimizer, log, hosted=hosted, by_epoch=by_epoch, **options)
    # for the steps 1..5 the mean is 2 * 3, for 6..10 2 * 8, and so on
    found = [(step, round(value, 4)) for step, value in log.of("train/grad_norm")]
    assert found == [(10, 11.0), (20, 31.0), (30, 51.0), (40, 71.0)]


@HOW
def test_a_value_logged_once_appears_once(tmp_path: Path, hosted: bool, by_epoch: bool) -> None:
    class Once(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 3:
                runner.log_buffer.update({"once": 7})

    log = Lines(interval=5)
    fit(tmp_path, Once(), log, hosted=hosted, by_epoch=by_epoch)
    assert log.of("train/once") == [(5, 7.0)]


@pytest.mark.filterwarnings("ignore:.*training_step. returned .None")
@HOW
def test_steps_that_return_none_do_not_shift_the_loss(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    class Skips(Counting):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            step, self.count = self.count, self.count + 1
            return None if step % 3 else self.net.bias.sum() * 0 + step

    log = Lines(interval=10)
    fit(tmp_path, log, hosted=hosted, by_epoch=by_epoch, module=Skips(), batches=40, epochs=1)
    assert log.of("train/loss") == [(10, 4.5), (20, 15.0), (30, 24.0), (40, 34.5)]


@HOW
@pytest.mark.parametrize("order", [1, -1])
def test_each_logger_has_its_own_interval(
    tmp_path: Path, hosted: bool, by_epoch: bool, order: int
) -> None:
    often, rarely = Lines(interval=2), Lines(interval=10)
    fit(tmp_path, *(often, rarely)[::order], hosted=hosted, by_epoch=by_epoch)
    assert rarely.of("train/i") == [(10, 4.5), (20, 14.5), (30, 24.5), (40, 34.5)]
    assert often.of("train/i") == [(t, t - 1.5) for t in range(2, 41, 2)]


@HOW
@pytest.mark.parametrize("order", [1, -1])
def test_what_hooks_put_into_the_output_reaches_every_logger_once(
    tmp_path: Path, hosted: bool, by_epoch: bool, order: int
) -> None:
    class Results(Hook):
        priority = "LOW"

        def after_train_iter(self, runner: Any) -> None:
            output = runner.log_buffer.output
            output["steady"] = 1  # the same object in every iteration
            if runner.iter == 4:
                output["quiet"] = 0.25
            if runner.iter == 12:
                output["score"] = 0.75
                runner.log_buffer.ready = True

    often, rarely = Lines(interval=2), Lines(interval=10)
    fit(tmp_path, Results(), *(often, rarely)[::order], hosted=hosted, by_epoch=by_epoch)
    assert often.of("train/quiet") == [(6, 0.25)]
    assert rarely.of("train/quiet") == [(10, 0.25)]
    assert often.of("val/score") == rarely.of("val/score") == [(13, 0.75)]
    assert [step for step, _ in often.of("train/steady")] == [*range(2, 41, 2)]
    assert [step for step, _ in rarely.of("train/steady")] == [10, 20, 30, 40]


def test_by_iteration_a_window_reaches_back_into_the_epoch_before(tmp_path: Path) -> None:
    log = Lines(interval=10)
    fit(tmp_path, log, by_epoch=False, batches=7, epochs=3)
    assert log.of("train/i") == [(10, 4.5), (20, 14.5)]


@HOW
def test_a_validation_inside_an_epoch_leaves_the_window_alone(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    log = Lines(interval=10)
    how = {"hosted": hosted, "by_epoch": by_epoch}
    fit(tmp_path, log, val=2, val_check_interval=9, epochs=1, **how)
    assert log.of("train/i") == [(10, 4.5), (20, 14.5)]
    assert log.of("val/acc") == [(9, 0.5), (18, 0.5)]


@pytest.mark.parametrize("hosted", [False, True])
def test_an_epoch_shorter_than_the_interval_has_one_line(tmp_path: Path, hosted: bool) -> None:
    log, last = Lines(interval=10), Lines(interval=10, ignore_last=False)
    fit(tmp_path, log, last, hosted=hosted, batches=7)
    assert log.of("train/i") == last.of("train/i") == [(7, 3.0), (14, 10.0)]


def test_a_run_by_iteration_shorter_than_the_interval_has_one_line(tmp_path: Path) -> None:
    log = Lines(interval=10)
    fit(tmp_path, log, hosted=True, by_epoch=False, batches=3, epochs=2)
    assert log.of("train/i") == [(6, 2.5)]


@pytest.mark.parametrize("hosted", [False, True])
def test_so_has_one_that_ends_at_max_steps(tmp_path: Path, hosted: bool) -> None:
    log = Lines(interval=20)
    fit(tmp_path, log, hosted=hosted, by_epoch=False, batches=8, epochs=-1, max_steps=11)
    assert log.of("train/i") == [(11, 5.0)]


@pytest.mark.parametrize("hosted", [False, True])
def test_so_has_one_that_a_hook_ends(tmp_path: Path, hosted: bool) -> None:
    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 4

    log = Lines(interval=10)
    fit(tmp_path, Stop(), log, hosted=hosted, by_epoch=False)
    assert log.of("train/i") == [(5, 2.0)]


def test_an_epoch_that_a_hook_cuts_short_has_its_line(tmp_path: Path) -> None:
    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 4

    log = Lines(interval=10)
    fit(tmp_path, Stop(), log)
    assert log.of("train/i") == [(5, 2.0)]


@HOW
def test_the_rest_of_a_run_that_is_stopped_has_its_line(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    class Stop(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            trainer.should_stop = trainer.global_step == 12

    log = Lines(interval=5, ignore_last=False)
    kept = Lines(interval=5)
    hooks = [log, kept]
    callbacks = [HookAdapter(hooks, by_epoch=by_epoch)] if hosted else hooks  # type: ignore[arg-type]
    log.by_epoch = kept.by_epoch = by_epoch
    trainer = make_trainer(tmp_path, *callbacks, Stop(), max_epochs=1, limit_val_batches=0)
    trainer.fit(Counting(), make_loader(20), make_loader(1))
    assert log.of("train/i") == [(5, 2.0), (10, 7.0), (12, 10.5)]
    assert kept.of("train/i") == [(5, 2.0), (10, 7.0)]


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize(
    "value",
    ["cat", None, {"a": 1}, 10**400, 1j, torch.tensor(1j)],
    ids=["str", "None", "dict", "int", "complex", "tensor"],
)
def test_what_cannot_be_averaged_raises_where_it_is_put(
    tmp_path: Path, hosted: bool, value: Any
) -> None:
    class Puts(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.log_buffer.update({"fine": 1, "odd": value})

    with pytest.raises((TypeError, OverflowError), match="'odd'") as caught:
        fit(tmp_path, Puts(), Lines(), hosted=hosted, batches=1, epochs=1)
    text = "".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "Puts.after_train_iter" in text


class Scheduled(Counting):
    """A module with a scheduler by step or by epoch."""

    every = "step"

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0, momentum=0.9)
        halve = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": halve, "interval": self.every},
        }


class ScheduledByEpoch(Scheduled):
    every = "epoch"


class ScheduledByHand(Scheduled):
    """A module with manual optimization and a scheduler."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        scheduler: Any = self.lr_schedulers()
        scheduler.step()


@HOW
@pytest.mark.parametrize(
    ("module", "accumulate", "rates"),
    [
        (Scheduled, 1, {1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125}),
        (ScheduledByHand, 1, {1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125}),
        (Scheduled, 2, {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}),
        (ScheduledByEpoch, 1, {1: 1.0, 2: 1.0, 3: 0.5, 4: 0.5}),
    ],
)
def test_the_learning_rate_is_the_one_that_the_step_used(
    tmp_path: Path,
    hosted: bool,
    by_epoch: bool,
    module: type[Scheduled],
    accumulate: int,
    rates: dict[int, float],
) -> None:
    log = Lines(interval=1)
    how = {"hosted": hosted, "by_epoch": by_epoch, "module": module(), "batches": 2, "epochs": 2}
    fit(tmp_path, log, **how, accumulate_grad_batches=accumulate)
    assert dict(log.of("learning_rate")) == rates
    assert {value for _, value in log.of("momentum")} == {0.9}
    optimizer: Any = how["module"].trainer.optimizers[0]
    assert not optimizer._optimizer_step_pre_hooks  # nothing is left behind


def test_a_line_that_ends_a_short_epoch_has_the_rate_of_its_last_step(tmp_path: Path) -> None:
    log = Lines(interval=10)
    fit(tmp_path, log, module=Scheduled(), batches=3, epochs=1)
    assert log.of("learning_rate") == [(3, 0.25)]


def test_a_batch_of_none_does_not_shift_the_rates_of_the_lines_after_it(tmp_path: Path) -> None:
    log, module, batches = Lines(interval=1), Scheduled(), [*make_loader(4)]
    batches[1] = None
    trainer = make_trainer(tmp_path, log)
    with pytest.warns(UserWarning, match="train_dataloader yielded None"):
        trainer.fit(module, DataLoader(batches, batch_size=None), make_loader(1))
    # Lightning moves the rate on after the empty batch, too
    assert log.of("learning_rate")[:3] == [(1, 1.0), (3, 0.25), (4, 0.125)]


class LogsItsLoss(Counting):
    """A module that logs the returned loss under other names, and tensors of equal value."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        step, self.count = self.count, self.count + 1
        loss = task = self.net(batch[0]).mean()
        if step >= 10:
            loss = loss + 1
        self.log("train_loss", loss)
        self.log_dict({"detached": loss.detach(), "equal": loss * 1})
        self.log("task", task)
        return {"loss": loss}


@HOW
@pytest.mark.parametrize(("accumulate", "owned"), [(1, False), (3, False), (1, True)])
def test_the_loss_and_the_same_tensor_logged_by_the_module_are_one_column(
    tmp_path: Path, hosted: bool, by_epoch: bool, accumulate: int, owned: bool
) -> None:
    log = Lines(interval=10)
    how = {"hosted": hosted, "by_epoch": by_epoch, "epochs": 1}
    module = LogsItsLoss()
    hooks = [log, *([GradientCumulativeOptimizerHook(cumulative_iters=2)] if owned else [])]
    fit(tmp_path, *hooks, module=module, accumulate_grad_batches=accumulate, **how)
    first, second = (tags.keys() - {"learning_rate", "momentum"} for _, tags in log.lines)
    assert first == {"train/loss", "train/equal"}
    assert second == {"train/loss", "train/equal", "train/task"}  # from here on the loss differs
    assert not {"log", "training_step"} & vars(module).keys()  # nothing is left behind


class AveragesItsLoss(Counting):
    """A module that logs the loss as a torchmetrics metric, and another metric."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.other = MeanMetric(), MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.mean(loss)
        self.other(2 * loss)
        self.log("train_loss", self.mean, on_step=True, on_epoch=True)
        self.log("other", self.other, on_step=True, on_epoch=False)
        return loss


def test_the_loss_and_a_metric_of_the_loss_are_one_column(tmp_path: Path) -> None:
    lines = Lines(interval=10)
    fit(tmp_path, lines, epochs=1, module=AveragesItsLoss())
    first = lines.lines[0][1]
    assert {"train/loss", "train/other"} <= first.keys()
    assert "train/train_loss" not in first


class ValidatesQuietly(Counting):
    """Logs nothing in a validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.net(batch[0])


def test_a_validation_without_values_is_no_line(tmp_path: Path) -> None:
    lines, text = Lines(interval=10), TextLoggerHook(interval=10)
    fit(tmp_path, lines, text, epochs=1, val=2, module=ValidatesQuietly())
    assert [step for step, _ in lines.lines] == [10, 20]
    (path,) = tmp_path.rglob("*.log.json")
    assert {json.loads(line)["mode"] for line in path.read_text().splitlines()} == {"train"}
    assert "(val)" not in path.with_suffix("").read_text()


@HOW
def test_departure_a_shorter_last_line_averages_its_own_iterations(
    tmp_path: Path, hosted: bool, by_epoch: bool
) -> None:
    log = Lines(interval=4, ignore_last=False)
    fit(tmp_path, log, hosted=hosted, by_epoch=by_epoch, batches=10, epochs=2)
    ends = [4, 8, 10, 14, 18, 20] if by_epoch else [4, 8, 10, 12, 16, 20]
    means = [1.5, 5.5, 8.5, 11.5, 15.5, 18.5] if by_epoch else [1.5, 5.5, 8.5, 9.5, 13.5, 17.5]
    assert log.of("train/i") == [*zip(ends, means, strict=True)]
