"""The training loops of the bench ``whole``: by hand, mmcv's, Lightning's, and an old script's.

Each loop trains the same net on the same task: steps, cosine learning rates, step times and a text
log; a task may add validations, and a checkpoint at each epoch's end. Two loops are bare: a ``for``
loop, and Lightning without hooks.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any
from unittest import mock

import lightning as L
import torch
from lightning.pytorch.callbacks import (
    Callback,
    Checkpoint,
    LearningRateMonitor,
    ModelCheckpoint,
    Timer,
)
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from benchmarks.measure import has, quiet_trainer
from benchmarks.task import Meter, Task
from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    TextLoggerHook,
)

__all__ = ["BARE", "HAND", "HOSTED", "MMCV", "NATIVE", "OWN", "SCRIPT", "loops"]

HAND, MMCV = "a loop by hand", "mmcv"
BARE, OWN = "Lightning, bare", "Lightning with its own callbacks"
NATIVE, HOSTED = "Lightning with our hooks", "Lightning with mmcv's hooks"
SCRIPT = "an old script with Lightning as its engine"


class Metered(Callback):
    """Calls a meter at each step, as the first callback, and ends the run at the last mark."""

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


class LoggingModule(Module):
    """A :class:`Module` that schedules and logs as Lightning's users do."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Model(nn.Module):
    """The same net with the ``train_step`` that mmcv's runners call."""

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


def own_callbacks(task: Task) -> list[Any]:
    """Return Lightning's own equivalents of our set; a ``CSVLogger`` is the log."""
    saving = ModelCheckpoint(save_top_k=-1, every_n_epochs=1 if task.saves else 1000)
    return [LearningRateMonitor("step"), Timer(), saving]


def native_hooks(task: Task) -> list[Any]:
    """Return our set."""
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        OptimizerHook(),
        CheckpointHook(interval=1 if task.saves else 1000, by_epoch=task.by_epoch),
        IterTimerHook(),
        TextLoggerHook(interval=task.interval, by_epoch=task.by_epoch),
    ]


def mmcv_hooks(task: Task) -> list[Any]:
    """Return mmcv's set in an adapter; mmcv's ``OptimizerHook`` runs backward and steps."""
    import oracle

    by_epoch = task.by_epoch
    interval = 1 if task.saves else 1000
    configs: list[tuple[dict[str, Any], str]] = [
        (dict(type="CosineAnnealingLrUpdaterHook", min_lr=0.0, by_epoch=False), "VERY_HIGH"),
        (dict(type="OptimizerHook"), "ABOVE_NORMAL"),
        (dict(type="CheckpointHook", interval=interval, by_epoch=by_epoch), "NORMAL"),
        (dict(type="IterTimerHook"), "LOW"),
        (dict(type="TextLoggerHook", interval=task.interval, by_epoch=by_epoch), "VERY_LOW"),
    ]
    hooks: list[Any] = [(oracle.make_hook(config), level) for config, level in configs]
    return [HookAdapter(hooks, owns_backward=True)]


def in_lightning(
    callbacks: Callable[[Task], list[Any]], task: Task, make_module: type[Module] = Module
) -> None:
    """Train a LightningModule with callbacks; a module that logs gets a ``CSVLogger``."""
    given = callbacks(task)
    saves = any(isinstance(one, Checkpoint) for one in given)
    options: dict[str, Any] = {"num_sanity_val_steps": 0, "enable_checkpointing": saves}
    if make_module is LoggingModule:
        options |= {"logger": CSVLogger(task.directory), "log_every_n_steps": task.interval}
    if task.by_epoch:
        options["max_epochs"] = task.epochs
    else:
        options |= {"max_epochs": -1, "max_steps": task.length}
    trainer = quiet_trainer(task.directory, Metered(task.meter), *given, **options)
    own_class = type("Module", (make_module,), {})  # a fit of ours may change it
    module = own_class(task.net())
    task.meter.begin()
    trainer.fit(module, task.loader, task.loader if task.validates else None)


class Done(Exception):  # noqa: N818
    """Ends a run of mmcv's at the last mark."""


def in_runner(make_runner: Any, hook: type, task: Task) -> None:
    """Train in mmcv's runner, or in the stand-in's."""

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
    runner.register_logger_hooks({"interval": task.interval, "hooks": [text]})
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
    """Make the stand-in's runner, with Lightning as the engine."""
    from lightning_hooks.standin.runner.epoch_based_runner import EpochBasedRunner
    from lightning_hooks.standin.runner.iter_based_runner import IterBasedRunner

    logger = logging.Logger("whole")
    logger.addHandler(logging.NullHandler())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given: dict[str, Any] = {"optimizer": optimizer, "work_dir": directory, "logger": logger}
    if name == "EpochBasedRunner":
        return EpochBasedRunner(model, max_epochs=limit, **given)
    return IterBasedRunner(model, max_iters=limit, **given)


def loops() -> dict[str, Callable[[Task], None]]:
    """Return the loops by name; mmcv's only where it is installed."""
    from lightning_hooks.engine.hook import Hook

    found: dict[str, Callable[[Task], None]] = {
        HAND: by_hand,
        BARE: functools.partial(in_lightning, bare),
        OWN: functools.partial(in_lightning, own_callbacks, make_module=LoggingModule),
        NATIVE: functools.partial(in_lightning, native_hooks),
        SCRIPT: functools.partial(in_runner, standin_runner, Hook),
    }
    if has("mmcv"):
        import oracle

        found[MMCV] = functools.partial(in_runner, mmcv_runner, oracle.Hook)
        found[HOSTED] = functools.partial(in_lightning, mmcv_hooks)
    return found
