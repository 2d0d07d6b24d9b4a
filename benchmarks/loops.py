"""The loops that the bench ``whole`` compares: by hand, mmcv's, Lightning's, and an old script's.

Each trains the same net by the same task: it steps, sets the rates of a cosine, takes the time,
writes a text log, and if the task demands it validates, and saves at the end of every epoch. Two of
them are bare: a ``for`` loop, and Lightning without a hook.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from torch import nn

from benchmarks.measure import has, make_loader, quiet_trainer
from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    TextLoggerHook,
)

__all__ = ["BARE", "HAND", "HOSTED", "MMCV", "NATIVE", "SCRIPT", "Meter", "Task", "loops"]

INTERVAL = 50
"""Steps between two lines of the log."""
HAND, MMCV = "a loop by hand", "mmcv"
BARE, NATIVE, HOSTED = "Lightning, bare", "Lightning with our hooks", "Lightning with mmcv's hooks"
SCRIPT = "an old script with Lightning as its engine"


class Meter:
    """Takes the processor time at marked steps of a run, and at its start.

    Args:
        marks: The numbers of the steps, from 0; the run ends at the last.
    """

    def __init__(self, marks: Sequence[int]) -> None:
        self.marks = marks
        self.steps = 0
        self.begun = 0.0
        self.seconds: list[float] = []

    def begin(self) -> None:
        """Note the start of the run."""
        self.begun = time.thread_time()

    def at_step(self) -> bool:
        """Note the time where a marked step begins; return whether the run ends here."""
        step, self.steps = self.steps, self.steps + 1
        if step in self.marks:
            self.seconds.append(time.thread_time())
        return step >= self.marks[-1]


@dataclass(frozen=True)
class Task:
    """What a loop trains, and for how long."""

    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    """That of a batch."""
    meter: Meter
    directory: str
    length: int
    """Steps of an epoch, or of the run if it is counted in iterations."""
    by_epoch: bool = True
    validates: bool = False
    saves: bool = False

    @functools.cached_property
    def loader(self) -> Any:
        """The batches of an epoch."""
        rows = self.shape[0]
        return make_loader(torch.rand(self.length * rows, *self.shape[1:]), batch_size=rows)

    @property
    def epochs(self) -> int:
        """More than the meter takes."""
        return self.meter.marks[-1] // self.length + 2


class Metered(Callback):
    """Calls a meter, the first of all callbacks, and ends the run at its last mark."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_train_batch_start(self, trainer: L.Trainer, *rest: Any) -> None:
        if self.meter.at_step():
            trainer.should_stop = True


class Module(L.LightningModule):
    """A net with the loss of all loops."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch).square().mean()

    validation_step = training_step

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Model(nn.Module):
    """The same net, as mmcv's runners train it."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        loss = self.net(data).square().mean()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data)}

    val_step = train_step


def by_hand(task: Task) -> None:
    """Train in a ``for`` loop."""
    net = task.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    task.meter.begin()
    for _ in range(task.epochs):
        for batch in task.loader:
            if task.meter.at_step():
                return
            loss = net(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if task.saves:
            torch.save(net.state_dict(), f"{task.directory}/net.pth")
        for batch in task.loader if task.validates else ():
            with torch.no_grad():
                net(batch).square().mean()


def bare(task: Task) -> list[Any]:
    """Return the callbacks of Lightning without hooks."""
    return [ModelCheckpoint(save_top_k=-1)] if task.saves else []


def native_hooks(task: Task) -> list[Any]:
    """Return our set."""
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        OptimizerHook(),
        CheckpointHook(interval=1 if task.saves else 1000, by_epoch=task.by_epoch),
        IterTimerHook(),
        TextLoggerHook(interval=INTERVAL, by_epoch=task.by_epoch),
    ]


