"""The cost of a step in a long run, and with many hooks; a step should not become slower.

A run of half a million nearly empty iterations has the usual hooks; the processor time of a step
and the memory of the process are noted after each tenth of the run. Then the six events of a batch
are timed with 1 to 200 hooks.

    python -m benchmarks growth
"""

from __future__ import annotations

import functools
import gc
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch

from benchmarks.checkpoint import resident
from benchmarks.dispatch import Both, measure
from benchmarks.measure import Bench, Figures, in_turns, make_loader, quiet_trainer
from lightning_hooks import CheckInvalidLossHook, EMAHook, Hook, HookAdapter, IterTimerHook
from lightning_hooks.hooks.updaters.anneal import CosineAnnealingLrUpdaterHook
from lightning_hooks.loggers.text import TextLoggerHook

ITERATIONS, PARTS = 500_000, 10


class Counter:
    """A dataset of zeros."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return 0


class Still(L.LightningModule):
    """A module with manual optimization whose step runs no backward."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self.weight.detach()[0]}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Notes(Hook):
    """Notes processor time and memory at the end of each part of the run."""

    _reads_step = False
    priority = "LOWEST"

    def __init__(self, part: int) -> None:
        self.part = part
        self.seconds: Figures = []
        self.memory: Figures = []

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter % self.part == 0 or runner.iter == runner.max_iters - 1:
            gc.collect()
            self.memory.append(resident() / 2**20)
            self.seconds.append(time.thread_time())


def one_run(iterations: int) -> tuple[Figures, Figures]:
    """Return the microseconds of a step in each part of a run, and the MiB at their ends."""
    notes = Notes(iterations // PARTS)
    hooks = [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        IterTimerHook(),
        EMAHook(),
        CheckInvalidLossHook(interval=50),
        TextLoggerHook(interval=1000),
        notes,
    ]
    with tempfile.TemporaryDirectory() as directory:
        adapter = HookAdapter(hooks, work_dir=directory)
        trainer = quiet_trainer(directory, adapter)
        trainer.fit(Still(), make_loader(Counter(iterations), batch_size=None))
    pairs = zip(notes.seconds, notes.seconds[1:], strict=False)
    times = [(later - earlier) / notes.part * 1e6 for earlier, later in pairs]
    return times, notes.memory[1:]


def run(rounds: int = 5, iterations: int = ITERATIONS) -> Iterator[Bench]:
    """Measure one long run, and many hooks."""
    torch.set_num_threads(1)
    times, memory = one_run(iterations)
    bench = Bench(f"A run of {iterations:,} iterations", "us per step", {"each tenth": times})
    bench.compare("a late step of a long run", times[-3:], "an early one", times[1:4], 1.1)
    yield bench
    bench = Bench(f"A run of {iterations:,} iterations", "MiB", {"each tenth": memory})
    bench.compare("memory at its end", memory[-1:], "after two tenths", memory[1:2], 1.02)
    yield bench
    with tempfile.TemporaryDirectory() as directory:

        def hooks(count: int) -> list[Any]:
            return [HookAdapter([Both() for _ in range(count)])]

        cases = {
            f"{count} hooks": functools.partial(measure, functools.partial(hooks, count), directory)
            for count in (1, 20, 100, 200)
        }
        bench = Bench("Hooks of one adapter", "us per batch", in_turns(cases, rounds))
    extra = {case: bench.over(case, "1 hooks") for case in ("100 hooks", "200 hooks")}
    each = {case: [x / (int(case.split()[0]) - 1) for x in extra[case]] for case in extra}
    bench.compare("a hook among 200", each["200 hooks"], "a hook among 100", each["100 hooks"], 1.2)
    yield bench
