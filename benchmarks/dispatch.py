"""The cost of calling hooks: the callback events of one training batch, without a model.

All cases run in one process, in turns. A figure is the processor time of the least of several
repetitions. The peers are Lightning's own no-op callback, and ``call_hook`` of mmcv's runner.

    python -m benchmarks dispatch
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer import call

from benchmarks.measure import Bench, Figures, has, in_turns, make_loader, quiet_trainer
from lightning_hooks import Hook, HookAdapter

EVENTS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
)
REPEATS, TRIES = 100, 50
MANY = 100


class Stock(Callback):
    """A callback with all events, each of which does nothing."""


class Muted(Callback):
    """A callback with only the live events: Lightning looks up each event and skips the others."""

    def __init__(self, *live: str) -> None:
        self.__dict__.update({name: None for name in EVENTS if name not in live})


class Light(Hook):
    """A hook with a method at one point of the batch, without use of the step's outputs."""

    _reads_step = False

    def after_train_iter(self, runner: Any) -> None: ...


class After:
    """A hook in mmcv style with an empty method at one point of the batch."""

    _reads_step = False

    def after_train_iter(self, runner: Any) -> None: ...


class Both(After):
    """A foreign hook with both points."""

    def before_train_iter(self, runner: Any) -> None: ...


class Idle:
    """A foreign hook without a point of the batch."""

    _reads_step = False

    def before_run(self, runner: Any) -> None: ...


