"""The cost of setting learning rates in an iteration: ours, mmcv's hook, torch's scheduler.

All cases run in one process, in turns: our hook inside a real fit, mmcv's hook in mmcv's runner. A
figure is the processor time of the fastest of several repetitions. The rates are compared as well:
our rates and mmcv's are equal to the last bit.

    python -m benchmarks lr
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.measure import Bench, has, in_turns, make_loader, quiet_trainer
from lightning_hooks import HOOKS, HookAdapter

EPOCHS, BATCHES, TRIES = 4, 250, 8
ITERS = EPOCHS * BATCHES
COSINE = {"type": "CosineAnnealingLrUpdaterHook", "min_lr": 0.0, "by_epoch": False}
WARM_UP = {**COSINE, "warmup": "linear", "warmup_iters": ITERS, "warmup_ratio": 0.1}
STEP = {"type": "StepLrUpdaterHook", "step": [500, 800], "by_epoch": False}
POLY = {"type": "PolyLrUpdaterHook", "power": 0.9, "min_lr": 1e-4, "by_epoch": False}
CYCLIC = {"type": "CyclicLrUpdaterHook"}
HOOK_CASES = {
    "cosine": COSINE,
    "cosine, in warm-up": WARM_UP,
    "step": STEP,
    "poly": POLY,
    "cyclic": CYCLIC,
}
GROUPS = (1, 200)


def make_optimizer(groups: int, many_rates: bool = False) -> torch.optim.Optimizer:
    """Make an optimizer of several groups, with equal or with different learning rates."""
    rates = [0.1 + 0.001 * i * many_rates for i in range(groups)]
    return torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": r} for r in rates]
    )


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the rate of every group."""
    return [group["lr"] for group in optimizer.param_groups]


def least_time(schedule: Callable[[], None]) -> float:
    """Return the least processor time of a whole schedule in seconds."""
    found = []
    for _ in range(TRIES):
        start = time.thread_time()
        schedule()
        found.append(time.thread_time() - start)
    return min(found)


class Module(L.LightningModule):
    """The smallest module that a Trainer can fit, with a given optimizer."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.optimizer = optimizer

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer


class Measure(Callback):
    """Run all iterations of a schedule from the middle of the run's first epoch."""

    def __init__(self, hook: Any, adapter: HookAdapter) -> None:
        self.hook, self.adapter = hook, adapter
        self.seconds = 0.0
        self.rates: list[list[float]] = []

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        runner = next(c.runner for c in trainer.callbacks if hasattr(c, "runner"))  # type: ignore[attr-defined]
        progress = trainer.fit_loop.epoch_loop.batch_progress.total
        update, now, optimizer = self.hook.before_train_iter, progress.completed, runner.optimizer

        def schedule() -> None:
            for progress.completed in range(ITERS):
                update(runner)

        self.seconds = least_time(schedule)
        for progress.completed in range(0, ITERS, 50):
            update(runner)
            self.rates.append(rates_of(optimizer))
        progress.completed = now
        trainer.should_stop = True


def ours(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds of an update inside a fit, and rates."""
    hook = HOOKS.build(config)
    adapter = HookAdapter([hook])
    measure = Measure(hook, adapter)
    with tempfile.TemporaryDirectory() as directory:
        trainer = quiet_trainer(directory, adapter, measure, max_epochs=EPOCHS)
        trainer.fit(Module(optimizer), make_loader(torch.ones(BATCHES, 1)))
    return measure.seconds / ITERS, measure.rates


def mmcvs(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds of an update by mmcv, and rates."""
    import oracle  # tests/golden: it makes mmcv import without torchvision

    hook, rates = oracle.make_hook(config), []
    runner = oracle.make_runner("EpochBasedRunner", EPOCHS, optimizer=optimizer)
    runner.data_loader, runner._max_iters = range(BATCHES), ITERS
    hook.before_run(runner)
    hook.before_train_epoch(runner)
    update = hook.before_train_iter

    def schedule() -> None:
        for runner._iter in range(ITERS):
            update(runner)

    seconds = least_time(schedule)
    for runner._iter in range(0, ITERS, 50):
        update(runner)
        rates.append(rates_of(optimizer))
    return seconds / ITERS, rates


def torchs(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds of a step of torch's cosine scheduler."""
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ITERS)

    def schedule() -> None:
        for _ in range(ITERS):
            scheduler.step()

    return least_time(schedule) / ITERS, None


def floor(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds to assign a number to every group."""
    groups = optimizer.param_groups

    def schedule() -> None:
        for i in range(ITERS):
            for group in groups:
                group["lr"] = i

    return least_time(schedule) / ITERS, None


WAYS: dict[str, Callable[..., tuple[float, Any]]] = {"ours": ours, "torch": torchs, "floor": floor}
if has("mmcv"):
    WAYS["mmcv"] = mmcvs


def run(rounds: int = 5) -> Iterator[Bench]:
    """Measure all cases in turns."""
    torch.set_num_threads(1)
    cases = [(case, groups, False) for case in HOOK_CASES for groups in GROUPS]
    for case, groups, many_rates in [*cases, ("cosine", 200, True)]:
        kind = "rates" if many_rates else "groups" if groups > 1 else "group"
        title = f"LR update, {case}, {groups} {kind}"
        yield measured(title, case, groups, many_rates, rounds)


def measured(title: str, case: str, groups: int, many_rates: bool, rounds: int) -> Bench:
    """Measure one case."""
    rates: dict[str, Any] = {}

    def update(name: str) -> float:
        optimizer = make_optimizer(groups, many_rates)
        seconds, rates[name] = WAYS[name](HOOK_CASES[case], optimizer)
        return seconds * 1e6

    ways = [name for name in WAYS if name != "torch" or case == "cosine"]
    turns = {name: functools.partial(update, name) for name in ways}
    bench = Bench(title, "us", in_turns(turns, rounds))
    if "mmcv" in rates:
        assert rates["ours"] == rates["mmcv"], "not the same rates"
        bench.compare(title, bench.figures["ours"], "mmcv", bench.figures["mmcv"], 1.0)
    if "torch" in rates:
        bench.compare(title, bench.figures["ours"], "torch", bench.figures["torch"])
    return bench
