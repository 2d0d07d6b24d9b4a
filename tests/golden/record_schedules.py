"""Record the learning rates of randomly drawn schedules, iteration by iteration."""

import random
from typing import Any

import torch
from oracle import Hook, Idle, make_hook, make_loaders, make_runner, run

COUNT = 200


def draw_step(rng: random.Random, length: int) -> dict[str, Any]:
    """Draw the arguments of a StepLrUpdaterHook over `length` epochs or iterations."""
    milestones = sorted(rng.sample(range(1, length + 2), k=rng.randint(1, min(3, length))))
    return {
        "type": "StepLrUpdaterHook",
        "step": rng.choice([rng.randint(1, length), milestones]),
        "gamma": rng.uniform(0.05, 0.95),
        "min_lr": rng.choice([None, rng.uniform(1e-4, 1e-1)]),
    }


def draw_cosine(rng: random.Random, length: int) -> dict[str, Any]:
    """Draw the arguments of a CosineAnnealingLrUpdaterHook."""
    target = rng.choice(
        [{"min_lr": rng.uniform(0, 1e-2)}, {"min_lr_ratio": rng.uniform(0, 0.5)}, {"min_lr": 0}]
    )
    return {"type": "CosineAnnealingLrUpdaterHook", **target}


def draw_warmup(rng: random.Random, by_epoch: bool, epochs: int, total: int) -> dict[str, Any]:
    """Draw a warm-up counted in epochs or iterations, or none."""
    kind = rng.choice([None, "constant", "linear", "exp"])
    if kind is None:
        return {}
    return {
        "warmup": kind,
        "warmup_by_epoch": by_epoch,
        "warmup_iters": rng.randint(1, epochs if by_epoch else total + 2),
        "warmup_ratio": rng.choice([1.0, rng.uniform(1e-3, 1.0)]),
    }


def draw(rng: random.Random) -> dict[str, Any]:
    """Draw one case: a runner, its lengths, the base rates and a hook."""
    # mmcv: by_epoch=True never moves under IterBasedRunner, and warmup_by_epoch fails there.
    runner, by_epoch = rng.choice(
        [("EpochBasedRunner", True), ("EpochBasedRunner", False), ("IterBasedRunner", False)]
    )
    epochs, batches = rng.randint(1, 6), rng.randint(1, 7)
    total = epochs * batches
    warmup_by_epoch = runner == "EpochBasedRunner" and rng.random() < 0.4
    hook = {
        **rng.choice([draw_step, draw_cosine])(rng, epochs if by_epoch else total),
        "by_epoch": by_epoch,
        **draw_warmup(rng, warmup_by_epoch, epochs, total),
    }
    base_lrs = [10 ** rng.uniform(-4, 0) for _ in range(rng.randint(1, 3))]
    return {
        "runner": runner,
        "max_epochs": epochs if runner == "EpochBasedRunner" else None,
        "max_iters": total,
        "iters_per_epoch": batches,
        "base_lrs": base_lrs,
        "hook": hook,
    }


class LrRecorder(Hook):
    """Note every group's learning rate with which an iteration starts."""

    def __init__(self) -> None:
        self.lrs: list[list[float]] = []

    def before_train_iter(self, runner: Any) -> None:
        """Note the rates."""
        self.lrs.append(runner.current_lr())


def learning_rates(case: dict[str, Any]) -> list[list[float]]:
    """Run one case and return the rates of each iteration."""
    model = Idle(groups=len(case["base_lrs"]))
    groups = zip(model.weights, case["base_lrs"], strict=True)
    optimizer = torch.optim.SGD([{"params": [weight], "lr": lr} for weight, lr in groups])
    limit = case["max_epochs"] or case["max_iters"]
    runner = make_runner(case["runner"], limit, model, optimizer=optimizer)
    runner.register_lr_hook(make_hook(case["hook"]))
    recorder = LrRecorder()
    runner.register_hook(recorder, "LOWEST")
    run(runner, make_loaders([case["iters_per_epoch"]]), [("train", 1)])
    return recorder.lrs


def record() -> dict[str, Any]:
    """Record every case."""
    rng = random.Random(0)
    cases = [draw(rng) for _ in range(COUNT)]
    return {"cases": [{**case, "lrs": learning_rates(case)} for case in cases]}