class Bare(Muted):
    """The floor: bare lists of bound methods."""

    def __init__(self, *hooks: Any) -> None:
        self.before = [h.before_train_iter for h in hooks if isinstance(h, Both)]
        self.after = [h.after_train_iter for h in hooks]
        live = {"on_train_batch_start": self.before, "on_train_batch_end": self.after}
        super().__init__(*[name for name, methods in live.items() if methods])

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        for method in self.before:
            method(None)

    def on_train_batch_end(
        self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        for method in self.after:
            method(None)


CASES: dict[str, Callable[[], list[Any]]] = {
    "no callback": list,
    "1 stock callback": lambda: [Stock()],
    "20 stock callbacks": lambda: [Stock() for _ in range(20)],
    "1 native hook, one live point": lambda: [Light()],
    "floor, 1 hook with one live point": lambda: [Bare(Light())],
    "the same beside a muted callback": lambda: [Bare(Light()), Muted()],
    "20 native hooks, one live point each": lambda: [Light() for _ in range(20)],
    "adapter, 1 old hook and 99 idle ones": lambda: [
        HookAdapter([Both(), *(Idle() for _ in range(MANY - 1))])
    ],
}
POINTS: dict[str, type[After]] = {"one point": After, "both points": Both}


def hosts(kind: str) -> dict[str, Callable[[], list[Any]]]:
    """Return the cases of hooks with so many points of the batch."""
    make = POINTS[kind]
    return {
        f"floor, 20 old hooks, {kind}": lambda: [Bare(*(make() for _ in range(20)))],
        f"adapter, 1 old hook, {kind}": lambda: [HookAdapter([make()])],
        f"adapter, 20 old hooks, {kind}": lambda: [HookAdapter([make() for _ in range(20)])],
        f"adapter, {MANY} old hooks, {kind}": lambda: [HookAdapter([make() for _ in range(MANY)])],
    }


class DirectModule(L.LightningModule):
    """A module that writes the name of the running event as cheaply without hooks as with hooks.

    A fit with hooks saves Lightning some work at each event; the comparison leaves the saving out.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)


class Module(DirectModule):
    """The smallest module that a Trainer can fit."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def least_time(work: Callable[[], Any]) -> float:
    """Return the least processor time of a call in microseconds."""
    best = float("inf")
    for _ in range(TRIES):
        start = time.thread_time()
        for _ in range(REPEATS):
            work()
        best = min(best, (time.thread_time() - start) / REPEATS)
    return best * 1e6


class Measure(Callback):
    """Times the six events of a batch in the middle of a fit."""

    microseconds = 0.0

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        trainer.callbacks = [c for c in callbacks if c is not self]  # type: ignore[attr-defined]
        arguments: dict[str, tuple[Any, ...]] = {
            "on_train_batch_start": (batch, batch_idx),
            "on_train_batch_end": (outputs, batch, batch_idx),
            "on_after_backward": (),
        }
        plan = [(name, arguments.get(name, (None,))) for name in EVENTS]

        def one_batch() -> None:
            for name, given in plan:
                call._call_callback_hooks(trainer, name, *given)

        self.microseconds = least_time(one_batch)
        trainer.callbacks = callbacks  # type: ignore[attr-defined]


def measure(make: Callable[[], list[Any]], directory: str) -> float:
    """Return the microseconds of one batch's events."""
    timer = Measure()
    trainer = quiet_trainer(directory, *make(), timer)
    trainer.fit(Module(), make_loader(torch.ones(1, 1)))
    return timer.microseconds


def mmcv(hooks: int, kind: str) -> float:
    """Return the microseconds of mmcv's two points of a batch."""
    import oracle  # tests/golden: it makes mmcv import without torchvision

    runner = oracle.make_runner("EpochBasedRunner", 1)
    small = type("Small", (POINTS[kind], oracle.Hook), {})

    for _ in range(hooks):
        runner.register_hook(small())

    def one_batch() -> None:
        runner.call_hook("before_train_iter")
        runner.call_hook("after_train_iter")

    return least_time(one_batch)


def floor(kind: str) -> float:
    """Return the microseconds of the calls alone: bare lists of bound methods."""
    bare = Bare(*(POINTS[kind]() for _ in range(MANY)))

    def one_batch() -> None:
        for methods in (bare.before, bare.after):
            for method in methods:
                method(None)

    return least_time(one_batch)


def run(rounds: int = 9) -> Bench:
    """Measure all cases in turns."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        made = CASES | hosts("one point") | hosts("both points")
        cases = {case: functools.partial(measure, make, directory) for case, make in made.items()}
        for kind in POINTS:
            if has("mmcv"):
                cases[f"mmcv, 1 hook, {kind}"] = functools.partial(mmcv, 1, kind)
                cases[f"mmcv, {MANY} hooks, {kind}"] = functools.partial(mmcv, MANY, kind)
            cases[f"floor, {MANY} hooks, {kind}"] = functools.partial(floor, kind)
        bench = Bench("Calls", "us per batch", in_turns(cases, rounds))

    def per_hook(case: str, base: str) -> Figures:
        return [extra / (MANY - 1) for extra in bench.over(case, base)]

    peer, none = "mmcv's call_hook", "no callback"
    for kind in POINTS if has("mmcv") else ():
        theirs = per_hook(f"mmcv, {MANY} hooks, {kind}", f"mmcv, 1 hook, {kind}")
        ours = per_hook(f"adapter, {MANY} old hooks, {kind}", f"adapter, 1 old hook, {kind}")
        bare = [figure / MANY for figure in bench.figures[f"floor, {MANY} hooks, {kind}"]]
        goal = 0.4 if kind == "one point" else None  # two points: "whole" has the goal
        bench.compare(f"a hosted hook, {kind}", ours, peer, theirs, goal)
        bench.compare(f"a hosted hook, {kind}", ours, "the bare calls", bare)
        bench.compare(f"the bare calls, {kind}", bare, peer, theirs)
    if has("mmcv"):
        idle = per_hook("adapter, 1 old hook and 99 idle ones", "adapter, 1 old hook, both points")
        bench.compare("a hosted hook without a point of the batch", idle, peer, theirs, 0.05)
    for ours_, peer, goal in (
        ("adapter, 20 old hooks, one point", "20 stock callbacks", 0.04),
        ("floor, 20 old hooks, one point", "20 stock callbacks", None),
        ("adapter, 20 old hooks, both points", "20 stock callbacks", 0.04),
        ("floor, 20 old hooks, both points", "20 stock callbacks", None),
        ("1 native hook, one live point", "1 stock callback", 0.3),
        ("floor, 1 hook with one live point", "1 stock callback", None),
        ("the same beside a muted callback", "1 stock callback", None),
    ):
        bench.compare(ours_, bench.over(ours_, none), peer, bench.over(peer, none), goal)
    return bench
