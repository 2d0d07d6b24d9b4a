"""The time of a whole training step: by hand, in mmcv, in Lightning, and in Lightning with hooks.

Each loop trains the same model with the same set of hooks (or none, where it is bare): the step of
the optimizer, a cosine, a timer, checkpoints and a text log. A figure is the processor time of a
step between two marks in the middle of an epoch. Three models, of about 0.1, 1 and 18 ms a step.

    python -m benchmarks whole
"""

from __future__ import annotations

import functools
import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from benchmarks.measure import Bench, has, in_turns, make_loader, quiet_trainer
from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    TextLoggerHook,
)

INTERVAL = 50
"""Steps between two lines of the log."""
HAND, MMCV = "a loop by hand", "mmcv"
BARE, NATIVE, HOSTED = "Lightning, bare", "Lightning with our hooks", "Lightning with mmcv's hooks"
SCRIPT = "an old script with Lightning as its engine"


@dataclass(frozen=True)
class Size:
    """A model with its batch, and the steps between which time is taken."""

    name: str
    net: Callable[[], nn.Module]
    shape: tuple[int, ...]
    marks: range
    goals: tuple[float, float]
    """Of our hooks over bare Lightning, and of an old script over mmcv."""


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


SIZES = (
    Size("a linear layer", lambda: nn.Linear(8, 2), (2, 8), range(50, 251, 100), (1.05, 1.6)),
    Size(
        "a small net",
        functools.partial(convnet, 8),
        (2, 3, 16, 16),
        range(50, 251, 100),
        (1.02, 1.1),
    ),
    Size("a net", functools.partial(convnet, 32), (8, 3, 48, 48), range(10, 61, 50), (1.0, 1.0)),
)


class Meter:
    """Takes the processor time at marked steps."""

    def __init__(self, marks: range) -> None:
        self.marks = marks
        self._seconds: list[float] = []

    def at(self, step: int) -> bool:
        """Note the time where a marked step begins; return whether it is the last."""
        if step in self.marks:
            self._seconds.append(time.thread_time())
        return step == self.marks[-1]

    @property
    def microseconds(self) -> float:
        """Return those of a step: the least between two marks."""
        least = min(later - one for one, later in itertools.pairwise(self._seconds))
        return least / self.marks.step * 1e6


class Metered(Callback):
    """Calls a meter, the first of all callbacks, and ends the run at its last mark."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_train_batch_start(self, trainer: L.Trainer, module: Any, batch: Any, index: int) -> None:
        if self.meter.at(index):
            trainer.should_stop = True


class Module(L.LightningModule):
    """A net with the loss of all cases."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch).square().mean()

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


def by_hand(size: Size, loader: Any, meter: Meter, directory: str) -> None:
    """Train in a ``for`` loop."""
    net = size.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for index, batch in enumerate(loader):
        if meter.at(index):
            return
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def native_hooks() -> list[Any]:
    """Return our set."""
    return [
        CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False),
        OptimizerHook(),
        CheckpointHook(interval=1),
        IterTimerHook(),
        TextLoggerHook(interval=INTERVAL),
    ]


def mmcv_hooks() -> list[Any]:
    """Return mmcv's set, hosted in an adapter that gives backward and steps to it."""
    import oracle

    configs: list[tuple[dict[str, Any], str]] = [
        (dict(type="CosineAnnealingLrUpdaterHook", min_lr=0.0, by_epoch=False), "VERY_HIGH"),
        (dict(type="OptimizerHook"), "ABOVE_NORMAL"),
        (dict(type="CheckpointHook", interval=1), "NORMAL"),
        (dict(type="IterTimerHook"), "LOW"),
        (dict(type="TextLoggerHook", interval=INTERVAL), "VERY_LOW"),
    ]
    hooks: list[Any] = [(oracle.make_hook(config), level) for config, level in configs]
    return [HookAdapter(hooks, owns_backward=True)]


