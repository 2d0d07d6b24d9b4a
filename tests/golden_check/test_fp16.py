"""Real mmcv's half precision hooks equal ours, and run in an adapter, on the CPU.

mmcv's scaler needs a GPU, so the tests use the CPU scaler of the same class.
"""

import functools
import sys
from typing import Any

import job
import lightning as L
import pytest
import torch
from oracle import HOOKS, make_runner, run
from record_training import SEED
from side_by_side import Calls, assert_equal

import lightning_hooks
from lightning_hooks import HookAdapter, TrainStepModule

CLIP = {"max_norm": 0.05}
CASES: dict[str, dict[str, Any]] = {
    "static": {"type": "Fp16OptimizerHook"},
    "clip": {"type": "Fp16OptimizerHook", "grad_clip": CLIP, "loss_scale": 1024.0},
    "dynamic": {"type": "Fp16OptimizerHook", "grad_clip": CLIP, "loss_scale": "dynamic"},
    "overflows": {
        "type": "Fp16OptimizerHook",
        # the first loss, times the scale, overflows float32
        "loss_scale": {"init_scale": 2.0**127, "growth_interval": 2, "growth_factor": 2.0},
    },
    "cumulative": {
        "type": "GradientCumulativeFp16OptimizerHook",
        "cumulative_iters": 3,
        "grad_clip": CLIP,
        "loss_scale": {"init_scale": 2.0**127, "growth_interval": 1, "growth_factor": 2.0},
    },
    "cumulative_static": {
        "type": "GradientCumulativeFp16OptimizerHook",
        "cumulative_iters": 2,
        "loss_scale": 64.0,
    },
}


class Scales(Calls):
    """Records the scaler's state too."""

    def note(self, runner: Any, point: str) -> None:
        super().note(runner, point)
        state = (runner.meta or {}).get("fp16", {}).get("loss_scaler")
        self.calls[-1]["scaler"] = None if point != "after_train_iter" or not state else {**state}


@pytest.fixture(autouse=True)
def _on_a_cpu(monkeypatch: Any) -> None:
    scaler = functools.partial(torch.amp.GradScaler, "cpu")
    monkeypatch.setattr(sys.modules["mmcv.runner.hooks.optimizer"], "GradScaler", scaler)


def under_mmcv(config: dict[str, Any]) -> list[Any]:
    model = job.make_model(SEED, "conv")
    runner = make_runner("EpochBasedRunner", 3, model, optimizer=job.make_optimizer(model), meta={})
    runner.register_hook(HOOKS.build(dict(config)), "ABOVE_NORMAL")
    calls = Scales()
    runner.register_hook(calls, "LOWEST")
    run(runner, list(job.make_data(SEED))[:1], [("train", 1)])
    return calls.calls


def under_lightning(hook: Any, tmp_path: Any) -> list[Any]:
    model, calls = job.make_model(SEED, "conv"), Scales()
    trainer = L.Trainer(
        max_epochs=3,
        callbacks=[HookAdapter([hook, (calls, "LOWEST")])],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(TrainStepModule(model, job.make_optimizer(model)), job.make_data(SEED)[0])
    return calls.calls


@pytest.mark.parametrize("whose", ["ours", "mmcv's"])
@pytest.mark.parametrize("case", CASES)
def test_fp16_equal_to_mmcv_at_every_call(case: str, whose: str, tmp_path: Any) -> None:
    theirs = under_mmcv(CASES[case])
    registry = lightning_hooks.HOOKS if whose == "ours" else HOOKS
    ours = under_lightning(registry.build(dict(CASES[case])), tmp_path)
    assert_equal(ours, theirs)
    states = [(c["scaler"], d["scaler"]) for c, d in zip(ours, theirs, strict=True)]
    assert all(our == their for our, their in states if their)  # no state before the first step
    if case == "overflows":
        scales = [state["scale"] for _, state in states if state]
        assert scales[0] == 2.0**126  # the first step was skipped
