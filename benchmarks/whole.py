"""The time of a whole training loop: by hand, in mmcv, in Lightning, and in Lightning with hooks.

The first part measures a training step of three nets; by hand a step takes about 0.1, 1 and 18 ms.
The middle net is also trained in a run counted in iterations, and with a validation after every 50
steps, where validation batches count as steps. All loops run at the same time and take turns every
few steps, so that a slow moment of the machine slows all loops. A turn begins with uncounted steps,
because the other loops have emptied the caches. A figure is the median of a run's turns.

The second part measures single events: the start of a run until the first step; the border between
two epochs, with a log line; an epoch of one step; border and epoch with a checkpoint. A figure is
the least of a run. All figures are processor time of the training thread.

Freed memory is kept. By default glibc returns freed memory to the system and requests the memory
again: thousands of pages in a step of the largest net, in some runs and not in others.

    python -m benchmarks whole
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.alternation import alternately
from benchmarks.loops import BARE, HAND, HOSTED, MMCV, NATIVE, OWN, SCRIPT, loops
from benchmarks.measure import Bench, Figures, in_turns, keep_freed_memory
from benchmarks.task import Meter, Task

Loop = Callable[[Task], None]
PAIRS = ((HOSTED, MMCV), (NATIVE, MMCV), (BARE, HAND), (BARE, MMCV), (MMCV, HAND))
"""Ratios without a goal."""


def convnet(width: int) -> nn.Module:
    """Make a small convolutional net."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, 2),
    )


@dataclass(frozen=True)
class Steps:
    """The steps of a net between marks."""

    name: str
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    turns: int
    span: int
    """Steps of a turn; the log's line is due in each fiftieth."""
    rest: int
    """Steps before them, in which the caches are filled again."""
    goals: tuple[float | None, float | None, float | None] = (None, None, None)
    """Ratios: our hooks over bare Lightning, over its own callbacks; an old script over mmcv."""
    options: tuple[tuple[str, Any], ...] = ()

    def figures(self, rounds: int) -> dict[str, Figures]:
        """Return the microseconds of a step in each loop, round by round."""
        jobs = {name: partial(self._time, loop) for name, loop in loops().items()}
        found = in_turns({"all": partial(alternately, jobs)}, rounds)["all"]
        return {name: [figures[name] for figures in found] for name in jobs}

    def _time(self, loop: Loop, pass_on: Callable[[], None]) -> float:
        begins = [self.rest + turn * (self.span + self.rest) for turn in range(self.turns)]
        meter = Meter([mark for begin in begins for mark in (begin, begin + self.span)], pass_on)
        length = meter.marks[-1] + 2
        run_loop(loop, meter, self.net, self.shape, **{"length": length, **dict(self.options)})
        times = iter(meter.seconds)
        spans = [end - begin for begin, end in zip(times, times, strict=True)]
        return statistics.median(spans) / self.span * 1e6


SMALL = partial(convnet, 8)
CASES = (
    Steps("a linear layer", lambda: nn.Linear(8, 2), (2, 8), 6, 100, 50, (1.3, 0.65, 1.6)),
    Steps("a small net", SMALL, (6, 3, 16, 16), 4, 100, 50, (1.1, 0.85, 1.12)),
    Steps("a net", partial(convnet, 32), (24, 3, 48, 48), 12, 5, 3, (1.02, 1.0, 1.02)),
    Steps(
        "a small net, by iteration",
        SMALL,
        (6, 3, 16, 16),
        4,
        100,
        50,
        options=(("by_epoch", False),),
    ),
    Steps(
        "a small net with validation",
        SMALL,
        (6, 3, 16, 16),
        3,
        50,
        50,
        options=(("length", 50), ("validates", True)),
    ),
)


def run_loop(
    loop: Loop,
    meter: Meter,
    net: Callable[[], nn.Module] = SMALL,
    shape: tuple[int, ...] = (6, 3, 16, 16),
    **options: Any,
) -> None:
    """Run a loop in a temporary directory."""
    with tempfile.TemporaryDirectory() as directory:
        loop(Task(net, shape, meter, directory, **options))


def start(loop: Loop) -> float:
    """Return the milliseconds until the first step."""
    meter = Meter([0])
    run_loop(loop, meter, length=2)
    return (meter.seconds[0] - meter.begun) * 1e3


def border(loop: Loop, saves: bool) -> float:
    """Return the milliseconds between two epochs of 10 steps.

    That is the time of an epoch's last step minus the time of another step. In all loops with a
    log, the last step writes a log line.
    """
    meter = Meter(range(8, 61))
    run_loop(loop, meter, length=10, interval=10, saves=saves)
    spans = [later - one for one, later in itertools.pairwise(meter.seconds)]
    # the first span is that of step 8
    return (min(spans[1::10]) - min(spans[::10])) * 1e3


def short_epoch(loop: Loop, saves: bool) -> float:
    """Return the milliseconds of an epoch of one step with a log line."""
    meter = Meter(range(8, 61))
    run_loop(loop, meter, length=1, interval=1, saves=saves)
    return min(later - one for one, later in itertools.pairwise(meter.seconds)) * 1e3


def run(rounds: int = 4) -> list[Bench]:
    """Measure all loops in turns."""
    torch.set_num_threads(1)
    keep_freed_memory()
    benches = []
    for case in CASES:
        bench = Bench(f"A step of {case.name}", "us per step", case.figures(rounds))
        over_bare, over_own, over_mmcv = case.goals
        goals = ((NATIVE, BARE, over_bare), (NATIVE, OWN, over_own), (SCRIPT, MMCV, over_mmcv))
        compare(bench, f"a step of {case.name}", goals)
        compare(bench, f"a step of {case.name}", ((one, other, None) for one, other in PAIRS))
        benches.append(bench)
    once: dict[str, tuple[Callable[[Loop], float], float | None, float | None]] = {
        # the goals over bare Lightning and over its own callbacks
        "the start": (start, 1.6, 1.2),
        "the border of an epoch": (partial(border, saves=False), None, 1.3),
        "the border with a checkpoint": (partial(border, saves=True), None, 1.3),
        "an epoch of one step": (partial(short_epoch, saves=False), None, 1.3),
        "an epoch of one step and a checkpoint": (partial(short_epoch, saves=True), None, 1.3),
    }
    for name, (measure, over_bare, over_own) in once.items():
        turns = {loop_name: partial(measure, loop) for loop_name, loop in loops().items()}
        bench = Bench(name.capitalize(), "ms of the training thread", in_turns(turns, rounds))
        pairs = ((NATIVE, BARE, over_bare), (OWN, BARE, None), (NATIVE, OWN, over_own))
        compare(bench, name, (*pairs, (SCRIPT, MMCV, None), (HOSTED, MMCV, None)))
        benches.append(bench)
    return benches


def compare(bench: Bench, what: str, pairs: Any) -> None:
    """Add ratios of loops; ``what`` names the part of the loop."""
    for ours, peer, goal in pairs:
        if {ours, peer} <= bench.figures.keys():
            bench.compare(f"{what}, {ours}", bench.figures[ours], peer, bench.figures[peer], goal)