def in_lightning(
    hooks: Callable[[], list[Any]], size: Size, loader: Any, meter: Meter, directory: str
) -> None:
    """Train a LightningModule with hooks."""
    given = hooks()
    options = {"enable_checkpointing": True} if given else {}
    trainer = quiet_trainer(directory, Metered(meter), *given, max_epochs=2, **options)
    trainer.fit(Module(size.net()), loader)


def in_runner(
    make_runner: Any, hook: type, size: Size, loader: Any, meter: Meter, directory: str
) -> None:
    """Train in mmcv's runner, or in the one that stands for it."""

    class MeteredHook(hook):  # type: ignore[misc]
        def before_train_iter(self, runner: Any) -> None:
            if meter.at(runner.inner_iter):
                raise Done

    model = Model(size.net())
    runner = make_runner(model, directory)
    runner.register_hook(MeteredHook(), "HIGHEST")
    runner.register_optimizer_hook({})
    runner.register_lr_hook({"policy": "CosineAnnealing", "min_lr": 0.0, "by_epoch": False})
    runner.register_checkpoint_hook({"interval": 1})
    runner.register_timer_hook({"type": "IterTimerHook"})
    runner.register_logger_hooks({"interval": INTERVAL, "hooks": [{"type": "TextLoggerHook"}]})
    try:
        runner.run([loader], [("train", 1)])
    except Done:
        return


class Done(Exception):  # noqa: N818
    """Ends a run of mmcv's at the last mark."""


def mmcv_runner(model: nn.Module, directory: str) -> Any:
    """Make mmcv's runner."""
    import oracle

    return oracle.make_runner("EpochBasedRunner", 2, model, work_dir=directory)


def standin_runner(model: nn.Module, directory: str) -> Any:
    """Make the runner that stands for mmcv's, with Lightning as the engine."""
    import logging

    from lightning_hooks.standin.runner.epoch_based_runner import EpochBasedRunner

    logger = logging.Logger("whole")
    logger.addHandler(logging.NullHandler())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return EpochBasedRunner(
        model, optimizer=optimizer, work_dir=directory, logger=logger, max_epochs=2
    )


def cases() -> dict[str, Callable[[Size, Any, Meter, str], None]]:
    """Return what trains in each loop."""
    from lightning_hooks.engine.hook import Hook

    found: dict[str, Callable[[Size, Any, Meter, str], None]] = {
        HAND: by_hand,
        BARE: functools.partial(in_lightning, list),
        NATIVE: functools.partial(in_lightning, native_hooks),
        SCRIPT: functools.partial(in_runner, standin_runner, Hook),
    }
    if has("mmcv"):
        import oracle

        found[MMCV] = functools.partial(in_runner, mmcv_runner, oracle.Hook)
        found[HOSTED] = functools.partial(in_lightning, mmcv_hooks)
    return found


def measure(train: Callable[[Size, Any, Meter, str], None], size: Size) -> float:
    """Return the microseconds of a step."""
    meter = Meter(size.marks)
    rows = size.shape[0]
    data = torch.rand((size.marks[-1] + 2) * rows, *size.shape[1:])
    with tempfile.TemporaryDirectory() as directory:
        train(size, make_loader(data, batch_size=rows), meter, directory)
    return meter.microseconds


def run(rounds: int = 30) -> list[Bench]:
    """Measure all loops in turns, a bench for each model."""
    torch.set_num_threads(1)
    benches = []
    for size in SIZES:
        turns = {name: functools.partial(measure, train, size) for name, train in cases().items()}
        bench = Bench(f"A whole step of {size.name}", "us per step", in_turns(turns, rounds))
        over_bare, over_mmcv = size.goals
        bench.compare_cases(NATIVE, BARE, over_bare)
        bench.compare_cases(SCRIPT, MMCV, over_mmcv)
        for ours, peer in ((HOSTED, MMCV), (NATIVE, MMCV), (BARE, HAND), (MMCV, HAND)):
            if ours in bench.figures:
                bench.compare_cases(ours, peer)
        benches.append(bench)
    return benches
