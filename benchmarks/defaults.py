"""The time that a usual set of hooks adds to a step: learning rate, log, timer, checkpoint.

A figure is the processor time of a step of a tiny model in the middle of an epoch: the lesser of
two runs of 100 steps with their log lines. The time of the same loop without hooks is subtracted:
of Lightning's loop for our hooks and for Lightning's own equivalents, of mmcv's loop for mmcv's
hooks. There are two floors. In the first, one callback does the set's work, without hooks and
without a runner. In the second, hooks are called from lists of their methods, and the Trainer has
as many callbacks without an event as the set has hooks, since Lightning calls every callback.

    python -m benchmarks defaults
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, LearningRateMonitor, ModelCheckpoint, Timer
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from benchmarks.by_hand import ByHand, InLists
from benchmarks.dispatch import DirectModule, Muted
from benchmarks.measure import Bench, has, in_turns, make_loader, quiet_trainer
from lightning_hooks import IterTimerHook, TextLoggerHook
from lightning_hooks.hooks.saving.last import CheckpointHook
from lightning_hooks.hooks.updaters.anneal import CosineAnnealingLrUpdaterHook

INTERVAL, FIRST, LAST = 50, 50, 250
MARKS = range(FIRST, LAST + 1, 100)
"""The steps between which time is taken; Lightning's CSVLogger writes after 100."""
BARE, LIGHTNINGS, OURS = "Lightning, bare", "Lightning's equivalents", "our default set"
SILENT = "our default set, no line due"
EMPTY = "one callback, its two events empty"
FLOOR, FLOOR_OF_HOOKS = "floor, one callback", "floor, hooks in lists and four muted callbacks"
PARTS = (SILENT, EMPTY, FLOOR, FLOOR_OF_HOOKS)
KINDS = (BARE, LIGHTNINGS, OURS, *PARTS)
MMCV_BARE, MMCV = "mmcv, bare", "mmcv's default set in mmcv"


class Module(DirectModule):
    """A linear layer; with ``logs`` the module logs and schedules as Lightning's users do."""

    def __init__(self, logs: bool = False) -> None:
        super().__init__()
        self.net = nn.Linear(8, 2)
        self.logs = logs

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.net(batch).square().mean()
        if self.logs:
            self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=0.01)
        if not self.logs:
            return optimizer
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, LAST)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Meter:
    """Measures the processor time of a step: the least between two marks."""

    marks = MARKS

    def __init__(self) -> None:
        self._seconds: list[float] = []

    def mark(self, step: int) -> None:
        """Note the begin of a marked step."""
        self._seconds.append(time.thread_time())

    @property
    def microseconds(self) -> float:
        """Return the microseconds of a step."""
        least = min(later - one for one, later in itertools.pairwise(self._seconds))
        return least / MARKS.step * 1e6


class Metered(Callback):
    """Calls a meter at each step, as the first callback, and ends the run at the last mark."""

    def __init__(self, meter: Any) -> None:
        self.meter = meter

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        if index in self.meter.marks:
            self.meter.mark(index)
            trainer.should_stop = index == self.meter.marks[-1]


class Empty(Muted):
    """Does nothing at the batch's begin and end: as many calls as all of our hooks together."""

    def __init__(self) -> None:
        super().__init__("on_train_batch_start", "on_train_batch_end")

    def on_train_batch_start(self, *given: Any) -> None: ...

    def on_train_batch_end(self, *given: Any) -> None: ...


def default_hooks(interval: int) -> list[Any]:
    """Return ours, with so many steps between two lines."""
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        CheckpointHook(interval=1),
        IterTimerHook(),
        TextLoggerHook(interval=interval),
    ]


def in_lightning(kind: str, meter: Meter) -> None:
    """Train with a set of hooks."""
    with tempfile.TemporaryDirectory() as directory:
        options: dict[str, Any] = {}
        callbacks: list[Any] = [Metered(meter)]
        if kind in (OURS, SILENT):
            callbacks += default_hooks(INTERVAL if kind == OURS else 10 * LAST)
            options = {"enable_checkpointing": True}
        if kind == EMPTY:
            callbacks.append(Empty())
        if kind == FLOOR:
            callbacks.append(ByHand(directory, LAST, INTERVAL))
        if kind == FLOOR_OF_HOOKS:
            callbacks.append(InLists(directory, LAST, INTERVAL))
            callbacks += [Muted() for _ in range(4)]
        if kind == LIGHTNINGS:
            callbacks += [LearningRateMonitor("step"), Timer(), ModelCheckpoint(directory)]
            options = {"logger": CSVLogger(directory), "log_every_n_steps": INTERVAL}
            options["enable_checkpointing"] = True
        trainer = quiet_trainer(directory, *callbacks, max_epochs=2, **options)
        loader = make_loader(torch.rand(2 * (LAST + 2), 8), batch_size=2)
        trainer.fit(Module(logs=kind == LIGHTNINGS), loader)


def in_mmcv(kind: str, meter: Meter) -> None:
    """Train in mmcv's runner, always with a hook that steps the optimizer."""
    import oracle  # tests/golden: it makes mmcv import without torchvision

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(8, 2)

        def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
            loss = self.net(data).square().mean()
            return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": 2}

    class MeteredHook(oracle.Hook):  # type: ignore[misc]
        def before_train_iter(self, runner: Any) -> None:
            if runner.inner_iter in meter.marks:
                meter.mark(runner.inner_iter)

    with tempfile.TemporaryDirectory() as directory:
        runner = oracle.make_runner("EpochBasedRunner", 1, Model(), work_dir=directory)
        runner.register_hook(MeteredHook(), "HIGHEST")
        runner.register_optimizer_hook({})
        if kind == MMCV:
            runner.register_lr_hook({"policy": "CosineAnnealing", "min_lr": 0.0, "by_epoch": False})
            runner.register_checkpoint_hook({"interval": 1})
            runner.register_timer_hook({"type": "IterTimerHook"})
            runner.register_logger_hooks(
                {"interval": INTERVAL, "hooks": [{"type": "TextLoggerHook"}]}
            )
        loader = make_loader(torch.rand(2 * (LAST + 2), 8), batch_size=2)
        oracle.run(runner, [loader], [("train", 1)])


def cases() -> dict[str, Callable[[Meter], None]]:
    """Return the training function of each set, by name."""
    found: dict[str, Callable[[Meter], None]] = {
        kind: functools.partial(in_lightning, kind) for kind in KINDS
    }
    if has("mmcv"):
        found |= {kind: functools.partial(in_mmcv, kind) for kind in (MMCV_BARE, MMCV)}
    return found


def run(rounds: int = 30) -> Bench:
    """Measure all sets in turns."""
    torch.set_num_threads(1)

    def measure(train: Callable[[Meter], None]) -> float:
        meter = Meter()
        train(meter)
        return meter.microseconds

    turns = {kind: functools.partial(measure, train) for kind, train in cases().items()}
    bench = Bench("Default sets", "us per step", in_turns(turns, rounds))
    compare(bench)
    return bench


def compare(bench: Bench) -> None:
    """Add the ratios of our set, and of each hook of our set, to the peers' sets."""
    extra = bench.over(OURS, BARE)
    what = f"{OURS}, over the bare loop"
    peers = [(LIGHTNINGS, BARE)]
    if has("mmcv"):
        peers.append((MMCV, MMCV_BARE))
    for peer, bare in peers:
        theirs = bench.over(peer, bare)
        bench.compare(what, extra, peer, theirs)
        for part in PARTS:
            bench.compare(part, bench.over(part, BARE), peer, theirs)
