"""The cost of checking every loss: the check of one step, in the middle of a real fit.

A figure is processor time. The peer is ``assert torch.isfinite(loss)`` in every step, with a wait
for the device each time on a GPU; our hook reads the device once per interval. "skip" is the whole
decision before the optimizer's step of a network with 60 parameters, by losses, gradients and
buffers. The peers of "skip" are torch's ``GradScaler``, with a decision by gradients alone, and the
bare kernel.

    python -m benchmarks invalid_loss
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

from benchmarks.measure import Bench, in_turns, make_loader, quiet_trainer
from lightning_hooks import CheckInvalidLossHook, Hook
from lightning_hooks.engine.driver.driver import Driver

INTERVAL = 50
ROUNDS, STEPS = 15, 1000


class Assertion(Hook):
    """Assert that the loss is finite, in every step: the peer."""

    def after_train_iter(self, runner: Any) -> None:
        assert torch.isfinite(runner.outputs["loss"])


class SeldomAssertion(Hook):
    """Assert that the loss is finite in some steps only, as mmdetection does."""

    def after_train_iter(self, runner: Any) -> None:
        if self.every_n_iters(runner, INTERVAL):
            assert torch.isfinite(runner.outputs["loss"])


class Nothing(Hook):
    """Do nothing: the loop and the call alone."""

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
SCALER, KERNEL = "GradScaler", "the kernel"
KINDS = ("plain", "fused")


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
    """Times a check in the middle of a fit, repeated with rising step numbers."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, *args: Any) -> None:
        runner = Driver.of(trainer).runner
        check, first = self.hook.after_train_iter, runner.iter
        start = time.thread_time()
        for step in range(STEPS):
            runner._iter_shift = step
            check(runner)
        self.seconds = (time.thread_time() - start) / STEPS
        runner._iter = first


class MeasureSkip(Callback):
    """Times the decision before an optimizer's step, a gradient scaler's, and the kernel."""

    def __init__(self, hook: CheckInvalidLossHook) -> None:
        self.hook = hook
        self.seconds: dict[str, float] = {}

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        hook: Any = self.hook
        loss = torch.ones(())
        gradients = [parameter.grad for parameter in module.parameters()]
        found, scale = torch.zeros(()), torch.ones(())
        scaler = torch.amp.GradScaler("cpu", init_scale=1.0)
        scaler.scale(loss)

        def skip(step: int) -> None:
            hook.on_train_batch_start(trainer, module, None, 0)
            hook.on_before_backward(trainer, module, loss)
            hook.on_before_optimizer_step(trainer, module, optimizer)
            if step % INTERVAL == 0:
                hook._action._read_flags()  # as a line of the log does

        def scaler_decides(step: int) -> None:
            scaler.unscale_(optimizer)
            scaler.update()

        def kernel(step: int) -> None:
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, found, scale)
            found.item()

        for name, decide in (("skip", skip), (SCALER, scaler_decides), (KERNEL, kernel)):
            start = time.thread_time()
            for step in range(STEPS):
                decide(step)
            self.seconds[name] = (time.thread_time() - start) / STEPS


def fit(module: Module, *callbacks: Any) -> None:
    """Train for one batch."""
    with tempfile.TemporaryDirectory() as directory:
        trainer = quiet_trainer(directory, *callbacks)
        trainer.fit(module, make_loader(torch.ones(1, 8)))


def check(make: Callable[[], Hook]) -> float:
    """Return the microseconds of a check."""
    hook = make()
    measure = Measure(hook)
    fit(Module(), measure, hook)
    return measure.seconds * 1e6


def skip(fused: bool, name: str) -> float:
    """Return the microseconds of a decision to skip, by its name in :class:`MeasureSkip`."""
    hook = CheckInvalidLossHook(INTERVAL, "skip")
    measure = MeasureSkip(hook)
    fit(Module(fused), hook, measure)
    return measure.seconds[name] * 1e6


def run(rounds: int = 15) -> Iterator[Bench]:
    """Measure all cases in turns."""
    torch.set_num_threads(1)
    checks = {case: functools.partial(check, make) for case, make in CHECKS.items()}
    bench = Bench("Invalid loss", "us per step", in_turns(checks, rounds))
    ours, nothing = "CheckInvalidLossHook(50)", "nothing"
    bench.compare(ours, bench.over(ours, nothing), PEER, bench.over(PEER, nothing), 0.35)
    yield bench
    skips = {
        f"{name}, {kind} Adam": functools.partial(skip, kind == "fused", name)
        for kind in KINDS
        for name in ("skip", SCALER, KERNEL)
    }
    bench = Bench("Skip, 60 parameters", "us per step", in_turns(skips, rounds))
    for kind in KINDS:
        bench.compare_cases(f"skip, {kind} Adam", f"{SCALER}, {kind} Adam", 1.0)
        bench.compare_cases(f"skip, {kind} Adam", f"{KERNEL}, {kind} Adam")
    yield bench
