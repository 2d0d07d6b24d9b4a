"""What it costs to look at every loss: the check of one step, in the middle of a real fit.

All cases run in one process, in turns; a figure is the minimum over the rounds, and a ratio that
of two minima of the same run. The peer is ``assert torch.isfinite(loss)`` in every step, which
on a GPU waits for the device each time; ours reads it once per interval. "skip" is the whole
decision before the step of a network of 60 parameters, gradients and buffers included, beside
the gradient scaler's own look at them.

    python -m benchmarks.invalid_loss
"""

from __future__ import annotations

import gc
import logging
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from rich.console import Console
from rich.table import Table

from lightning_hooks import CheckInvalidLossHook, Hook
from lightning_hooks.driver import Driver

INTERVAL = 50
ROUNDS, STEPS = 15, 1000


class Assertion(Hook):
    """The peer."""

    def after_train_iter(self, runner: Any) -> None:
        assert torch.isfinite(runner.outputs["loss"])


class SeldomAssertion(Hook):
    """mmdetection's: the others are missed."""

    def after_train_iter(self, runner: Any) -> None:
        if self.every_n_iters(runner, INTERVAL):
            assert torch.isfinite(runner.outputs["loss"])


class Nothing(Hook):
    """The loop and the call alone."""

    def after_train_iter(self, runner: Any) -> None:
        runner.outputs["loss"]


CHECKS: dict[str, Callable[[], Hook]] = {
    "nothing": Nothing,
    "isfinite + assert, each step": Assertion,
    "isfinite + assert, every 50th": SeldomAssertion,
    "CheckInvalidLossHook(50)": lambda: CheckInvalidLossHook(INTERVAL),
    "CheckInvalidLossHook(50, 'restore')": lambda: CheckInvalidLossHook(INTERVAL, "restore"),
}
PEER = "isfinite + assert, each step"


class Module(L.LightningModule):
    """Thirty small layers."""

    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        self.fused = fused
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(30)])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.layers(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.0, fused=self.fused)


class Measure(Callback):
    """Times a check in the middle of a fit, over steps of their own numbers."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any) -> None:
        runner = Driver.of(trainer).runner
        check, first = self.hook.after_train_iter, runner.iter
        start = time.perf_counter()
        for step in range(STEPS):
            runner._iter_shift = step
            check(runner)
        self.seconds = (time.perf_counter() - start) / STEPS
        runner._iter = first


class MeasureSkip(Callback):
    """Times the decision before an optimizer's step, and that of a gradient scaler."""

    def __init__(self, hook: CheckInvalidLossHook) -> None:
        self.hook = hook

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        hook, loss = self.hook, torch.ones(())
        gradients = [parameter.grad for parameter in module.parameters()]
        found, scale = torch.zeros(()), torch.ones(())
        start = time.perf_counter()
        for _ in range(STEPS):
            hook.on_train_batch_start(trainer, module, None, 0)
            hook.on_before_backward(trainer, module, loss)
            hook.on_before_optimizer_step(trainer, module, optimizer)
            hook._action.flags()  # what a reading takes away
        middle = time.perf_counter()
        for _ in range(STEPS):
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)
            found.item()
        self.seconds = (middle - start) / STEPS
        self.scaler_seconds = (time.perf_counter() - middle) / STEPS


def fit(directory: str, module: Module, *callbacks: Any) -> None:
    """Train for one batch."""
    L.Trainer(
        max_epochs=1,
        callbacks=list(callbacks),
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=directory,
    ).fit(module, torch.utils.data.DataLoader(torch.ones(1, 8)))


def main() -> None:
    """Measure all cases in turns and print the tables."""
    for name in ("lightning.pytorch", "lightning_hooks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    torch.set_num_threads(1)
    best = dict.fromkeys(CHECKS, float("inf"))
    skips = {(what, fused): float("inf") for fused in (False, True) for what in ("skip", "scaler")}
    gc.disable()
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(ROUNDS):
            for case, make in CHECKS.items():
                hook = make()
                measure = Measure(hook)
                fit(directory, Module(), measure, hook)
                best[case] = min(best[case], measure.seconds)
            for fused in (False, True):
                skipping = CheckInvalidLossHook(INTERVAL, "skip")
                timer = MeasureSkip(skipping)
                fit(directory, Module(fused), skipping, timer)
                skips["skip", fused] = min(skips["skip", fused], timer.seconds)
                skips["scaler", fused] = min(skips["scaler", fused], timer.scaler_seconds)
            gc.collect()
    table = Table("case", "us per step", "over nothing", "x each step", title="Invalid loss")
    for case, value in best.items():
        extra = value - best["nothing"]
        ratio = extra / (best[PEER] - best["nothing"])
        table.add_row(case, f"{value * 1e6:.2f}", f"{extra * 1e6:.2f}", f"{ratio:.3f}")
    Console().print(table)
    table = Table("case", "us per step", "x scaler", title="Skip, 60 parameters")
    for (what, fused), value in skips.items():
        name = f"{what}, {'fused' if fused else 'plain'} Adam"
        table.add_row(name, f"{value * 1e6:.1f}", f"{value / skips['scaler', fused]:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
