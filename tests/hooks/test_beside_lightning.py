"""Lightning's callbacks and our hooks work side by side."""

from __future__ import annotations

import csv
import datetime
import json
import time
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.fabric.utilities.spike import TrainingSpikeException
from lightning.pytorch.callbacks import (
    DeviceStatsMonitor,
    EarlyStopping,
    LearningRateFinder,
    OnExceptionCheckpoint,
    ThroughputMonitor,
    Timer,
)
from lightning.pytorch.callbacks.spike import SpikeDetection
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    InvalidLossError,
    IterTimerHook,
    OptimizerHook,
    PolyLrUpdaterHook,
    SystemMetricsHook,
    TextLoggerHook,
)
from support.training import NoValidation, TinyModule, make_loader, make_trainer


def hooks() -> list[Any]:
    """Return hooks of several families."""
    average = EMAHook(momentum=0.5, warm_up=0)
    return [OptimizerHook({"max_norm": 1.0}), average, IterTimerHook(), TextLoggerHook(interval=1)]


def lines(folder: Path, mode: str = "train") -> list[dict[str, Any]]:
    """Return the lines of the text log."""
    (file,) = folder.glob("*.log.json")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    return [line for line in found if line.get("mode") == mode]


class Fails(NoValidation):
    """A module that raises an error in one step, or returns a bad loss."""

    def __init__(self, at: int, loss: float | None = None) -> None:
        super().__init__()
        self.at, self.bad_loss = at, loss

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = super().training_step(batch, batch_idx)
        if self.trainer.fit_loop.total_batch_idx + 1 != self.at:
            return loss
        if self.bad_loss is None:
            raise RuntimeError("mine")
        return loss * self.bad_loss


# Lightning's own, with any OnExceptionCheckpoint
without_path = pytest.mark.filterwarnings("ignore:.*fit.ckpt_path=:UserWarning")


@without_path
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("place", [0, 4], ids=["before the hooks", "behind them"])
def test_on_exception_checkpoint_is_one_to_go_on_from(tmp_path: Path, place: int) -> None:
    used = hooks()
    used.insert(place, OnExceptionCheckpoint(tmp_path))
    trainer = make_trainer(tmp_path, *used, max_epochs=2, enable_checkpointing=True)
    with pytest.raises(RuntimeError, match="mine"):
        trainer.fit(Fails(at=5), make_loader(4))
    saved = torch.load(tmp_path / "on_exception.ckpt", weights_only=True)
    assert saved["global_step"] == saved["averaging_state"]["n_averaged"] == 4

    whole, resumed = hooks(), hooks()
    one, other = NoValidation(), NoValidation()
    make_trainer(tmp_path / "one", *whole, max_epochs=2).fit(one, make_loader(4))
    trainer = make_trainer(tmp_path / "other", *resumed, max_epochs=2)
    trainer.fit(other, make_loader(4), ckpt_path=tmp_path / "on_exception.ckpt")
    assert (trainer.global_step, resumed[1].steps) == (8, 8)
    for find in (lambda module, hook: module.state_dict(), lambda m, hook: hook.ema_state_dict()):
        torch.testing.assert_close(find(one, whole[1]), find(other, resumed[1]), rtol=0, atol=0)


@without_path
@pytest.mark.parametrize("place", [0, 5], ids=["before the hooks", "behind them"])
def test_on_exception_checkpoint_of_an_invalid_loss_is_refused(tmp_path: Path, place: int) -> None:
    used = [*hooks(), CheckInvalidLossHook(interval=1)]
    used.insert(place, OnExceptionCheckpoint(tmp_path))
    trainer = make_trainer(tmp_path, *used, enable_checkpointing=True)
    with pytest.raises(InvalidLossError):
        trainer.fit(Fails(at=3, loss=float("nan")), make_loader(4))
    assert not (tmp_path / "on_exception.ckpt").exists()
    trainer.save_checkpoint(tmp_path / "by_hand.ckpt")  # the fit is over
    assert (tmp_path / "by_hand.ckpt").exists()


