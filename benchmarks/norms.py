"""The cost of norms of gradients, weights and updates in a step of the small net of ``whole``.

A figure is the processor time of a fit's steps, four intervals with a line of the log in each.

    python -m benchmarks norms
"""

from __future__ import annotations

import functools
import tempfile
import time
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.loops import Module
from benchmarks.measure import Bench, in_turns, make_loader, quiet_trainer
from benchmarks.whole import SMALL
from lightning_hooks import TextLoggerHook, WatchHook

INTERVAL, STEPS = 50, 200
ROWS, *SHAPE = 6, 3, 16, 16
PLAIN, NORMS = "a text log", 'a text log and WatchHook(log="norms")'


class Span(Callback):
    """Notes the processor time of the steps after the first."""

    def on_train_batch_start(self, trainer: L.Trainer, *rest: Any) -> None:
        if trainer.global_step == 1:
            self.begun = time.thread_time()
        elif trainer.global_step == STEPS + 1:
            self.seconds = time.thread_time() - self.begun


def step(watches: bool) -> float:
    """Return the microseconds of a step."""
    span, watch = Span(), [WatchHook(INTERVAL, log="norms")] if watches else []
    data = torch.rand((STEPS + 2) * ROWS, *SHAPE)
    with tempfile.TemporaryDirectory() as directory:
        trainer = quiet_trainer(directory, span, *watch, TextLoggerHook(interval=INTERVAL))
        trainer.fit(Module(SMALL()), make_loader(data, batch_size=ROWS))
    return span.seconds / STEPS * 1e6


def run(rounds: int = 31) -> Bench:
    """Measure in turns."""
    torch.set_num_threads(1)
    cases = {PLAIN: functools.partial(step, False), NORMS: functools.partial(step, True)}
    bench = Bench("Norms", "us per step", in_turns(cases, rounds))
    bench.compare_cases(NORMS, PLAIN, 1.02)
    return bench
