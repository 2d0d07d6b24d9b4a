"""The waits on two ranks: collectives and their bytes, reads of tensors, the time of a step.

Two processes on the CPU train the small net of the bench ``whole`` under DDP with gloo. Collectives
and reads from Python are counted on each rank, from the second to the last but one batch of a fit;
DDP's exchange of gradients is not called from Python. The time is the wall-clock median of a fit's
steps on rank 0, since a wait takes no processor time.

With a tiny net, the collectives of a step, a log line, a loss check, an epoch and a save are
counted, and the bytes that rank 0 contributes.

    python -m benchmarks ranks
"""

from __future__ import annotations

import functools
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint
from lightning.pytorch.strategies import DDPStrategy
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from benchmarks.loops import BARE, Module
from benchmarks.measure import Bench, Figures, in_turns, make_loader, quiet_trainer
from benchmarks.whole import SMALL
from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    TextLoggerHook,
    ThroughputHook,
    WatchHook,
)

RANKS, BATCH = 2, (6, 3, 16, 16)
STEPS, INTERVAL = 100, 50
"""The counted steps of a fit, and those between two lines or checks."""
NATIVE, FOREIGN = "our hooks", "a foreign hook in an adapter"
WATCHING = "our hooks, watching spikes, norms and throughput"
SYNCED = "self.log(sync_dist=True)"


class Synced(Module):
    """Logs the mean of the ranks' losses in each step, as a user of Lightning does."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss, sync_dist=True)
        return loss


class Foreign:
    """A hook of the user's, with both points of a batch."""

    def before_train_iter(self, runner: Any) -> None: ...

    def after_train_iter(self, runner: Any) -> None: ...


class Clock(Callback):
    """Notes when each batch begins."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_batch_start(self, trainer: L.Trainer, *rest: Any) -> None:
        self.times.append(time.perf_counter())

    @property
    def microseconds(self) -> float:
        """The median of all steps but the first."""
        pairs = zip(self.times[1:], self.times[2:], strict=False)
        return statistics.median(later - one for one, later in pairs) * 1e6


def native_hooks() -> list[Any]:
    """Return a full set, with one log line, one check and no checkpoint per interval."""
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        OptimizerHook(),
        EMAHook(),
        CheckInvalidLossHook(interval=INTERVAL),
        CheckpointHook(),
        IterTimerHook(),
        TextLoggerHook(interval=INTERVAL),
    ]


def watching_hooks() -> list[Any]:
    """Return the full set with a check for loss spikes, norms and throughput."""
    spikes = CheckInvalidLossHook(interval=INTERVAL, spike={"ratio": 3.0})
    others = [one for one in native_hooks() if not isinstance(one, CheckInvalidLossHook)]
    norms = WatchHook(log="norms", interval=INTERVAL)
    return [*others[:-1], spikes, norms, ThroughputHook(), others[-1]]


CASES: dict[str, tuple[type[Module], Callable[[], list[Any]]]] = {
    BARE: (Module, list),
    NATIVE: (Module, native_hooks),
    WATCHING: (Module, watching_hooks),
    FOREIGN: (Module, lambda: [HookAdapter([Foreign()])]),
    SYNCED: (Synced, list),
}


def train(case: str, look: Callback) -> None:
    """Train with the callbacks of a case, on this rank."""
    make_module, make_callbacks = CASES[case]
    callbacks = make_callbacks()
    with tempfile.TemporaryDirectory() as directory:
        options: dict[str, Any] = {
            "devices": RANKS,
            "strategy": DDPStrategy(process_group_backend="gloo"),
            "enable_checkpointing": any(isinstance(one, Checkpoint) for one in callbacks),
        }
        trainer = quiet_trainer(directory, look, *callbacks, **options)
        rows, *shape = BATCH
        data = torch.rand((STEPS + 2) * RANKS * rows, *shape)
        trainer.fit(make_module(SMALL()), make_loader(data, batch_size=rows))


def count(case: str) -> tuple[float, float]:
    """Return the collectives and the reads of a step."""
    from support.device_reads import Waits  # of the tests: only the bench's own process has them

    look = Waits()
    train(case, look)
    return len(look.collectives) / STEPS, len(look.reads) / STEPS


def take_time(case: str) -> float:
    """Return the microseconds of a step."""
    clock = Clock()
    train(case, clock)
    return clock.microseconds


def events() -> dict[str, dict[str, float]]:
    """Return the collectives of an event, by name, and their bytes."""
    from support.jobs.collectives import counts  # of the tests

    with tempfile.TemporaryDirectory() as directory:
        found: dict[str, dict[str, float]] = counts(Path(directory))
    return found


def one_rank(
    rounds: int,
) -> tuple[dict[str, tuple[float, float]], dict[str, Figures], dict[str, dict[str, float]]]:
    """Return the counts and the times of all cases, and the counts of events, on this rank."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    counts = {case: count(case) for case in CASES}
    times = in_turns({case: functools.partial(take_time, case) for case in CASES}, rounds)
    return counts, times, events()


def run(rounds: int = 20) -> list[Bench]:
    """Count and measure all cases in two processes."""
    config = LaunchConfig(1, 1, RANKS, run_id="ranks", rdzv_backend="c10d")
    ranks = elastic_launch(config, one_rank)(rounds)
    collectives, reads = (
        {case: [counts[case][i] for counts, *_ in ranks.values()] for case in CASES} for i in (0, 1)
    )
    of_events = ranks[0][2]
    sizes = {event: [calls.pop("bytes", 0.0)] for event, calls in of_events.items()}
    calls = {event: [sum(calls.values())] for event, calls in of_events.items()}
    benches = [
        Bench("Collectives by event", "calls of a rank", calls),
        Bench("Bytes to collectives by event", "bytes of rank 0", sizes),
    ]
    for title, unit, figures, goal in (
        ("Collectives on two ranks", "a step", collectives, 1 + 1 / INTERVAL),
        ("Device reads on two ranks", "a step", reads, 1 + 2 / INTERVAL),
        ("A step on two ranks", "us per step", ranks[0][1], 1.1),
    ):
        bench = Bench(title, unit, figures)
        for case in (NATIVE, WATCHING, FOREIGN):
            is_counted = unit == "a step"
            at_most = 1.0 if case == FOREIGN and is_counted else goal
            what = f"{title.lower()}, {case}"
            bench.compare(what, figures[case], BARE, figures[BARE], at_most)
        benches.append(bench)
    return benches
