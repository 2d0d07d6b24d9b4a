"""Record learning rates and momenta of randomly drawn schedules, iteration by iteration."""

import random
from itertools import chain
from typing import Any

import torch
from oracle import Hook, Idle, make_hook, make_loaders, make_runner, run

SEED = 0
LR_CASES, MOMENTUM_CASES = 400, 200
LR_POLICIES = [
    *("Fixed", "Step", "Exp", "Poly", "Inv", "CosineAnnealing", "LinearAnnealing"),
    *("FlatCosineAnnealing", "CosineRestart", "Cyclic", "OneCycle"),
]
MOMENTUM_POLICIES = ["Step", "CosineAnnealing", "LinearAnnealing", "Cyclic", "OneCycle"]
OPTIMIZERS = {"SGD": torch.optim.SGD, "RMSprop": torch.optim.RMSprop, "Adam": torch.optim.Adam}


def draw_policy(rng: random.Random, name: str, key: str, length: int) -> dict[str, Any]:
    """Draw the arguments of a non-cyclic policy over `length` epochs or iterations."""
    low = rng.uniform(0, 1e-2) if key == "lr" else rng.uniform(0, 0.9)
    target = rng.choice(
        [{f"min_{key}": low}, {f"min_{key}_ratio": rng.uniform(0, 0.5)}, {f"min_{key}": 0}]
    )
    if name == "Step":
        milestones = sorted(rng.sample(range(1, length + 2), k=rng.randint(1, min(3, length))))
        return {
            "step": rng.choice([rng.randint(1, length), milestones]),
            "gamma": rng.uniform(0.05, 0.95),
            f"min_{key}": rng.choice([None, low]),
        }
    if name == "Exp":
        return {"gamma": rng.uniform(0.5, 1.0)}
    if name == "Poly":
        return {"power": rng.choice([1.0, 2, 0.9]), "min_lr": rng.choice([0.0, low])}
    if name == "Inv":
        return {"gamma": rng.uniform(0.01, 1), "power": rng.choice([1.0, 0.75, 2])}
    if name == "CosineRestart":
        periods = [rng.randint(1, length)]
        while sum(periods) < length:
            periods.append(rng.randint(1, length))
        weights = [rng.choice([1, rng.uniform(0.1, 1)]) for _ in periods]
        return {"periods": periods, "restart_weights": weights, **target}
    if name == "FlatCosineAnnealing":
        return {"start_percent": rng.choice([0.75, 0.0, 1.0, rng.random()]), **target}
    return {} if name == "Fixed" else target


def draw_cyclic(rng: random.Random, key: str, length: int) -> dict[str, Any]:
    """Draw the arguments of cycles; a momentum stays below 1."""
    if key == "lr":
        ratios: Any = rng.choice([[10, 1e-4], [rng.uniform(1, 20), rng.uniform(0, 1)], 5.0, [4.0]])
    else:
        ratios = rng.choice([[0.85 / 0.95, 1.0], [rng.random(), rng.random()], 0.5, [0.8]])
    return {
        "target_ratio": ratios,
        "cyclic_times": rng.randint(1, min(4, length)),
        "step_ratio_up": rng.choice([0.4, 0.0, rng.uniform(0, 0.99)]),
        "anneal_strategy": rng.choice(["cos", "linear"]),
        "gamma": rng.choice([1, rng.uniform(0.1, 1)]),
    }


def draw_one_cycle(
    rng: random.Random, key: str, length: int, optimizers: list[dict[str, Any]]
) -> dict[str, Any]:
    """Draw the arguments of a one-cycle schedule; the bounds are a number, a list or a dict."""

    def bounds(low: float, high: float) -> Any:
        lists = {one["name"]: [rng.uniform(low, high) for _ in one["lr"]] for one in optimizers}
        if rng.random() < 0.5:
            return rng.uniform(low, high)
        return lists if optimizers[0]["name"] else lists[None]

    pct_start = rng.choice([0.3, 0.5, 0.0, rng.uniform(0.05, 0.95)])
    if pct_start * length == 1:  # mmcv divides by zero
        pct_start = 0.37
    shared = {
        "pct_start": pct_start,
        "anneal_strategy": rng.choice(["cos", "linear"]),
        "three_phase": rng.random() < 0.5,
    }
    if key == "momentum":
        return {
            "base_momentum": bounds(0.1, 0.85),
            "max_momentum": bounds(0.85, 0.95),
            **shared,
        }
    return {
        "max_lr": bounds(1e-3, 1),
        "total_steps": None,
        **shared,
        "div_factor": rng.choice([25, rng.uniform(2, 50)]),
        "final_div_factor": rng.choice([1e4, rng.uniform(1, 100)]),
    }


def draw_warmup(
    rng: random.Random, key: str, by_epoch: bool, epochs: int, total: int
) -> dict[str, Any]:
    """Draw a warm-up counted in epochs or iterations, or none; a momentum stays below 1."""
    kind = rng.choice([None, "constant", "linear", "exp"])
    if kind is None:
        return {}
    return {
        "warmup": kind,
        **({"warmup_by_epoch": by_epoch} if key == "lr" else {}),
        "warmup_iters": rng.randint(1, epochs if by_epoch else total + 2),
        "warmup_ratio": rng.choice([1.0, rng.uniform(1e-3 if key == "lr" else 0.96, 1.0)]),
    }


