"""Hooks of detectron2 in detectron2's trainer and in an adapter.

The dialect's hooks run in both, too. detectron2's classes from fvcore (checkpointer, schedules,
precise BN, history buffers) are fvcore's.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import re
import sys
import types
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from sister_model import loader
from torch import nn

STEPS = 6
TIMES = ("time", "data_time", "rank_data_time", "eta_seconds")


class Net(nn.Module):
    """A model with detectron2's interface, which returns losses by name."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))

    def forward(self, batch: Any) -> Any:
        """Return two losses by name."""
        x, y = batch
        out = self.net(x)
        losses = nn.functional.mse_loss(out, y), nn.functional.l1_loss(out, y)
        return dict(zip(("loss_square", "loss_abs"), losses, strict=True))


@dataclasses.dataclass
class Place:
    """Objects needed to construct a hook.

    Args:
        net: The model.
        sgd: The optimizer.
        folder: The output folder.
    """

    net: Net
    sgd: torch.optim.Optimizer
    folder: Path

    @property
    def inputs(self) -> list[Any]:
        """The batches without targets."""
        return [x for x, _ in loader(20, 5)]

    def checkpointer(self, d2: Any) -> Any:
        """Return the dialect's checkpointer, or fvcore's for detectron2."""
        made = (
            getattr(d2, "Checkpointer", None)
            or import_module("fvcore.common.checkpoint").Checkpointer
        )
        return made(self.net, str(self.folder), optimizer=self.sgd)


def _schedule(place: Place) -> Any:
    from fvcore.common.param_scheduler import (
        CompositeParamScheduler,
        CosineParamScheduler,
        LinearParamScheduler,
    )

    warmup, rest = LinearParamScheduler(0.1, 1.0), CosineParamScheduler(1.0, 0.0)
    return CompositeParamScheduler([warmup, rest], [1 / 3, 2 / 3], ["rescaled", "fixed"])


Hooks = Callable[[Any, Place], list[Any]]


def _all(d2: Any, place: Place) -> list[Any]:
    step = torch.optim.lr_scheduler.StepLR(place.sgd, 2, gamma=0.5)
    writer = d2.JSONWriter(str(place.folder / "metrics.json"), window_size=4)
    return [
        d2.IterationTimer(warmup_iter=3),
        d2.LRScheduler(place.sgd, step),
        d2.PreciseBN(3, place.net.net, place.inputs, 4),
        d2.PeriodicCheckpointer(place.checkpointer(d2), 2),
        d2.EvalHook(4, lambda: {"bbox": {"AP": 4.0}}),
        d2.PeriodicWriter([d2.CommonMetricPrinter(STEPS), writer], period=2),
    ]


def _writing(d2: Any, place: Place) -> list[Any]:
    class Puts(d2.HookBase):  # type: ignore[misc]
        def after_step(self) -> None:
            storage = d2.get_event_storage()
            with storage.name_scope("extra"):
                storage.put_scalar("square", self.trainer.iter**2, smoothing_hint=False)
                storage.put_scalars(cube=self.trainer.iter**3)
            if self.trainer.iter % 3 == 0:
                storage.put_image("net", torch.zeros(3, 4, 4))
                storage.put_histogram("weights", place.net.net[0].bias, bins=5)

    board = d2.TensorboardXWriter(str(place.folder / "tb"), window_size=3)
    rows = d2.JSONWriter(str(place.folder / "metrics.json"))
    return [Puts(), d2.PeriodicWriter([board, rows], period=4)]


def _calls(d2: Any, place: Place) -> list[Any]:
    points = ("before_train", "before_step", "after_step", "after_train")
    path = place.folder / "metrics.json"

    def note(point: str) -> Any:
        def function(trainer: Any) -> None:
            with path.open("a") as file:
                file.write(json.dumps([point, trainer.iter, trainer.storage.iter]) + "\n")

        return function

    return [d2.CallbackHook(**{point: note(point) for point in points})]


def _changing(d2: Any, place: Place) -> list[Any]:
    class Changes(d2.HookBase):  # type: ignore[misc]
        steps = 0

        def before_step(self) -> None:
            self.steps += 1
            d2.get_event_storage().put_scalar("steps", self.steps)

        def after_step(self) -> None:
            trainer = self.trainer
            if trainer.iter == 1:
                trainer._data_loader_iter_obj = iter(loader(6, 7))
                trainer.before_step()
            if trainer.iter == 2:
                trainer.optimizer = torch.optim.SGD(place.net.parameters(), lr=0.5)
            if trainer.iter == 3:
                trainer.reset_data_loader(lambda: loader(6, 8))

    return [Changes()]


CASES: dict[str, Hooks] = {
    "detectron2: hooks that change the trainer": _changing,
    "detectron2: what its default trainer has": _all,
    "detectron2: writers": _writing,
    "detectron2.CallbackHook": _calls,
    "detectron2.EvalHook, at the end": lambda d2, place: [
        d2.EvalHook(0, lambda: {"a": 1, "b": {"c": torch.tensor(2.0)}}),
        d2.PeriodicWriter([d2.JSONWriter(str(place.folder / "metrics.json"))]),
    ],
    "detectron2.LRScheduler, fvcore's schedules": lambda d2, place: [
        d2.LRScheduler(scheduler=_schedule(place))
    ],
    "detectron2.PreciseBN, fvcore's sums": lambda d2, place: [
        d2.PreciseBN(2, place.net.net, place.inputs, 3)
    ],
    "detectron2.PeriodicCheckpointer, fvcore's files": lambda d2, place: [
        d2.PeriodicCheckpointer(place.checkpointer(d2), 2, max_to_keep=1, file_prefix="net")
    ],
}


