"""Record real training with mmcv's own hooks: rates, losses, log keys and weights."""

import copy
from typing import Any

import job
import torch
from oracle import Hook, make_runner, run

EPOCHS = 3
SEED = 0
COLUMNS = ("point", "epoch", "iter", "lr", "log_keys", "loss", "grad_norm")

STEP = {
    "policy": "step",
    "step": [1, 2],
    "warmup": "linear",
    "warmup_iters": 5,
    "warmup_ratio": 0.1,
}
COSINE = {
    "policy": "CosineAnnealing",
    "min_lr_ratio": 0.01,
    "warmup": "exp",
    "warmup_iters": 2,
    "warmup_ratio": 0.1,
    "warmup_by_epoch": True,
}
CLIP = {"grad_clip": {"max_norm": 0.5}}


def cumulative(iters: int, **kwargs: Any) -> dict[str, Any]:
    """Configure gradient accumulation."""
    return {"type": "GradientCumulativeOptimizerHook", "cumulative_iters": iters, **kwargs}


def ema(**kwargs: Any) -> list[dict[str, Any]]:
    """Return the config of an EMA with a priority before the checkpoint, as mmcv's users set."""
    return [{"type": "EMAHook", "priority": 49, **kwargs}]


# case: arguments of register_training_hooks (lr_config, optimizer_config, custom_hooks_config)
CASES = {
    "optimizer": (None, {}, None),
    "grad_clip": (None, CLIP, None),
    "step": (STEP, {}, None),
    "cosine": (COSINE, CLIP, None),
    "cumulative_2": (STEP, cumulative(2, **CLIP), None),
    "cumulative_3": (None, cumulative(3), None),
    "cumulative_remainder": (None, cumulative(5, **CLIP), None),
    "ema": (None, {}, ema(momentum=0.05, warm_up=10)),
    "ema_interval_2": (None, {}, ema(momentum=0.05, warm_up=10, interval=2)),
    "ema_warm_up": (None, {}, ema(momentum=0.2, warm_up=10)),
    "together": (STEP, cumulative(3, **CLIP), ema(momentum=0.05, warm_up=10)),
}


class JobRecorder(Hook):
    """Record a row around every iteration and the weights of every epoch."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.weights: list[dict[str, Any]] = []

    def note(self, runner: Any, point: str) -> None:
        """Record the counters and rates and, after the step, the step's values."""
        history = runner.log_buffer.val_history
        done = point.startswith("after")
        loss = runner.outputs["log_vars"]["loss"] if done else None
        grad_norm = history["grad_norm"][-1] if done and "grad_norm" in history else None
        rates = runner.current_lr()
        self.rows.append(
            [point, runner.epoch, runner.iter, rates, sorted(history), loss, grad_norm]
        )

    def before_run(self, runner: Any) -> None:
        """Record the initial weights and the buffers added by hooks."""
        self.weights.append(job.fingerprint(runner.model))

    def before_train_iter(self, runner: Any) -> None:
        """Record the start of a step."""
        self.note(runner, "before_train_iter")

    def after_train_iter(self, runner: Any) -> None:
        """Record the end of a step."""
        self.note(runner, "after_train_iter")

    def after_val_iter(self, runner: Any) -> None:
        """Record a validation batch."""
        self.note(runner, "after_val_iter")

    def after_train_epoch(self, runner: Any) -> None:
        """Record the weights of the validation, after an EMA is swapped in."""
        self.weights.append(job.fingerprint(runner.model))


def train(kind: str, hooks: dict[str, Any]) -> dict[str, Any]:
    """Train a model with the given hooks."""
    model = job.make_model(SEED, kind)
    runner = make_runner("EpochBasedRunner", EPOCHS, model, optimizer=job.make_optimizer(model))
    runner.register_training_hooks(**copy.deepcopy(hooks))
    recorder = JobRecorder()
    runner.register_hook(recorder, "LOWEST")
    run(runner, list(job.make_data(SEED)), [("train", 1), ("val", 1)])
    return {"model": kind, "hooks": hooks, "rows": recorder.rows, "weights": recorder.weights}


def record() -> dict[str, Any]:
    """Record every case with both models."""
    torch.set_num_threads(1)  # sums in another order are other numbers
    names = ("lr_config", "optimizer_config", "custom_hooks_config")
    cases = {
        f"{kind}/{case}": train(kind, dict(zip(names, configs, strict=True)))
        for kind in ("linear", "conv")
        for case, configs in CASES.items()
    }
    return {"columns": COLUMNS, "seed": SEED, "epochs": EPOCHS, "threads": 1, "cases": cases}
