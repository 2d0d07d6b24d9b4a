"""The time of each part of the default set, switched on and off within one fit.

Two fits differ by more than the cost of a part. So one fit goes through all cases, 100 steps each,
in a new order every round. A figure is the processor time of a case minus the time of the case
without the part, in microseconds per step. The part runs inside of training steps, where caches
are as cold as in real use.

    python -m benchmarks parts
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from benchmarks.by_hand import ByHand, InLists
from benchmarks.defaults import (
    BARE,
    EMPTY,
    FLOOR,
    FLOOR_OF_HOOKS,
    INTERVAL,
    OURS,
    SILENT,
    Empty,
    Module,
    default_hooks,
)
from benchmarks.dispatch import Muted
from benchmarks.measure import Bench, Figures, make_loader, quiet_trainer
from lightning_hooks.engine.driver.driver import Driver

STEPS = 100
"""Those of a case in a round; two lines of the log, where they are due."""

MUTED = "five callbacks that Lightning asks in vain"
CALLED = "what calls the hooks, without one"
LOSS = "taking the step's loss into the log buffer"
HOOKS = {
    "setting the rate": "CosineAnnealingLrUpdaterHook",
    "the timer, at both points": "IterTimerHook",
    "asking whether a line is due": "TextLoggerHook",
    "asking whether a checkpoint is due": "CheckpointHook",
}
CASES = (BARE, EMPTY, MUTED, CALLED, LOSS, *HOOKS, SILENT, OURS, FLOOR, FLOOR_OF_HOOKS)
LINE = f"a line each {INTERVAL} steps"
BASES = {MUTED: BARE, CALLED: MUTED, LOSS: CALLED, **dict.fromkeys(HOOKS, CALLED), LINE: SILENT}
"""Each part, and the case that is all but it."""


@dataclass
class Case:
    """The callbacks of a Trainer for some steps."""

    callbacks: Sequence[Callback]
    events: tuple[Any, Any] = (None, None)
    """The driver's, where a batch begins and ends."""
    interval: int = 10**9
    """Between two lines."""


def parts_of(trainer: L.Trainer) -> dict[str, Case]:
    """Return the cases of a Trainer that has our set and the floors."""
    given: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    driver = Driver.of(trainer)
    calls = driver.calls
    by_hand, in_lists = ([c for c in given if isinstance(c, k)] for k in (ByHand, InLists))
    ours = [c for c in given if not isinstance(c, (Muted, Switch))]

    def events(names: Iterable[str], collects: bool) -> tuple[Any, Any]:
        before, after = (
            [call for call in calls.calls_for(point) if type(call[0]).__name__ in names]
            for point in ("before_train_iter", "after_train_iter")
        )
        runner, step = driver.runner, driver._step

        def start(trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
            runner.data_batch = batch
            calls.run("before_train_iter", before)

        def end(trainer: L.Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
            runner.data_batch = batch
            if collects:
                step.fill_log_buffer(outputs)
            calls.run("after_train_iter", after)
            del runner.data_batch

        return start, end

    whole = events(HOOKS.values(), True)
    return {
        BARE: Case([]),
        EMPTY: Case([Empty()]),
        MUTED: Case(ours),
        CALLED: Case(ours, events((), False)),
        LOSS: Case(ours, events((), True)),
        **{part: Case(ours, events([name], False)) for part, name in HOOKS.items()},
        SILENT: Case(ours, whole),
        OURS: Case(ours, whole, INTERVAL),
        FLOOR: Case(by_hand),
        FLOOR_OF_HOOKS: Case([*in_lists, *(Muted() for _ in range(4))]),
    }


class Switch(Callback):
    """Goes through the cases and measures each; the first callback of the list."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}
        self._order = random.Random(0)
        self._todo: list[str] = []
        self._since = 0.0
        self.figures: dict[str, Figures] = {}

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        if index % STEPS:
            return
        now = time.thread_time()
        if self._cases:
            figure = (now - self._since) / STEPS * 1e6
            self.figures.setdefault(self._todo.pop(), []).append(figure)
        else:
            self._cases = parts_of(trainer)
        self._todo = self._todo or self._order.sample(CASES, len(CASES))
        self._turn_to(self._cases[self._todo[-1]], trainer)
        self._since = time.thread_time()

    def _turn_to(self, case: Case, trainer: L.Trainer) -> None:
        trainer.callbacks = [self, *case.callbacks]  # type: ignore[attr-defined]
        start, end = case.events
        for driver in (c for c in case.callbacks if isinstance(c, Driver)):  # the one, or none
            vars(driver).update(on_train_batch_start=start, on_train_batch_end=end)
            driver.runner.hooks[-1].interval = case.interval
            driver.runner.log_buffer.clear()


def run(rounds: int = 90) -> Bench:
    """Measure all parts in turns."""
    torch.set_num_threads(1)
    switch = Switch()
    steps = (rounds + 1) * len(CASES) * STEPS + 1  # the first round warms up
    with tempfile.TemporaryDirectory() as directory:
        floors = InLists(directory, steps, INTERVAL), ByHand(directory, steps, INTERVAL)
        callbacks = [switch, *floors, *default_hooks(INTERVAL)]
        trainer = quiet_trainer(directory, *callbacks, enable_checkpointing=True)
        trainer.fit(Module(), make_loader(torch.rand(2 * steps, 8), batch_size=2))
    return shares({case: figures[1:] for case, figures in switch.figures.items()})


def shares(figures: dict[str, Figures]) -> Bench:
    """Return the bench: the cost of each case above its base case, and its share of our set."""
    taken = Bench("", "", {**figures, LINE: figures[OURS]})
    wholes = (OURS, SILENT, EMPTY, FLOOR, FLOOR_OF_HOOKS)
    bases = {**dict.fromkeys(wholes, BARE), **BASES}
    extra = {case: taken.over(case, base) for case, base in bases.items()}
    bench = Bench("Parts of the default set", "us per step", {BARE: figures[BARE], **extra})
    for case, figures_of_case in extra.items():
        if case != OURS:
            bench.compare(case, figures_of_case, OURS, extra[OURS])
    return bench