def mmcv_hooks(task: Task) -> list[Any]:
    """Return mmcv's set, hosted in an adapter that gives backward and steps to it."""
    import oracle

    by_epoch = task.by_epoch
    interval = 1 if task.saves else 1000
    configs: list[tuple[dict[str, Any], str]] = [
        (dict(type="CosineAnnealingLrUpdaterHook", min_lr=0.0, by_epoch=False), "VERY_HIGH"),
        (dict(type="OptimizerHook"), "ABOVE_NORMAL"),
        (dict(type="CheckpointHook", interval=interval, by_epoch=by_epoch), "NORMAL"),
        (dict(type="IterTimerHook"), "LOW"),
        (dict(type="TextLoggerHook", interval=INTERVAL, by_epoch=by_epoch), "VERY_LOW"),
    ]
    hooks: list[Any] = [(oracle.make_hook(config), level) for config, level in configs]
    return [HookAdapter(hooks, owns_backward=True)]


def in_lightning(callbacks: Callable[[Task], list[Any]], task: Task) -> None:
    """Train a LightningModule with hooks."""
    given = callbacks(task)
    saves = any(isinstance(one, Checkpoint) for one in given)
    options: dict[str, Any] = {"num_sanity_val_steps": 0, "enable_checkpointing": saves}
    if task.by_epoch:
        options["max_epochs"] = task.epochs
    else:
        options |= {"max_epochs": -1, "max_steps": task.length}
    trainer = quiet_trainer(task.directory, Metered(task.meter), *given, **options)
    module = Module(task.net())
    task.meter.begin()
    trainer.fit(module, task.loader, task.loader if task.validates else None)


class Done(Exception):  # noqa: N818
    """Ends a run of mmcv's at the last mark."""


def in_runner(make_runner: Any, hook: type, task: Task) -> None:
    """Train in mmcv's runner, or in the one that stands for it."""

    class MeteredHook(hook):  # type: ignore[misc]
        def before_train_iter(self, runner: Any) -> None:
            if task.meter.at_step():
                raise Done

    by_epoch = task.by_epoch
    name = "EpochBasedRunner" if by_epoch else "IterBasedRunner"
    limit = task.epochs if by_epoch else task.length
    runner = make_runner(name, limit, Model(task.net()), task.directory)
    runner.register_hook(MeteredHook(), "HIGHEST")
    runner.register_optimizer_hook({})
    runner.register_lr_hook({"policy": "CosineAnnealing", "min_lr": 0.0, "by_epoch": False})
    interval = 1 if task.saves else 1000
    runner.register_checkpoint_hook({"interval": interval, "by_epoch": by_epoch})
    runner.register_timer_hook({"type": "IterTimerHook"})
    text = {"type": "TextLoggerHook", "by_epoch": by_epoch}
    runner.register_logger_hooks({"interval": INTERVAL, "hooks": [text]})
    loaders, workflow = [task.loader], [("train", 1)]
    if task.validates:
        loaders, workflow = [*loaders, task.loader], [*workflow, ("val", 1)]
    task.meter.begin()
    try:
        with mock.patch("time.sleep"):  # mmcv sleeps for two seconds when an epoch begins
            runner.run(loaders, workflow)
    except Done:
        return


def mmcv_runner(name: str, limit: int, model: nn.Module, directory: str) -> Any:
    """Make mmcv's runner."""
    import oracle

    return oracle.make_runner(name, limit, model, work_dir=directory)


def standin_runner(name: str, limit: int, model: nn.Module, directory: str) -> Any:
    """Make the runner that stands for mmcv's, with Lightning as the engine."""
    from lightning_hooks.standin import runner

    logger = logging.Logger("whole")
    logger.addHandler(logging.NullHandler())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    length = {"max_epochs" if name == "EpochBasedRunner" else "max_iters": limit}
    kind = getattr(runner, name)
    return kind(model, optimizer=optimizer, work_dir=directory, logger=logger, **length)


def loops() -> dict[str, Callable[[Task], None]]:
    """Return the loops by name; mmcv's only where it is installed."""
    from lightning_hooks.engine.hook import Hook

    found: dict[str, Callable[[Task], None]] = {
        HAND: by_hand,
        BARE: functools.partial(in_lightning, bare),
        NATIVE: functools.partial(in_lightning, native_hooks),
        SCRIPT: functools.partial(in_runner, standin_runner, Hook),
    }
    if has("mmcv"):
        import oracle

        found[MMCV] = functools.partial(in_runner, mmcv_runner, oracle.Hook)
        found[HOSTED] = functools.partial(in_lightning, mmcv_hooks)
    return found
