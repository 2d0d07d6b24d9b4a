"""Real mmcv's hooks under mmcv's runner and under this package, equal bit for bit.

Run by ``make golden-check`` in the oracle environment.
"""

import copy
from typing import Any

import job
import lightning as L
import pytest
from oracle import HOOKS, make_runner, run
from record_training import CASES, CLIP, EPOCHS, SEED, cumulative
from side_by_side import Calls, assert_equal

from lightning_hooks import HookAdapter, TrainStepModule

FAMILIES = ("LrUpdaterHook", "OptimizerHook", "EMAHook", "IterTimerHook")


def build(hooks: dict[str, Any]) -> list[tuple[Any, str | int]]:
    """Build mmcv's hooks from the arguments of register_training_hooks, with mmcv's priorities."""
    hooks = copy.deepcopy(hooks)
    found: list[tuple[Any, str | int]] = []
    if hooks["lr_config"]:
        policy = hooks["lr_config"].pop("policy")
        policy = policy.title() if policy == policy.lower() else policy
        found.append((HOOKS.build({"type": f"{policy}LrUpdaterHook", **hooks["lr_config"]}), 10))
    config = {"type": "OptimizerHook", **hooks["optimizer_config"]}
    found.append((HOOKS.build(config), "ABOVE_NORMAL"))
    for config in hooks["custom_hooks_config"] or []:
        priority = config.pop("priority")
        found.append((HOOKS.build(config), priority))
    found.append((HOOKS.build({"type": "IterTimerHook"}), "LOW"))
    return found


def under_mmcv(kind: str, hooks: dict[str, Any], val: bool) -> list[Any]:
    """Train under mmcv's runner."""
    model = job.make_model(SEED, kind)
    runner = make_runner("EpochBasedRunner", EPOCHS, model, optimizer=job.make_optimizer(model))
    for hook, priority in build(hooks):
        runner.register_hook(hook, priority)
    calls = Calls()
    runner.register_hook(calls, "LOWEST")
    loaders = list(job.make_data(SEED))
    flow = [("train", 1), ("val", 1)] if val else [("train", 1)]
    run(runner, loaders[: len(flow)], flow)
    return calls.calls


def under_lightning(kind: str, hooks: dict[str, Any], val: bool, tmp_path: Any) -> list[Any]:
    """Train under lightning.Trainer with the same hooks in an adapter."""
    model = job.make_model(SEED, kind)
    calls = Calls()
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        callbacks=[HookAdapter([*build(hooks), (calls, "LOWEST")])],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    train, validation = job.make_data(SEED)
    module = TrainStepModule(model, job.make_optimizer(model))
    trainer.fit(module, train, validation if val else None)
    return calls.calls


ALL = {
    name: dict(zip(("lr_config", "optimizer_config", "custom_hooks_config"), row, strict=True))
    for name, row in CASES.items()
}
ALL["cumulative_4_clip"] = {
    "lr_config": None,
    "optimizer_config": cumulative(4, **CLIP),
    "custom_hooks_config": None,
}


@pytest.mark.parametrize("val", [False, True], ids=["train", "train+val"])
@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("case", ALL)
def test_equal_to_mmcv_at_every_call(case: str, kind: str, val: bool, tmp_path: Any) -> None:
    theirs = under_mmcv(kind, ALL[case], val)
    ours = under_lightning(kind, ALL[case], val, tmp_path)
    assert_equal(ours, theirs)
