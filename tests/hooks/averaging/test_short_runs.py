"""What is reported of an ``EMAHook`` that a run is too short for is true, and the advice helps."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import ClosureHook, EMAHook, ExpMomentumEMAHook, HookAdapter
from support.training import NoValidation, fit


class Jump(Callback):
    """The weights are 0 where the average begins, and 1 from its first step on."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        for parameter in pl_module.parameters():
            torch.nn.init.zeros_(parameter)

    def on_train_batch_start(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if trainer.current_epoch >= self.epoch:
            for parameter in pl_module.parameters():
                torch.nn.init.ones_(parameter)


def share_and_advice(folder: Path, caplog: Any, **options: Any) -> tuple[float, str, str]:
    """Train; return the true share of the beginning, the reported percents and the advice."""
    hook = EMAHook(**options)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        fit(
            *(folder, hook),
            module=NoValidation(lr=0.0),
            batches=6,
            max_epochs=2,
            callbacks=[Jump(hook.begin_epoch)],
        )
    average = hook.ema_state_dict()["net.weight"]
    found = re.search(r"run (\d+)% of the average.*; write (.*), or train longer", caplog.text)
    return 1 - float(average.mean()), *(found.groups() if found else ("", ""))


@pytest.mark.parametrize(
    ("options", "advice", "helps"),
    [
        ({"momentum": 0.1, "warm_up": 300}, "a smaller warm_up, such as 0", {"warm_up": 0}),
        ({"momentum": 0.5, "warm_up": 300}, "a smaller warm_up, such as 0", {"warm_up": 0}),
        (
            {"momentum": 0.01, "warm_up": 10},
            "a larger momentum, such as 0.5",
            {"momentum": 0.5},
        ),
        (
            {"momentum": 0.03, "interval": 3, "warm_up": 0},
            "a larger momentum, such as 0.5",
            {"momentum": 0.5},
        ),
        ({}, "a larger momentum, such as 0.5", {"momentum": 0.5}),
        (
            {"momentum": 0.01, "warm_up": 300},
            "warm_up=0 and a larger momentum, such as 0.5",
            {"momentum": 0.5, "warm_up": 0},
        ),
        (
            {"momentum": 0.1, "begin_epoch": 1, "warm_up": 0},
            "a larger momentum, such as 0.5",
            {"momentum": 0.5},
        ),
    ],
)
def test_the_share_is_true_and_the_advice_helps(
    tmp_path: Path, caplog: Any, options: dict[str, Any], advice: str, helps: dict[str, Any]
) -> None:
    share, percent, said = share_and_advice(tmp_path, caplog, **options)
    assert percent == f"{share:.0%}".removesuffix("%")
    assert said == advice
    share, percent, said = share_and_advice(tmp_path, caplog, **{**options, **helps})
    assert share <= 0.5
    assert not said


def test_a_run_that_is_long_enough_is_not_reported(tmp_path: Path, caplog: Any) -> None:
    share, percent, _ = share_and_advice(tmp_path, caplog, momentum=0.1, warm_up=20)
    assert share < 0.5
    assert not percent


@pytest.mark.parametrize(
    ("make", "steps"), [(EMAHook, [1, 4, 7, 10]), (ExpMomentumEMAHook, [3, 6, 9])]
)
def test_the_steps_with_an_update(tmp_path: Path, make: Any, steps: list[int]) -> None:
    hook, found = make(momentum=0.5, interval=3), [0]
    count = ClosureHook("after_train_iter", lambda runner: found.append(hook.updates))
    fit(tmp_path, HookAdapter([hook, (count, "LOWEST")]), module=NoValidation, batches=11)
    assert [step for step in range(1, 12) if found[step] > found[step - 1]] == steps