def draw_optimizers(rng: random.Random) -> list[dict[str, Any]]:
    """Draw a single optimizer or several named optimizers, with one to three groups."""
    names = rng.choice([[None], [None], [None], ["generator", "discriminator"]])
    optimizers = []
    for name in names:
        groups = rng.randint(1, 3 if len(names) == 1 else 2)
        lrs = [10 ** rng.uniform(-4, 0) for _ in range(groups)]
        momenta = [rng.uniform(0.3, 0.95) for _ in range(groups)]
        kind = rng.choice(list(OPTIMIZERS))
        optimizers.append({"name": name, "kind": kind, "lr": lrs, "momentum": momenta})
    return optimizers


def draw(rng: random.Random, key: str, policy: str) -> dict[str, Any]:
    """Draw a case: a runner, the lengths, the optimizers and a hook."""
    # mmcv: by_epoch=True never moves under IterBasedRunner, and warmup_by_epoch fails under it.
    runners = [("EpochBasedRunner", False), ("IterBasedRunner", False)]
    in_phases = policy in ("Cyclic", "OneCycle")  # both count iterations
    if not in_phases:
        runners += [("EpochBasedRunner", True)] * 2
    runner, by_epoch = rng.choice(runners)
    epochs, batches = rng.randint(1, 6), rng.randint(1, 6)
    total = epochs * batches
    length = epochs if by_epoch else total
    optimizers = draw_optimizers(rng)
    if policy == "Cyclic":
        arguments = draw_cyclic(rng, key, length)
    elif policy == "OneCycle":
        arguments = draw_one_cycle(rng, key, length, optimizers)
    else:
        arguments = draw_policy(rng, policy, key, length)
    if "total_steps" in arguments:
        arguments["total_steps"] = rng.choice([None, length + rng.randint(0, 5)])
        if arguments["total_steps"] and arguments["pct_start"] * arguments["total_steps"] == 1:
            arguments["total_steps"] = None
    in_epochs = key == "lr" and runner == "EpochBasedRunner" and rng.random() < 0.4
    hook = {
        "type": f"{policy}{key.title()}UpdaterHook",
        **arguments,
        "by_epoch": by_epoch,
        **draw_warmup(rng, key, in_epochs, epochs, total),
    }
    return {
        "key": key,
        "runner": runner,
        "max_epochs": epochs if runner == "EpochBasedRunner" else None,
        "max_iters": total,
        "iters_per_epoch": batches,
        "optimizers": optimizers,
        "hook": hook,
    }


def make_optimizers(case: dict[str, Any], weights: list[Any]) -> Any:
    """Create the optimizer or the dict of optimizers of a case."""
    made, rest = {}, iter(weights)
    for one in case["optimizers"]:
        momentum = [
            {"betas": (m, 0.999)} if one["kind"] == "Adam" else {"momentum": m}
            for m in one["momentum"]
        ]
        groups = [
            {"params": [next(rest)], "lr": lr, **more}
            for lr, more in zip(one["lr"], momentum, strict=True)
        ]
        made[one["name"]] = OPTIMIZERS[one["kind"]](groups)
    return made.get(None, made)


class Recorder(Hook):
    """Records every group's value at the start of each iteration."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.values: list[list[float]] = []

    def before_train_iter(self, runner: Any) -> None:
        """Record the values; values of several optimizers are concatenated."""
        now = runner.current_lr() if self.key == "lr" else runner.current_momentum()
        self.values.append(list(chain(*now.values())) if isinstance(now, dict) else now)


def values(case: dict[str, Any]) -> list[list[float]]:
    """Run a case; return the values of each iteration."""
    model = Idle(groups=sum(len(one["lr"]) for one in case["optimizers"]))
    optimizer = make_optimizers(case, list(model.weights))
    limit = case["max_epochs"] or case["max_iters"]
    runner = make_runner(case["runner"], limit, model, optimizer=optimizer)
    config = dict(case["hook"])
    if isinstance(config.get("target_ratio"), list):  # JSON has no tuples, mmcv takes no lists
        config["target_ratio"] = tuple(config["target_ratio"])
    runner.register_hook(make_hook(config), "VERY_HIGH")
    recorder = Recorder(case["key"])
    runner.register_hook(recorder, "LOWEST")
    run(runner, make_loaders([case["iters_per_epoch"]]), [("train", 1)])
    return recorder.values


def record() -> dict[str, Any]:
    """Record every case, the policies in turns."""
    rng = random.Random(SEED)
    drawn = [
        *(draw(rng, "lr", LR_POLICIES[i % len(LR_POLICIES)]) for i in range(LR_CASES)),
        *(
            draw(rng, "momentum", MOMENTUM_POLICIES[i % len(MOMENTUM_POLICIES)])
            for i in range(MOMENTUM_CASES)
        ),
    ]
    return {"cases": [{**case, "values": values(case)} for case in drawn]}
