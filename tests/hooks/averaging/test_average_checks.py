"""Averages report incompatible callbacks, and averages of too few steps, when a fit starts."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging

from lightning_hooks import (
    ClosureHook,
    EMAHook,
    ExpMomentumEMAHook,
    HookAdapter,
    LinearMomentumEMAHook,
    MomentumAnnealingEMAHook,
)
from lightning_hooks.standin._hooks.ema import EMAHook as MmcvEMAHook
from support.lightning_releases import ema_weight_averaging
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer


@pytest.mark.parametrize("host", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("name", ["EMAWeightAveraging", "StochasticWeightAveraging"])
def test_lightnings_averages_are_rivals(tmp_path: Path, name: str, host: bool) -> None:
    swa = name == "StochasticWeightAveraging"
    other = StochasticWeightAveraging(swa_lrs=0.03) if swa else ema_weight_averaging(0.5)
    hook = EMAHook(momentum=0.5)
    trainer = make_trainer(tmp_path, HookAdapter([hook]) if host else hook, other)
    with pytest.warns(UserWarning, match=f"{name} and EMAHook both set the weights"):
        trainer.fit(TinyModule(), make_loader(3), make_loader(1))


@pytest.mark.parametrize("mmcv_first", [True, False])
def test_a_hook_that_swaps_as_mmcv_is_refused(tmp_path: Path, mmcv_first: bool) -> None:
    pair = [MmcvEMAHook(), EMAHook()]
    with pytest.raises(ValueError, match=r"EMAHook and EMAHook of .*standin.* both"):
        fit(tmp_path, *(pair if mmcv_first else pair[::-1]), module=NoValidation, host=True)


class Jump(Callback):
    """Sets all weights to 0 before the average begins, and to 1 afterward."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        for parameter in pl_module.parameters():
            torch.nn.init.zeros_(parameter)

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch >= self.epoch:
            for parameter in pl_module.parameters():
                torch.nn.init.ones_(parameter)


@pytest.mark.parametrize(
    ("make", "options", "young"),
    [
        (EMAHook, {"momentum": 0.1, "warm_up": 300}, True),
        (EMAHook, {"momentum": 0.01, "warm_up": 10}, True),
        (EMAHook, {"momentum": 0.03, "interval": 3, "warm_up": 0}, True),
        (EMAHook, {"momentum": 0.1, "begin_epoch": 1, "warm_up": 0}, True),
        (EMAHook, {"momentum": 0.1, "warm_up": 20}, False),
        (EMAHook, {"momentum": 0.0001, "warm_up": "fast"}, False),
        (LinearMomentumEMAHook, {"momentum": 0.1, "warm_up": 300}, True),
        (LinearMomentumEMAHook, {"momentum": 0.01, "interval": 2}, True),
        (ExpMomentumEMAHook, {"momentum": 0.01}, False),
    ],
)
def test_the_reported_share_of_a_young_average_is_true(
    tmp_path: Path, caplog: Any, make: Any, options: dict[str, Any], young: bool
) -> None:
    hook = make(**options)
    with caplog.at_level(logging.WARNING):
        fit(
            *(tmp_path, hook),
            module=NoValidation(lr=0.0),
            batches=6,
            max_epochs=2,
            callbacks=[Jump(hook._begin_epoch)],
        )
    share = 1 - float(hook.ema_state_dict()["net.weight"].mean())
    shares = re.findall(r"too young: .* (\d+%) of the average", caplog.text)
    assert (share > 0.5) is young
    assert shares == ([f"{share:.0%}"] * 2 if young else [])  # where the run begins, and ends


AVERAGES = EMAHook, ExpMomentumEMAHook, LinearMomentumEMAHook, MomentumAnnealingEMAHook


@pytest.mark.parametrize("make", AVERAGES)
@pytest.mark.parametrize("momentum", [0.5, 0.999])
def test_a_decay_given_as_momentum_is_told_of(
    tmp_path: Path, caplog: Any, make: Any, momentum: float
) -> None:
    fit(tmp_path, make(momentum=momentum), module=NoValidation, batches=2)
    line = f"{make.__name__}(momentum=0.999): momentum is the weight of the model"
    assert (line in caplog.text) is (momentum > 0.5)
    assert ("a decay of 0.999 is momentum=0.001" in caplog.text) is (momentum > 0.5)


@pytest.mark.parametrize("name", ["decay", "beta", "ema_decay"])
@pytest.mark.parametrize("make", [EMAHook, LinearMomentumEMAHook])
def test_a_decay_by_name_is_answered_with_the_momentum(make: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"{name}=0.9999 is momentum=0.0001"):
        make(**{name: 0.9999})


@pytest.mark.parametrize(
    ("make", "steps"), [(EMAHook, [1, 4, 7, 10]), (ExpMomentumEMAHook, [3, 6, 9])]
)
def test_the_steps_with_an_update(tmp_path: Path, make: Any, steps: list[int]) -> None:
    hook, found = make(momentum=0.5, interval=3), [0]
    count = ClosureHook("after_train_iter", lambda runner: found.append(hook.updates))
    fit(tmp_path, HookAdapter([hook, (count, "LOWEST")]), module=NoValidation, batches=11)
    assert [step for step in range(1, 12) if found[step] > found[step - 1]] == steps
