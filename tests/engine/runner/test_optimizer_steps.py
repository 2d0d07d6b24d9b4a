"""Hooks count only the optimizer's actual steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import EMAHook, Hook, LinearAnnealingLrUpdaterHook, TextLoggerHook
from support.training import NoValidation, make_loader, make_trainer


class SometimesOnlyCloses(NoValidation):
    """A module that skips the optimizer step of every third batch."""

    steps = 0

    def optimizer_step(self, epoch: Any, batch_idx: Any, optimizer: Any, closure: Any) -> None:
        if batch_idx % 3 == 2:
            closure()
            return
        self.steps += 1
        optimizer.step(closure=closure)


class Derived(torch.optim.SGD):
    """Calls the base class's step, so torch reports two steps."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


class WithDerived(SometimesOnlyCloses):
    """A module with an optimizer of a derived class."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        torch.optim.SGD(self.parameters(), lr=0.1)  # from now on the base class reports too
        return Derived(self.parameters(), lr=0.1)


@pytest.mark.parametrize("kind", [SometimesOnlyCloses, WithDerived])
def test_a_step_that_only_calls_the_closure_is_none(kind: Any, tmp_path: Path) -> None:
    module, average = kind(), EMAHook(momentum=0.1, warm_up=0)
    rate = LinearAnnealingLrUpdaterHook(min_lr=0.0, by_step=True, by_epoch=False)
    trainer = make_trainer(tmp_path, average, rate, max_epochs=2)
    trainer.fit(module, make_loader(9))
    assert trainer.global_step == 18
    assert module.steps == average.steps == 12
    # the rate of the last iteration, after 12 of 18 steps; the last step is skipped
    last = trainer.optimizers[0].param_groups[0]["lr"]
    assert last == pytest.approx(0.1 * (1 - 12 / 18))


def test_optimizers_set_in_training_are_counted_from_their_first_step(tmp_path: Path) -> None:
    class SetsAnother(NoValidation):
        def on_train_epoch_start(self) -> None:
            if self.current_epoch == 1:
                self.trainer.optimizers = [torch.optim.Adam(self.parameters(), lr=0.01)]

    average = EMAHook(momentum=0.1, warm_up=0)
    make_trainer(tmp_path, average, max_epochs=3).fit(SetsAnother(), make_loader(4))
    assert average.steps == 12


def test_nothing_is_left_on_the_optimizers(tmp_path: Path) -> None:
    average = EMAHook(momentum=0.1)
    trainer = make_trainer(tmp_path, average)
    trainer.fit(NoValidation(), make_loader(2))
    (optimizer,) = trainer.optimizers
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks


class Scheduled(NoValidation):
    """A module with a scheduler."""

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Unfreezes(Hook):
    """Adds a parameter group after the first step; records the rates of each step."""

    def __init__(self) -> None:
        self.rates: list[Any] = []

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter == 0:
            group = {"params": [torch.nn.Parameter(torch.zeros(1))], "lr": 0.2}
            runner.optimizer.add_param_group(group)
        self.rates.append(runner.step_rates.of_groups("lr", "learning_rate"))


def test_a_group_added_after_a_step_has_a_rate_from_the_next_step_on(tmp_path: Path) -> None:
    hook = Unfreezes()
    make_trainer(tmp_path, hook, TextLoggerHook()).fit(Scheduled(), make_loader(2))
    first, second = {"learning_rate/0": 0.1}, {"learning_rate/0": 0.1, "learning_rate/1": 0.2}
    assert hook.rates == [pytest.approx(first), pytest.approx(second)]
