"""What it costs to set the learning rates of an iteration: ours, mmcv's hook and torch's scheduler.

All cases run in one process, in turns, each on the run that it is made for: our hook inside a real
fit, mmcv's on its own runner. A figure is the minimum over the rounds, and a ratio that of two
minima of the same run. The rates are compared too: ours and mmcv's are equal to the last bit.

    tests/golden/oracle.sh traces        # real mmcv beside lightning, in .oracle
    PYTHONPATH=.:tests/golden .oracle/bin/python -m benchmarks.lr
"""

from __future__ import annotations

import gc
import logging
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import lightning as L
import oracle
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HOOKS, HookAdapter

EPOCHS, BATCHES, ROUNDS = 4, 250, 8
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
    """Make an optimizer of groups with one rate for all, or one for each."""
    rates = [0.1 + 0.001 * i * many_rates for i in range(groups)]
    return torch.optim.SGD(
        [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": r} for r in rates]
    )


def rates_of(optimizer: torch.optim.Optimizer) -> list[float]:
    """Return the rate of every group."""
    return [group["lr"] for group in optimizer.param_groups]


class Module(L.LightningModule):
    """The least that fits, with the optimizer it is given."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.optimizer = optimizer

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer


class Measure(Callback):
    """Runs all iterations of a schedule on the run as it is in the middle of its first epoch."""

    def __init__(self, hook: Any, adapter: HookAdapter) -> None:
        self.hook, self.adapter = hook, adapter
        self.seconds = 0.0
        self.rates: list[list[float]] = []

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        runner = next(c.runner for c in trainer.callbacks if hasattr(c, "runner"))  # type: ignore[attr-defined]
        progress = trainer.fit_loop.epoch_loop.batch_progress.total
        update, now, optimizer = self.hook.before_train_iter, progress.completed, runner.optimizer
        start = time.perf_counter()
        for progress.completed in range(ITERS):
            update(runner)
        self.seconds = time.perf_counter() - start
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
        trainer = L.Trainer(
            max_epochs=EPOCHS,
            callbacks=[adapter, measure],
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            default_root_dir=directory,
        )
        trainer.fit(Module(optimizer), torch.utils.data.DataLoader(torch.ones(BATCHES, 1)))
    return measure.seconds / ITERS, measure.rates


def mmcvs(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds of an update by mmcv, and rates."""
    hook, rates = oracle.make_hook(config), []
    runner = oracle.make_runner("EpochBasedRunner", EPOCHS, optimizer=optimizer)
    runner.data_loader, runner._max_iters = range(BATCHES), ITERS
    hook.before_run(runner)
    hook.before_train_epoch(runner)
    update = hook.before_train_iter
    start = time.perf_counter()
    for runner._iter in range(ITERS):
        update(runner)
    seconds = time.perf_counter() - start
    for runner._iter in range(0, ITERS, 50):
        update(runner)
        rates.append(rates_of(optimizer))
    return seconds / ITERS, rates


def torchs(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds of a step of torch's cosine scheduler."""
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, ITERS)
    start = time.perf_counter()
    for _ in range(ITERS):
        scheduler.step()
    return (time.perf_counter() - start) / ITERS, None


def floor(config: dict[str, Any], optimizer: torch.optim.Optimizer) -> tuple[float, Any]:
    """Return the seconds in which all groups get a number."""
    groups = optimizer.param_groups
    start = time.perf_counter()
    for i in range(ITERS):
        for group in groups:
            group["lr"] = i
    return (time.perf_counter() - start) / ITERS, None


WAYS: dict[str, Callable[..., tuple[float, Any]]] = {
    "ours": ours,
    "mmcv": mmcvs,
    "torch": torchs,
    "floor": floor,
}


def measured(case: str, groups: int, many_rates: bool = False) -> list[str]:
    """Measure a case in turns and return the row of the table."""
    ways = {k: way for k, way in WAYS.items() if k != "torch" or case == "cosine"}
    best = dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        rates = {}
        for name, way in ways.items():
            gc.collect()
            seconds, rates[name] = way(HOOK_CASES[case], make_optimizer(groups, many_rates))
            best[name] = min(best[name], seconds)
        assert rates["ours"] == rates["mmcv"], "not the same rates"
    times = [f"{best[name] * 1e6:.2f}" if name in best else "" for name in WAYS]
    against = [best["ours"] / best[name] if name in best else None for name in ("mmcv", "torch")]
    kind = "rates" if many_rates else "groups" if groups > 1 else "group"
    return [f"{case}, {groups} {kind}", *times, *("" if a is None else f"{a:.2f}" for a in against)]


def main() -> None:
    """Measure all cases and print the table."""
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch", "lightning_hooks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    gc.disable()
    cases = [(case, groups, False) for case in HOOK_CASES for groups in GROUPS]
    print_row(["us per update", *WAYS, "ours / mmcv", "ours / torch"])
    for case in [*cases, ("cosine", 200, True)]:
        print_row(measured(*case))


def print_row(cells: list[str]) -> None:
    """Print a row; mmcv's environment has no rich."""
    print(f"{cells[0]:<30}" + "".join(f"{cell:>13}" for cell in cells[1:]), flush=True)


if __name__ == "__main__":
    main()
