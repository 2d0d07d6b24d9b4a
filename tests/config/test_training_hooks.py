"""mmcv's config dicts become an adapter with Trainer arguments."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest

from lightning_hooks import HookAdapter, IterTimerHook, TrainStepModule, register_training_hooks

CONFIG: dict[str, Any] = {
    "lr_config": {"policy": "step", "step": [1], "warmup": "linear", "warmup_iters": 3},
    "optimizer_config": {"grad_clip": {"max_norm": 35}},
    "checkpoint_config": {"interval": 1, "max_keep_ckpts": 1},
    "log_config": {"interval": 2, "hooks": [{"type": "TextLoggerHook"}]},
    "custom_hooks_config": [{"type": "EMAHook", "priority": 49}],
}


def table(adapter: Any) -> list[tuple[str, int]]:
    return [(type(hook).__name__, hook.priority) for hook in adapter.hooks]


def test_departure_priorities_are_mmcvs_and_the_config_stays_as_it_is() -> None:
    config = copy.deepcopy(CONFIG)
    adapter = register_training_hooks(**config)
    assert config == CONFIG
    assert table(adapter) == [
        ("StepLrUpdaterHook", 10),
        ("OptimizerHook", 40),
        ("EMAHook", 49),
        ("CheckpointHook", 50),
        ("IterTimerHook", 70),
        ("TextLoggerHook", 90),
    ]
    assert adapter.trainer_kwargs == {"enable_checkpointing": False}


def test_hooks_from_a_config_are_an_adapter_as_any_other() -> None:
    made = register_training_hooks(**CONFIG)
    assert isinstance(made, HookAdapter)
    assert made.state_key == HookAdapter().state_key == "HookAdapter"
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert table(copied) == table(made)
        assert copied.trainer_kwargs == made.trainer_kwargs


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_an_old_config_trains(tmp_path: Path) -> None:
    hooks = register_training_hooks(**CONFIG, total_epochs=2, work_dir=str(tmp_path))
    model = job.make_model()
    trainer = L.Trainer(
        callbacks=[hooks],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **hooks.trainer_kwargs,
    )
    trainer.fit(TrainStepModule(model, job.make_optimizer(model)), job.make_data()[0])
    assert trainer.global_step == 8
    assert sorted(f.name for f in tmp_path.glob("*.pth")) == ["epoch_2.pth", "latest.pth"]
    (log,) = tmp_path.glob("*.log.json")
    assert len(log.read_text().splitlines()) == 4


@pytest.mark.parametrize(
    ("policy", "name"),
    [
        ("step", "Step"),
        ("CosineAnnealing", "CosineAnnealing"),
        ("cosineannealing", "CosineAnnealing"),
        ("cosinerestart", "CosineRestart"),
        ("Poly", "Poly"),
    ],
)
def test_departure_policies_in_any_case(policy: str, name: str) -> None:
    arguments = {"Step": {"step": 1}, "CosineRestart": {"periods": [1], "min_lr": 0}}
    rest = arguments.get(name, {} if name == "Poly" else {"min_lr": 0})
    adapter = register_training_hooks(lr_config={"policy": policy, **rest}, timer_config=None)
    assert table(adapter) == [(f"{name}LrUpdaterHook", 10)]


def test_counted_in_iterations_hooks_follow_unless_they_say_otherwise() -> None:
    config = copy.deepcopy(CONFIG)
    config["log_config"]["hooks"] = [{"type": "TextLoggerHook", "by_epoch": True}]
    runner = {"type": "IterBasedRunner", "max_iters": 100}
    adapter = register_training_hooks(**config, runner=runner)
    flags = {type(h).__name__: h.by_epoch for h in adapter.hooks if hasattr(h, "by_epoch")}
    assert flags == {"StepLrUpdaterHook": False, "CheckpointHook": False, "TextLoggerHook": True}
    assert adapter.trainer_kwargs == {
        "enable_checkpointing": False,
        "max_epochs": -1,
        "max_steps": 100,
    }


@pytest.mark.parametrize(
    ("given", "kwargs"),
    [
        ({"runner": {"type": "EpochBasedRunner", "max_epochs": 3}}, {"max_epochs": 3}),
        ({"total_epochs": 3}, {"max_epochs": 3}),
        ({"workflow": [("train", 1)]}, {"limit_val_batches": 0}),
        ({"workflow": [["train", 2], ["val", 1]]}, {"check_val_every_n_epoch": 2}),
        ({}, {}),
    ],
)
def test_trainer_kwargs(given: dict[str, Any], kwargs: dict[str, Any]) -> None:
    assert register_training_hooks(**given).trainer_kwargs == kwargs


def test_a_policy_with_a_priority_of_its_own() -> None:
    made = register_training_hooks(lr_config=({"policy": "step", "step": [1]}, 20))
    assert table(made) == [("StepLrUpdaterHook", 20), ("IterTimerHook", 70)]


def test_hook_objects_in_place_of_configs() -> None:
    timer = IterTimerHook()
    adapter = register_training_hooks(timer_config=None, custom_hooks_config=timer)
    assert table(adapter) == [("IterTimerHook", 50)]
    adapter = register_training_hooks(timer_config=None, custom_hooks_config=[(timer, 3)])
    assert table(adapter) == [("IterTimerHook", 3)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr_config": {"policy": "cosinanealing"}}, "did you mean 'CosineAnnealing'"),
        ({"lr_config": {"step": 3}}, 'needs the key "policy"'),
        ({"runner": {"type": "EpochBasdRunner"}}, "did you mean 'EpochBasedRunner'"),
        ({"runner": {"type": "IterBasedRunner"}}, "needs max_iters"),
        ({"runner": {"type": "EpochBasedRunner", "max_iters": 9}}, "needs max_epochs"),
        ({"workflow": [("val", 1)]}, "workflow must be"),
        ({"custom_hooks_config": {"type": "EMAHok"}}, "did you mean 'EMAHook'"),
    ],
)
def test_bad_configs(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        register_training_hooks(**given)


def test_the_limit_of_a_runner_without_a_type_says_what_is_counted() -> None:
    hooks = register_training_hooks(**CONFIG | {"runner": {"max_iters": 100}})
    assert hooks.trainer_kwargs["max_steps"] == 100
    assert not any(getattr(hook, "by_epoch", False) for hook in hooks.hooks)
    hooks = register_training_hooks(runner={"max_epochs": 3})
    assert hooks.trainer_kwargs == {"max_epochs": 3}


def test_a_misspelt_key_of_the_runner_is_refused() -> None:
    with pytest.raises(TypeError, match="'max_epoch'; did you mean 'max_epochs'"):
        register_training_hooks(runner={"type": "EpochBasedRunner", "max_epoch": 3})
