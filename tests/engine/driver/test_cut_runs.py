"""A run that an error has cut resumes with the lines and weights of the uninterrupted run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping
from torch.utils.data import DataLoader

from lightning_hooks import (
    CheckpointHook,
    MomentumAnnealingEMAHook,
    PolyLrUpdaterHook,
    PreciseBNHook,
    TextLoggerHook,
)
from support.probes import equal
from support.training import TinyNormModule, make_loader, make_trainer

BATCHES = 3


class Stops(Callback):
    """Raises an error at the end of a training or validation batch."""

    def __init__(self, batch: int, *, validating: bool = False) -> None:
        self.batch, self.validating = batch, validating

    def _stop(self, trainer: Any, *, validating: bool) -> None:
        done = trainer.fit_loop.epoch_loop.batch_progress.total.processed
        if (done, validating) == (self.batch, self.validating):
            raise InterruptedError

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self._stop(trainer, validating=False)

    def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
        self._stop(trainer, validating=True)


class StopsEpoch(Callback):
    """Raises an error at the start of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: Any, *args: Any) -> None:
        if trainer.current_epoch == self.epoch:
            raise InterruptedError


def train(
    folder: Path,
    *callbacks: Any,
    workers: int = 0,
    epochs: int = 2,
    reloads: int = 0,
    save: CheckpointHook | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train for some epochs; return the weights in the module, and the lines of the log."""
    torch.manual_seed(len(options))  # a resumed process has another random state
    module, log = TinyNormModule(), TextLoggerHook(interval=2 * BATCHES)
    trainer = make_trainer(
        *(folder, *callbacks, save or CheckpointHook(on_exception=True), log),
        max_epochs=epochs,
        num_sanity_val_steps=0,
        reload_dataloaders_every_n_epochs=reloads,
        val_check_interval=2,
        enable_checkpointing=True,
    )
    data = make_loader(BATCHES).dataset
    loader = DataLoader(data, 2, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    trainer.fit(module, loader, make_loader(2, seed=1), **options)
    text = "".join(path.read_text() for path in folder.glob("*.log.json"))
    rows = [json.loads(line) for line in text.splitlines()]
    lines = {(row["mode"], row["epoch"], row["iter"]): row for row in rows if "mode" in row}
    return {"weights": module.state_dict(), "lines": lines}


def resumed(folder: Path, stops: Stops, *callbacks: Any, **options: Any) -> dict[str, Any]:
    """Cut a run by an error, resume the run, and return the resumed run's results."""
    with pytest.raises(InterruptedError):
        train(folder, stops, *callbacks, **options)
    return train(folder, *callbacks, ckpt_path="last", **options)


def test_the_line_of_a_repeated_validation_has_the_rate_of_the_step_before(tmp_path: Path) -> None:
    schedule = {"power": 1.0, "warmup": "linear", "warmup_iters": 5}
    whole = train(tmp_path / "whole", PolyLrUpdaterHook(**schedule))
    stops = Stops(2, validating=True)
    again = resumed(tmp_path / "cut", stops, PolyLrUpdaterHook(**schedule))
    assert again["lines"]["val", 1, 2] == whole["lines"]["val", 1, 2]


def test_a_logged_copy_of_the_loss_stays_one_value_after_the_epochs_last_batch(
    tmp_path: Path,
) -> None:
    whole = train(tmp_path / "whole")
    again = resumed(tmp_path / "cut", Stops(BATCHES))
    assert again["lines"]["train", 1, 3].keys() == whole["lines"]["train", 1, 3].keys()
    assert "train_loss" not in again["lines"]["train", 1, 3]


@pytest.mark.parametrize("batch", [1, 5])
def test_an_error_between_step_and_average_costs_no_update(tmp_path: Path, batch: int) -> None:
    whole = train(tmp_path / "whole", MomentumAnnealingEMAHook(momentum=0.3))
    again = resumed(tmp_path / "cut", Stops(batch), MomentumAnnealingEMAHook(momentum=0.3))
    assert equal(again["weights"], whole["weights"])


def test_repeated_batch_statistics_see_the_same_samples_with_persistent_workers(
    tmp_path: Path,
) -> None:
    whole = train(tmp_path / "whole", PreciseBNHook(num_samples=4), workers=1)
    again = resumed(tmp_path / "cut", Stops(2 * BATCHES), PreciseBNHook(num_samples=4), workers=1)
    assert equal(again["weights"], whole["weights"])


@pytest.mark.parametrize("reloads", [0, 1])
def test_errors_at_the_start_of_two_epochs_change_nothing(tmp_path: Path, reloads: int) -> None:
    save = CheckpointHook(2, by_epoch=False, on_exception=True)
    options = {"epochs": 4, "reloads": reloads, "save": save}
    whole = train(tmp_path / "whole", **options)
    for epoch, resume in ((1, {}), (2, {"ckpt_path": "last"})):
        with pytest.raises(InterruptedError):
            train(tmp_path / "cut", StopsEpoch(epoch), **options, **resume)
    again = train(tmp_path / "cut", **options, ckpt_path="last")
    assert equal(again["weights"], whole["weights"])
    assert again["lines"] == whole["lines"]


def test_a_line_tells_of_a_run_that_early_stopping_had_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop() -> EarlyStopping:
        return EarlyStopping("val_loss", patience=1, min_delta=1e9)

    train(tmp_path, stop(), epochs=9)
    assert "patience" not in caplog.text
    train(tmp_path, stop(), epochs=9, ckpt_path="last")
    assert "EarlyStopping('val_loss') had no patience left when the file was" in caplog.text