def trace(base: type, notes: list[Any], place: Place) -> Any:
    """Return a hook that records the state of the run and the storage."""

    def note(point: str) -> Any:
        def method(self: Any) -> None:
            storage = self.trainer.storage
            state = place.net.state_dict().values()
            notes.append(
                {
                    "at": [point, self.trainer.iter, storage.iter],
                    "lr": [group["lr"] for group in place.sgd.param_groups],
                    # without BatchNorm's batch count, which our precise BN leaves unchanged
                    "weights": sum(v.double().abs().sum().item() for v in state if v.dim()),
                    "latest": {k: v for k, v in storage.latest().items() if k not in TIMES},
                    "smooth": {
                        k: v
                        for k, v in storage.latest_with_smoothing_hint(3).items()
                        if k not in TIMES
                    },
                }
            )

        return method

    points = ("before_train", "before_step", "after_backward", "after_step", "after_train")
    return type("Trace", (base,), {point: note(point) for point in points})()


def _rows(path: Path) -> list[Any]:
    if not path.is_file():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [
        {k: v for k, v in row.items() if k not in TIMES} if isinstance(row, dict) else row
        for row in rows
    ]


def _board(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        return {}
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), {"images": 0, "histograms": 0, "scalars": 0})
    events.Reload()
    return {
        "scalars": {
            tag: [[e.step, e.value] for e in events.Scalars(tag)]
            for tag in events.Tags()["scalars"]
            if tag not in TIMES
        },
        "images": {tag: [e.step for e in events.Images(tag)] for tag in events.Tags()["images"]},
        "histograms": {
            tag: [[e.step, e.histogram_value.num] for e in events.Histograms(tag)]
            for tag in events.Tags()["histograms"]
        },
    }


def _files(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.glob("*.pth")):
        state = torch.load(path, weights_only=True)
        found[path.name] = [
            sorted(state),
            state["iteration"],
            state["model"]["net.0.bias"].tolist(),
        ]
    last = folder / "last_checkpoint"
    return {**found, "last": last.read_text() if last.is_file() else ""}


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if " iter: " in line:
            self.lines.append(re.sub(r"((?:eta|time): )\S+", r"\1T", line))


def run_noted(d2: Any, hooks: Hooks, folder: str, train: Callable[[Place, list[Any]], None]) -> Any:
    """Train with the hooks of a case; return the recorded values and the files' contents.

    Args:
        d2: The names of detectron2 or of the dialect.
        hooks: The case.
        folder: The output folder.
        train: A function that trains, given a place and the hooks.
    """
    torch.manual_seed(0)
    net, notes, lines = Net(), [], _Lines()
    place = Place(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9), Path(folder))
    loggers = [logging.getLogger(name) for name in ("detectron2", "lightning_hooks")]
    for logger in loggers:
        logger.setLevel("INFO")
        logger.addHandler(lines)
    try:
        train(place, [*hooks(d2, place), trace(d2.HookBase, notes, place)])
    finally:
        for logger in loggers:
            logger.removeHandler(lines)
    return {
        "notes": notes,
        "rows": _rows(Path(folder) / "metrics.json"),
        "board": _board(Path(folder) / "tb"),
        "files": _files(Path(folder)),
        "lines": lines.lines,
    }


def detectron2_names() -> Any:
    """Return the names in detectron2's files with hooks."""
    scheduler = import_module("detectron2.solver.lr_scheduler")
    for name in ("LRMultiplier", "LRScheduler"):
        setattr(sys.modules["detectron2.solver"], name, getattr(scheduler, name))
    files = ("utils.events", "engine.train_loop", "engine.hooks")
    names: dict[str, Any] = {}
    for file in files:
        names |= vars(import_module(f"detectron2.{file}"))
    return types.SimpleNamespace(**names)


def under_library(name: str, case: Hooks, folder: str) -> dict[str, Any]:
    """Run a case in detectron2's own trainer."""
    d2 = detectron2_names()
    return run_noted(d2, case, folder, partial(_in_simple_trainer, d2))  # type: ignore[no-any-return]


def _in_simple_trainer(d2: Any, place: Place, hooks: list[Any]) -> None:
    three = list(loader(3))
    trainer = d2.SimpleTrainer(place.net, [*three, *three], place.sgd)
    trainer.register_hooks(hooks)
    trainer.train(0, STEPS)


def _in_trainer(place: Place, hooks: list[Any]) -> None:
    import lightning as L

    from lightning_hooks import HookAdapter

    class Own(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = place.net

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            losses = self.model(batch)
            return {"loss": sum(losses.values()), **losses}

        def configure_optimizers(self) -> Any:
            return place.sgd

    trainer = L.Trainer(
        max_epochs=2,
        callbacks=[HookAdapter(hooks, work_dir=str(place.folder))],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=place.folder,
    )
    trainer.fit(Own(), loader(3))


def under_us(name: str, case: Hooks, folder: str) -> dict[str, Any]:
    """Run detectron2's hooks in a ``lightning.Trainer``."""
    return run_noted(detectron2_names(), case, folder, _in_trainer)  # type: ignore[no-any-return]


def with_ours(name: str, case: Hooks, folder: str) -> dict[str, Any]:
    """Run the dialect's hooks of the same names in a Trainer, without detectron2."""
    return run_noted(without_library(), case, folder, _in_trainer)  # type: ignore[no-any-return]


def without_library() -> Any:
    """Return our names, with detectron2 unloaded."""
    from lightning_hooks.dialects import detectron2 as d2

    for loaded in [loaded for loaded in sys.modules if loaded.startswith("detectron2")]:
        del sys.modules[loaded]
    return d2
