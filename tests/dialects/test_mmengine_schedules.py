"""MMEngine's ``param_scheduler`` lists as hooks; tests/peers has the values beside mmengine's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import HOOKS, hooks_from_config
from lightning_hooks.cli.app import run
from lightning_hooks.dialects.mmengine import hooks_of_param_scheduler
from lightning_hooks.schedules import sample

WARM_UP = {"type": "LinearLR", "start_factor": 0.001, "by_epoch": False, "begin": 0, "end": 501}
STEPS = {"type": "MultiStepLR", "begin": 0, "end": 12, "by_epoch": True, "milestones": [8, 11]}
COSINE = {"type": "CosineAnnealingLR", "T_max": 8, "eta_min": 0.1, "end": 8, "by_epoch": True}


def test_a_list_becomes_a_hook_for_each_quantity() -> None:
    momentum = {"type": "StepMomentum", "step_size": 2, "gamma": 0.5}
    decay = {"type": "ExponentialParamScheduler", "param_name": "weight_decay", "gamma": 0.5}
    found = hooks_of_param_scheduler([WARM_UP, STEPS, momentum, decay], max_epochs=12)
    names = ["StepLrUpdaterHook", "StepMomentumUpdaterHook", "FieldUpdaterHook"]
    assert [config["type"] for config in found] == names
    assert found[0]["warmup_iters"] == 500


def test_what_stays_after_a_scheduler_is_its_last_value() -> None:
    [config] = hooks_of_param_scheduler(COSINE, max_epochs=10)
    rates = sample(HOOKS.build(config), max_epochs=10, iters_per_epoch=1, base_lr=1.0)
    # mmengine's, of step 7 of 8
    assert rates[7:] == [pytest.approx(0.134254, abs=1e-6)] * 3


@pytest.mark.parametrize(
    ("schedulers", "message"),
    [
        ([{"type": "ReduceOnPlateauLR"}], "no hook follows 'ReduceOnPlateauLR'"),
        ([{"type": "MultiStepLr", "milestones": [1]}], "did you mean 'MultiStepLR'"),
        ([COSINE, STEPS], "two schedulers of lr in param_scheduler act at 0"),
        ([{**COSINE, "T_max": 4}], "T_max=4 rises again"),
        ([{**COSINE, "end": 4}, {**STEPS, "begin": 4, "by_epoch": False}], "in epochs and in iter"),
        ([{"type": "LinearLR", "end": 5}], "in stairs, has no counterpart"),
        ([{"type": "PolyLR", "by_epoch": False}], "a PolyLR of param_scheduler needs an end"),
        ([{**WARM_UP, "end": 1}], "a LinearLR of param_scheduler with end=1 warms nothing up"),
        ([{**WARM_UP, "type": "LinearMomentum"}], "a warm-up of momentum .* has no counterpart"),
        ([{"type": "CosineRestartMomentum", "periods": [12]}], "CosineRestartMomentum of param_s"),
        (
            [COSINE, {"type": "CosineRestartLR", "periods": [1], "begin": 8, "end": 9}],
            "single step",
        ),
        ([COSINE, {**COSINE, "begin": 8, "end": 12, "eta_min_ratio": 0.1}], "set eta_min"),
        ([{"type": "OneCycleLR", "eta_max": 1}], "set begin=0 and convert_to_iter_based=True"),
        ([3], r"param_scheduler\[0\] must be a dict"),
    ],
)
def test_what_no_hook_follows_is_told(schedulers: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hooks_of_param_scheduler(schedulers, max_epochs=12)


def test_a_type_may_be_a_class() -> None:
    """A config that imports the class has a class as ``type``."""
    of_class = {**STEPS, "type": type("MultiStepLR", (), {})}
    expected = hooks_of_param_scheduler(STEPS, max_epochs=12)
    assert hooks_of_param_scheduler(of_class, max_epochs=12) == expected


def test_iterations_in_a_run_by_epoch() -> None:
    decay = {"type": "ExponentialLR", "by_epoch": False, "gamma": 0.9}
    [config] = hooks_of_param_scheduler(decay, max_epochs=2)
    rates = sample(HOOKS.build(config), max_epochs=1, iters_per_epoch=3, base_lr=1.0)
    assert rates == pytest.approx([1.0, 0.9, 0.81])


@pytest.mark.filterwarnings("ignore:not used of MMEngine")
def test_a_config_of_mmengine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "config.py"
    path.write_text(
        f"param_scheduler = [{WARM_UP}, {STEPS}]\n"
        "train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=12, val_interval=1)\n"
        "optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.02))\n"
    )
    hooks = hooks_from_config(str(path))
    assert type(hooks.hooks[0]).__name__ == "StepLrUpdaterHook"
    assert hooks.trainer_kwargs["max_epochs"] == 12
    assert run(["convert", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "StepLrUpdaterHook(" in shown
    assert "max_epochs=12" in shown
    assert run(["plot", str(path), "--iters-per-epoch", "50", "--out", str(tmp_path / "p")]) == 0
    assert (tmp_path / "p.png").is_file()


def test_what_of_a_config_of_mmengine_is_not_used_is_told() -> None:
    loop = {"type": "EpochBasedTrainLoop", "max_epochs": 7}
    wrapper = {"clip_grad": {"max_norm": 35}}
    with pytest.warns(UserWarning, match="not used of MMEngine's config: optim_wrapper"):
        hooks = hooks_from_config({"train_cfg": loop, "optim_wrapper": wrapper})
    assert hooks.trainer_kwargs["max_epochs"] == 7  # also without a param_scheduler
    of_mmdet = hooks_from_config({"train_cfg": {"rpn": {}}, "total_epochs": 3})
    assert of_mmdet.trainer_kwargs["max_epochs"] == 3


def test_the_validations_of_a_config_of_mmengine() -> None:
    loop = {"max_epochs": 300, "val_interval": 10, "dynamic_intervals": [(280, 1)], "val_begin": 5}
    with pytest.warns(UserWarning, match="train_cfg's val_begin, train_cfg's dynamic_intervals;"):
        hooks = hooks_from_config({"train_cfg": loop})
    assert hooks.trainer_kwargs == {"check_val_every_n_epoch": 10, "max_epochs": 300}
    hooks = hooks_from_config({"train_cfg": {"max_iters": 80, "val_interval": 20}})
    expected = {"max_epochs": -1, "max_steps": 80, "check_val_every_n_epoch": None}
    assert hooks.trainer_kwargs == {**expected, "val_check_interval": 20}
    with pytest.raises(ValueError, match="val_interval must be at least 1, got 0"):
        hooks_from_config({"train_cfg": {"max_epochs": 9, "val_interval": 0}})
    hooks = hooks_from_config({"train_cfg": {"max_epochs": 9}}, evaluation={"interval": 3})
    assert hooks.trainer_kwargs["check_val_every_n_epoch"] == 3


def test_a_hook_of_mmengine_has_its_own_priority() -> None:
    """As in MMEngine; in mmcv's configs a hook without a priority is NORMAL."""
    hooks = pytest.importorskip("mmengine.hooks")
    stopping = {"type": hooks.EarlyStoppingHook, "monitor": "acc", "rule": "greater"}
    several = [stopping, hooks.ProfilerHook(), {**stopping, "priority": "LOW"}]
    made = hooks_from_config({"train_cfg": {"max_epochs": 1}, "custom_hooks": several})
    assert [priority for _, priority in made.configs[1:]] == [100, 90, "LOW"]
