"""``Trainer(fast_dev_run=True)`` runs with any hooks, and writes no files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import torchmetrics

from lightning_hooks import (
    HOOKS,
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingCooldownLrUpdaterHook,
    CyclicLrUpdaterHook,
    EvalHook,
    Hook,
    ProfilerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    WSDLrUpdaterHook,
    YOLOXLrUpdaterHook,
)
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.loggers.discontinued import PaviLoggerHook, SegmindLoggerHook
from support.contract import build
from support.training import NoValidation, TinyModule, fit, make_loader

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*`fast_dev_run`"),
]
DISCONTINUED = (PaviLoggerHook, SegmindLoggerHook)


def loggers() -> list[Any]:
    """Return an instance of every logger in the registry."""
    of_registry = [cls for cls in HOOKS.module_dict.values() if issubclass(cls, LoggerHook)]
    return [build(cls.__name__) for cls in of_registry if cls not in DISCONTINUED]


class Saves(Hook):
    """Writes a checkpoint of mmcv's layout."""

    def after_train_epoch(self, runner: Any) -> None:
        runner.save_checkpoint(runner.work_dir)


def writers(folder: Path) -> list[Any]:
    """Return an instance of every hook that writes files."""
    metric = torchmetrics.MeanSquaredError()
    return [
        *loggers(),
        TextLoggerHook(out_dir=str(folder / "out")),
        CheckpointHook(interval=1, save_best="val_loss", rule="less"),
        BestCheckpointHook("val_loss/again", rule="greater", out_dir=str(folder / "best")),
        EvalHook(
            make_loader(1), test_fn=pairs, metric=metric, save_best="MeanSquaredError", rule="less"
        ),
        ProfilerHook(profile_iters=1, json_trace_path=str(folder / "traces" / "trace.json")),
        CheckInvalidLossHook(action="skip", dump_dir=str(folder / "invalid")),
    ]


def pairs(model: torch.nn.Module, loader: Any) -> Any:
    """Return predictions with targets."""
    return [(model(x), y) for x, y in loader]


class Invalid(TinyModule):
    """A module with a NaN loss."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def loss(self, batch: Any) -> torch.Tensor:
        return super().loss(batch) * float("nan")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        loss = TinyModule.loss(self, batch)
        self.log_dict({"val_loss": loss, "val_loss/again": loss})


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.usefixtures("nothing_elsewhere")
def test_nothing_is_written(tmp_path: Path, host: bool, caplog: pytest.LogCaptureFixture) -> None:
    before, hooks = {*tmp_path.rglob("*")}, writers(tmp_path)
    with caplog.at_level(logging.INFO, "lightning_hooks"):
        fit(tmp_path, *hooks, Saves(), module=Invalid, val=2, host=host, fast_dev_run=True)
    assert {*tmp_path.rglob("*")} == before
    (line,) = (x for x in caplog.messages if "fast_dev_run: nothing is written by" in x)
    told = line.partition("nothing is written by")[2]
    assert all(type(hook).__name__ in told for hook in hooks)


def test_no_directory_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "not there"
    fit(
        folder,
        TextLoggerHook(),
        CheckpointHook(),
        TensorboardLoggerHook(),
        module=NoValidation,
        fast_dev_run=2,
    )
    assert not folder.exists()


def too_long() -> list[Any]:
    """Return hooks that need a longer run than one batch."""
    by_iter = {"by_epoch": False}
    return [
        CyclicLrUpdaterHook(by_epoch=False, target_ratio=(10, 1e-4), cyclic_times=2),
        CosineAnnealingCooldownLrUpdaterHook(min_lr=0, cool_down_time=5, **by_iter),
        YOLOXLrUpdaterHook(num_last_epochs=5, min_lr_ratio=0.05),
        WSDLrUpdaterHook(decay=5, **by_iter),
        ProfilerHook(by_epoch=False, profile_iters=5, on_trace_ready=print),
    ]


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_a_schedule_longer_than_the_short_run_is_left_out(
    tmp_path: Path, host: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for hook in too_long():
        caplog.clear()
        with caplog.at_level(logging.INFO, "lightning_hooks"):
            trainer = fit(tmp_path, hook, module=NoValidation, host=host, fast_dev_run=True)
        assert trainer.global_step == 1
        told = [line for line in caplog.messages if "fast_dev_run leaves out" in line]
        assert len(told) == (not isinstance(hook, ProfilerHook))
        assert all(type(hook).__name__ in line for line in told)
