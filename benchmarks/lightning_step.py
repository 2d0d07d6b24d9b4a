"""The processor instructions of Lightning's bare step, and of a step with three cheaper parts.

In each step Lightning writes the name of the running event to the module 44 times, each time with
torch's search of the module's parameters for the name; Lightning enters a context manager of a
profiler without records 23 times, and reads the signature of ``training_step``. A case replaces one
of the three by a cheaper equivalent. Valgrind's callgrind counts; without valgrind the bench is
left out.

    python -m benchmarks lightning_step
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import logging
import tempfile
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import lightning as L
import torch
from lightning.pytorch.loops import training_epoch_loop
from lightning.pytorch.profilers import PassThroughProfiler

from benchmarks.defaults import LAST
from benchmarks.instructions import count, has_callgrind, mark
from benchmarks.loops import BARE, HAND, loops
from benchmarks.measure import Bench
from benchmarks.task import Meter, Task
from benchmarks.whole import CASES

ALL = "Lightning without all three"


class Counted(Meter):
    """Makes callgrind count the steps between the marks."""

    def __init__(self) -> None:
        super().__init__([LAST])

    def at_step(self) -> bool:
        mark(self.steps)
        return super().at_step()


def assign(module: torch.nn.Module, name: str, value: Any) -> None:
    """Set an attribute of a module; the event's name without torch's search."""
    if name == "_current_fx_name":
        object.__setattr__(module, name, value)
    else:
        torch.nn.Module.__setattr__(module, name, value)


@functools.cache
def takes(step: Any, parameter: str, **options: Any) -> bool:
    """Return whether a step takes a parameter, as Lightning asks."""
    return parameter in inspect.signature(step).parameters


PATCHES: dict[str, Callable[[], Any]] = {
    "Lightning without torch's search": lambda: mock.patch.object(
        L.LightningModule, "__setattr__", assign
    ),
    "Lightning without the generator": lambda: mock.patch.object(
        PassThroughProfiler, "profile", contextlib.nullcontext
    ),
    "Lightning without the signature": lambda: mock.patch.object(
        training_epoch_loop, "is_param_in_hook_signature", takes
    ),
}


def cases() -> Iterator[tuple[str, str, list[Any]]]:
    """Yield the cases: their names, loops and patches."""
    yield HAND, HAND, []
    yield BARE, BARE, []
    for name, patch in PATCHES.items():
        yield name, BARE, [patch]
    yield ALL, BARE, [*PATCHES.values()]


def run(rounds: int = 1) -> list[Bench]:
    """Count the instructions of each case."""
    if not has_callgrind():
        return []
    names = [name for name, *_ in cases()]
    counted = [count("benchmarks.lightning_step", len(names)) for _ in range(rounds)]
    figures = dict(zip(names, map(list, zip(*counted, strict=True)), strict=True))
    bench = Bench("A bare step of Lightning's, counted", "thousand instructions per step", figures)
    whole = bench.over(BARE, HAND)
    for name in names[2:]:
        bench.compare(f"{name}, over {HAND}", bench.over(name, HAND), BARE, whole)
    return [bench]


def main() -> None:
    """Train by each case; callgrind runs this program."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    gc.disable()
    linear = CASES[0]
    for _, loop, patches in cases():
        with contextlib.ExitStack() as stack, tempfile.TemporaryDirectory() as directory:
            for patch in patches:
                stack.enter_context(patch())
            loops()[loop](Task(linear.net, linear.shape, Counted(), directory, LAST + 2))


if __name__ == "__main__":
    main()
