"""The step outputs of an ordinary LightningModule, as old hooks read the outputs."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler

from lightning_hooks import (
    EMAHook,
    FixedLrUpdaterHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    LoggerHook,
    OptimizerHook,
    TextLoggerHook,
)
from support.training import TinyModule, make_loader, make_trainer


class Counts(Hook):
    """Records ``num_samples``, mmcv's weight of logged values."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_train_iter(self, runner: Any) -> None:
        self.seen.append(runner.outputs["num_samples"])
        assert "num_samples" not in runner.outputs  # the averages of others are as before

    after_val_iter = after_train_iter


class OldOptimizerHook(OptimizerHook):
    """A copy of mmcv's ``after_train_iter``, as in old projects."""

    def after_train_iter(self, runner: Any) -> None:
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        norm = self.clip_grads(runner.model.parameters())
        runner.log_buffer.update({"grad_norm": float(norm)}, runner.outputs["num_samples"])
        runner.optimizer.step()


def test_a_loss_is_printed_as_any_other_tensor(tmp_path: Path) -> None:
    class Prints(Hook):
        shown = ""

        def after_train_iter(self, runner: Any) -> None:
            self.shown = str(runner.outputs["loss"])

    hook = Prints()
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(1), make_loader(1))
    assert hook.shown.startswith("tensor(")


@pytest.mark.parametrize("owns_backward", [False, True])
def test_the_samples_of_a_batch_are_counted_when_asked_for(
    owns_backward: bool, tmp_path: Path
) -> None:
    counts = Counts()
    hooks = [OldOptimizerHook(grad_clip=dict(max_norm=1.0))] if owns_backward else []
    trainer = make_trainer(tmp_path, HookAdapter([*hooks, (counts, "LOW")]))
    trainer.fit(TinyModule(), make_loader(2, batch_size=3), make_loader(1, batch_size=5))
    assert counts.seen == [3, 3, 5]


def test_what_the_step_returned_counts(tmp_path: Path) -> None:
    class Says(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": self.loss(batch), "num_samples": 7}

    class Reads(Hook):
        def after_train_iter(self, runner: Any) -> None:
            assert runner.outputs["num_samples"] == 7

    make_trainer(tmp_path, Reads()).fit(Says(), make_loader(1), make_loader(1))


def test_what_is_missing_is_answered_with_what_to_return(tmp_path: Path) -> None:
    class Reads(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.outputs["log_vars"]

    with pytest.raises(KeyError, match=r"no 'log_vars', only: loss; return dict\(loss=\.\.\., log"):
        make_trainer(tmp_path, Reads()).fit(TinyModule(), make_loader(1), make_loader(1))


@dataclasses.dataclass
class Result:
    score: float


RESULTS = [
    *(None, 0.5, torch.tensor(0.5), (0.5, 1), [0.5], Result(0.5), "good", {"loss": None, 1: 2}),
    *({"loss": "none", "log_vars": [0.5]}, MappingProxyType({"loss": 0.5})),
]
"""Results that Lightning accepts from an evaluation step, and some of them from a training step."""


@pytest.mark.parametrize("result", RESULTS, ids=lambda result: type(result).__name__)
def test_a_step_may_return_what_lightning_accepts(result: Any, tmp_path: Path) -> None:
    class Evaluates(TinyModule):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if isinstance(result, Mapping):
                return type(result)({**result, "loss": torch.tensor(0.5)})
            return result if isinstance(result, torch.Tensor) else None

        def validation_step(self, batch: Any, batch_idx: int) -> Any:
            return result

        test_step = validation_step

    class Reads(Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append(runner.outputs)

        after_val_iter = after_train_iter

    seen: list[Any] = []
    hooks = [Reads(), EMAHook(), TextLoggerHook(interval=1)]
    trainer = make_trainer(tmp_path, *hooks, num_sanity_val_steps=0)
    module = Evaluates()
    trainer.fit(module, make_loader(1), make_loader(1))
    trainer.test(module, make_loader(1), verbose=False)
    named = {"loss": result} if isinstance(result, (torch.Tensor, float)) else {}
    assert seen[1] == (dict(result) if isinstance(result, Mapping) else named)


def test_a_copy_leaves_the_run_behind(tmp_path: Path) -> None:
    copies: list[Any] = []

    class Keeps(Hook):
        def after_train_iter(self, runner: Any) -> None:
            copies.append(copy.copy(runner.outputs))

    make_trainer(tmp_path, Keeps()).fit(TinyModule(), make_loader(1), make_loader(1))
    assert [type(one) for one in copies] == [dict]


class Values(LoggerHook):
    """A logger whose ``__module__`` marks a logger of the package, which reads no step outputs."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(interval=1, reset_flag=True, **kwargs)
        self.losses: list[float] = []

    def log(self, runner: Any) -> None:
        if runner.mode == "train":
            self.losses.append(runner.log_buffer.output["loss"])


Values.__module__ = "lightning_hooks.loggers.base"


@pytest.mark.parametrize("by_scheduler", [False, True])
def test_loggers_get_the_loss_that_the_step_returned(by_scheduler: bool, tmp_path: Path) -> None:
    values, module = Values(), TinyModule()
    if by_scheduler:
        trainer = make_trainer(
            tmp_path, values, GradientAccumulationScheduler({0: 1, 1: 3}), max_epochs=2
        )
    else:
        trainer = make_trainer(tmp_path, values, accumulate_grad_batches=3, max_epochs=2)
    trainer.fit(module, make_loader(6), make_loader(1))
    # Lightning divides the loss by the batches of a step; undoing the division rounds
    assert values.losses == pytest.approx(module.losses, rel=1.5e-7)
    assert len(values.losses) == 12


def test_nothing_stands_before_the_step_where_there_are_only_loggers(tmp_path: Path) -> None:
    class Looks(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            # the first step reveals the names of the logged loss
            assert batch_idx == 0 or "training_step" not in vars(self)
            return super().training_step(batch, batch_idx)

    hooks = [Values(), IterTimerHook(), FixedLrUpdaterHook()]
    make_trainer(tmp_path, *hooks).fit(Looks(), make_loader(4), make_loader(1))
    assert len(hooks[0].losses) == 4


@pytest.mark.parametrize("point", ["before_train_iter", "after_train_iter", "after_train_epoch"])
def test_a_reader_that_comes_in_mid_run_reads_the_next_step(point: str, tmp_path: Path) -> None:
    class Reads(Hook):
        def __init__(self) -> None:
            self.losses: list[float] = []

        def after_train_iter(self, runner: Any) -> None:
            self.losses.append(float(runner.outputs["loss"]))

    class Brings(Hook):
        _reads_step = False

        def bring(self, runner: Any) -> None:
            if not reader.losses and reader not in runner.hooks:
                runner.register_hook(reader, "LOW")

    reader, module = Reads(), TinyModule()
    setattr(Brings, point, Brings.bring)
    make_trainer(tmp_path, Brings(), Values(), max_epochs=2).fit(
        module, make_loader(3), make_loader(1)
    )
    read = {"before_train_iter": 6, "after_train_iter": 5, "after_train_epoch": 3}[point]
    assert reader.losses == module.losses[-read:]
