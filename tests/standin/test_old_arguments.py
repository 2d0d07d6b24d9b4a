"""Arguments asserted by mmcv, and arguments accepted by mmcv but not by native hooks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

import lightning_hooks
from support.standin import Idle, make

DATA = DataLoader(range(2))
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("StepLrUpdaterHook", {"step": -10}),
    ("StepLrUpdaterHook", {"step": [10, 16, -20]}),
    ("CosineRestartLrUpdaterHook", {"periods": [2, 10], "restart_weights": [1], "min_lr": 0}),
    ("CosineAnnealingLrUpdaterHook", {"min_lr": 0.1, "min_lr_ratio": 0}),
    ("FlatCosineAnnealingLrUpdaterHook", {}),
    ("LinearAnnealingLrUpdaterHook", {}),
    ("CyclicLrUpdaterHook", {"by_epoch": True}),
    ("CyclicLrUpdaterHook", {"target_ratio": (10.0, 0.1, 0.2)}),
    ("OneCycleLrUpdaterHook", {"max_lr": 0.1, "by_epoch": True}),
    ("StepMomentumUpdaterHook", {"step": 0}),
    ("CosineAnnealingMomentumUpdaterHook", {}),
    ("LinearAnnealingMomentumUpdaterHook", {}),
    ("CyclicMomentumUpdaterHook", {"gamma": 0}),
    ("OneCycleMomentumUpdaterHook", {"by_epoch": True}),
    ("GradientCumulativeOptimizerHook", {"cumulative_iters": "two"}),
    ("GradientCumulativeFp16OptimizerHook", {"cumulative_iters": 0}),
    ("EvalHook", {"dataloader": DATA, "save_best": True}),
    ("DistEvalHook", {"dataloader": DATA, "save_best": True}),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_arguments_are_an_assertion_error_here_and_the_native_error_too(
    name: str, arguments: dict[str, Any]
) -> None:
    import mmcv.runner

    native = getattr(lightning_hooks, name)
    with pytest.raises((TypeError, ValueError)) as caught:
        native(**arguments)
    assert not isinstance(caught.value, AssertionError)
    with pytest.raises(AssertionError) as ours:
        getattr(mmcv.runner, name)(**arguments)
    assert str(ours.value) == str(caught.value)
    assert isinstance(ours.value, type(caught.value))


def test_an_unknown_rule_is_a_key_error_as_in_mmcv() -> None:
    from mmcv.runner import EvalHook

    with pytest.raises(KeyError, match="rule must be greater, less or None"):
        EvalHook(DATA, save_best="acc", rule="more")


def test_configs_get_the_same_classes() -> None:
    from mmcv.runner import HOOKS, GradientCumulativeOptimizerHook, StepLrUpdaterHook

    assert HOOKS.get("StepLrUpdaterHook") is StepLrUpdaterHook
    found = HOOKS.build({"type": "GradientCumulativeOptimizerHook", "cumulative_iters": 2})
    assert type(found) is GradientCumulativeOptimizerHook
    assert issubclass(HOOKS.get("StepMomentumUpdaterHook"), mmcv_base("MomentumUpdaterHook"))
    assert issubclass(HOOKS.get("CyclicMomentumUpdaterHook"), mmcv_base("MomentumUpdaterHook"))


def mmcv_base(name: str) -> Any:
    from mmcv.runner.hooks import momentum_updater

    return getattr(momentum_updater, name)


@pytest.mark.parametrize("unit", ["EpochBasedRunner", "IterBasedRunner"])
def test_a_warm_up_may_bring_a_momentum_above_1_with_a_warning(unit: str, tmp_path: Path) -> None:
    model, seen = Idle(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.75)
    limit = 1 if unit == "EpochBasedRunner" else 2
    runner = make(unit, limit, tmp_path, model, optimizer=optimizer)
    config = {"type": "StepMomentumUpdaterHook", "by_epoch": False, "step": 10}
    warm_up = {"warmup": "constant", "warmup_iters": 1, "warmup_ratio": 0.5}
    runner.register_hook_from_cfg({**config, **warm_up})

    class Reader(lightning_hooks.Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append(runner.optimizer.param_groups[0]["momentum"])

    runner.register_hook(Reader())
    with pytest.warns(UserWarning, match="StepMomentumUpdaterHook sets momenta outside of"):
        runner.run([DATA], [("train", 1)])
    assert seen == [1.5, 0.75]


def test_a_runner_without_an_optimizer_shows_hooks_none_and_resumes(tmp_path: Path) -> None:
    seen = []

    class Reader(lightning_hooks.Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append(runner.optimizer)

    runner = make("EpochBasedRunner", 1, tmp_path, optimizer=None)
    runner.register_hook(Reader())
    runner.register_checkpoint_hook({"interval": 1})
    runner.run([DATA], [("train", 1)])
    assert seen == [None, None]
    assert "optimizer" not in torch.load(tmp_path / "epoch_1.pth")
    again = make("EpochBasedRunner", 1, tmp_path, optimizer=None)
    again.resume(str(tmp_path / "epoch_1.pth"))
    assert (again.epoch, again.iter) == (1, 2)