def test_early_stopping(tmp_path: Path) -> None:
    used, stop = hooks(), EarlyStopping("val_loss", patience=2, min_delta=1e9)
    options: dict[str, Any] = {"max_epochs": 9, "enable_checkpointing": True}
    trainer = make_trainer(tmp_path, *used, CheckpointHook(), stop, **options)
    trainer.fit(TinyModule(), make_loader(4), make_loader(2))
    assert (trainer.current_epoch, len(lines(tmp_path)), used[1].steps) == (3, 12, 12)
    assert (tmp_path / "epoch_3.pth").exists()


def test_timer(tmp_path: Path) -> None:
    class Slow(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            time.sleep(0.2)
            return super().training_step(batch, batch_idx)

    timer = Timer(duration=datetime.timedelta(seconds=0.5), interval="step")
    options: dict[str, Any] = {"max_epochs": 9, "enable_checkpointing": True}
    trainer = make_trainer(tmp_path, *hooks(), timer, CheckpointHook(by_epoch=False), **options)
    trainer.fit(Slow(), make_loader(4))
    steps = trainer.global_step
    assert 0 < steps < 4
    assert timer.time_elapsed("train") >= 0.5
    assert len(lines(tmp_path)) == steps
    assert (tmp_path / f"iter_{steps}.pth").exists(), "of the run's last iteration"


def test_learning_rate_finder(tmp_path: Path) -> None:
    finder = LearningRateFinder(1e-3, 1e-1, 20, early_stop_threshold=None)
    used, module = [*hooks(), PolyLrUpdaterHook(by_epoch=False)], NoValidation()
    trainer = make_trainer(tmp_path / "found", finder, *used, max_epochs=2)
    trainer.fit(module, make_loader(40))
    assert 1e-3 <= module.lr < 1e-1

    alone, same = [*hooks(), PolyLrUpdaterHook(by_epoch=False)], NoValidation(lr=module.lr)
    make_trainer(tmp_path / "given", *alone, max_epochs=2).fit(same, make_loader(40))
    torch.testing.assert_close(module.state_dict(), same.state_dict(), rtol=0, atol=0)
    averages = [one[1].ema_state_dict() for one in (used, alone)]
    torch.testing.assert_close(averages[0], averages[1], rtol=0, atol=0)
    rates = [[line["lr"] for line in lines(tmp_path / name)] for name in ("found", "given")]
    assert rates[0] == rates[1]
    assert len(rates[0]) == 80


def logged(folder: Path) -> set[str]:
    """Return the columns of Lightning's CSVLogger."""
    (file,) = folder.rglob("metrics.csv")
    with file.open() as rows:
        return set(next(csv.reader(rows)))


def csv_run(tmp_path: Path, *callbacks: Any) -> L.Trainer:
    logger = CSVLogger(tmp_path)
    options: dict[str, Any] = {"logger": logger, "log_every_n_steps": 1, "max_epochs": 2}
    trainer = make_trainer(tmp_path, *callbacks, **options)
    trainer.fit(NoValidation(), make_loader(4))
    return trainer


@pytest.mark.filterwarnings("ignore:When using the `ThroughputMonitor`")
def test_throughput_monitor(tmp_path: Path) -> None:
    monitor = ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]), window_size=2)
    csv_run(tmp_path, *hooks(), monitor)
    assert "train/device/samples_per_sec" in logged(tmp_path)
    assert [line["iter"] for line in lines(tmp_path)] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_device_stats_monitor(tmp_path: Path) -> None:
    pytest.importorskip("psutil")
    monitor, readings = DeviceStatsMonitor(cpu_stats=True), SystemMetricsHook(interval=0.001)
    csv_run(tmp_path, *hooks(), monitor, readings)
    assert any("cpu_percent" in name for name in logged(tmp_path))
    assert len(lines(tmp_path)) == 8


def test_spike_detection(tmp_path: Path) -> None:
    used = hooks()
    trainer = make_trainer(tmp_path, *used, SpikeDetection(atol=10.0), max_epochs=2)
    with pytest.raises(TrainingSpikeException):
        trainer.fit(Fails(at=3, loss=1e6), make_loader(4))
    assert json.loads((tmp_path / "skip_batches.json").read_text()) == [1, 2]
    assert used[1].steps == 3
    assert len(lines(tmp_path)) == 3
