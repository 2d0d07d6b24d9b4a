"""A run resumed at a validation neither repeats nor omits a validation."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import BestCheckpointHook, CheckpointHook, ClosureHook
from support.probes import SaveAt, equal
from support.training import NoValidation, TinyModule, make_loader, make_trainer

EPOCHS, BATCHES = 3, 3


class Module(TinyModule):
    """Draws random numbers in each step."""

    def loss(self, batch: Any) -> torch.Tensor:
        x, y = batch
        return super().loss((x + 0.1 * torch.randn_like(x), y))


class Stops(Callback):
    """Raises an error at an event after a number of batches; records each validation's score."""

    def __init__(self, event: str = "", batches: int = 0) -> None:
        self.at, self.scores = (event, batches), dict[int, float]()

    def _stop(self, event: str, trainer: Any) -> int:
        done = int(trainer.fit_loop.epoch_loop.batch_progress.total.ready)
        if (event, done) == self.at:
            raise InterruptedError
        return done

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        self._stop("begin", trainer)

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self._stop("end", trainer)

    def on_validation_batch_end(self, trainer: Any, *args: Any) -> None:
        self._stop("validation", trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.scores[self._stop("score", trainer)] = float(trainer.callback_metrics["val_loss"])


def train(folder: Path, stops: Stops, how: dict[str, Any], **options: Any) -> dict[str, Any]:
    save = CheckpointHook(100, by_epoch=False, on_exception=True)
    best = BestCheckpointHook("val_loss")
    torch.manual_seed(len(options))  # another process is in another state
    trainer = make_trainer(
        *(folder, stops, save, best),
        num_sanity_val_steps=0,
        enable_checkpointing=True,
        **{"max_epochs": EPOCHS, **how},
    )
    module = Module()
    loaders = make_loader(BATCHES, shuffle=True), make_loader(2, seed=1)
    trainer.fit(module, *loaders, **options)
    return {"weights": module.state_dict(), "best": Path(best.best_model_path).name}


EACH_BATCH = {"val_check_interval": 1}
SECOND = {"val_check_interval": 2}
OF_RUN = {"val_check_interval": 2, "check_val_every_n_epoch": None}
EPOCH: dict[str, Any] = {}
OTHER_EPOCHS = {"check_val_every_n_epoch": 2}


@pytest.mark.parametrize(
    ("how", "event", "batches"),
    [
        *((SECOND, event, 5) for event in ("end", "validation")),
        *((SECOND, "begin", batches) for batches in (4, 6)),
        *((OF_RUN, event, 4) for event in ("end", "validation")),
        *((EACH_BATCH, event, 6) for event in ("begin", "end", "validation")),
        *((EPOCH, event, 6) for event in ("begin", "end", "validation")),
        *((EPOCH, event, 9) for event in ("end", "validation")),
        *((OTHER_EPOCHS, "end", batches) for batches in (3, 6)),
    ],
)
def test_a_resumed_run_validates_as_the_whole_one(
    tmp_path: Path, how: dict[str, Any], event: str, batches: int
) -> None:
    whole, cut, resumed = Stops(), Stops(event, batches), Stops()
    expected = train(tmp_path / "whole", whole, how)
    with pytest.raises(InterruptedError):
        train(tmp_path / "cut", cut, how)
    found = train(tmp_path / "cut", resumed, how, ckpt_path="last")
    assert equal(found["weights"], expected["weights"])
    assert found["best"] == expected["best"]
    assert cut.scores | resumed.scores == whole.scores
    assert not cut.scores.keys() & resumed.scores.keys()


def test_a_file_of_a_repeated_validation_goes_on_exactly(tmp_path: Path) -> None:
    expected = train(tmp_path / "whole", Stops(), SECOND)
    with pytest.raises(InterruptedError):
        train(tmp_path / "cut", Stops("validation", 5), SECOND)
    path = tmp_path / "repeated.ckpt"
    saves = SaveAt("on_validation_end", path)
    train(tmp_path / "cut", Stops(), {**SECOND, "callbacks": [saves]}, ckpt_path="last")
    found = train(tmp_path / "cut", Stops(), SECOND, ckpt_path=path)
    assert equal(found["weights"], expected["weights"])


def test_a_line_tells_that_the_validation_of_the_last_step_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    how = {"max_steps": 5, **SECOND, "val_check_interval": 1}
    with pytest.raises(InterruptedError):
        train(tmp_path, Stops("validation", 5), how)
    assert "last of max_steps" not in caplog.text
    train(tmp_path, Stops(), how, ckpt_path="last")
    assert "the validation that follows the last of max_steps=5" in caplog.text


def test_a_run_without_the_validation_goes_on_with_the_next_epoch(tmp_path: Path) -> None:
    with pytest.raises(InterruptedError):
        train(tmp_path, Stops("validation", BATCHES), EPOCH)
    module, hook = NoValidation(), CheckpointHook(1)
    trainer = make_trainer(tmp_path, hook, max_epochs=EPOCHS, enable_checkpointing=True)
    trainer.fit(module, make_loader(BATCHES), ckpt_path="last")
    assert len(module.losses) == (EPOCHS - 1) * BATCHES
    assert Path(hook.last_checkpoint or "").name == f"epoch_{EPOCHS}.pth"


class Worse(TinyModule):
    """A module with a worse score in each validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", float(self.global_step))


def test_the_best_file_of_the_resumed_files_validation_is_known(tmp_path: Path) -> None:
    """The earlier ``CheckpointHook`` writes its file before the score is compared."""
    best = BestCheckpointHook("val_loss")

    def goes_on(*callbacks: Callback, **options: Any) -> None:
        hooks = CheckpointHook(2, by_epoch=False), best
        how = {"val_check_interval": 2, "enable_checkpointing": True}
        trainer = make_trainer(tmp_path, *hooks, *callbacks, **how)
        trainer.fit(Worse(), make_loader(8), make_loader(1), **options)

    with pytest.raises(InterruptedError):
        goes_on(Stops("begin", 3))
    best = BestCheckpointHook("val_loss")  # another process
    goes_on(ckpt_path="last")
    assert Path(best.best_model_path).name == "best_val_loss_iter_2.pth"


def test_the_length_of_a_run_is_known_in_the_validation_that_it_begins_with(
    tmp_path: Path,
) -> None:
    lengths: list[tuple[int, int]] = []

    def note(runner: Any) -> None:
        lengths.append((runner.max_iters, runner.max_optimizer_steps))

    how = {"accumulate_grad_batches": 2, "max_steps": 4, "max_epochs": -1}  # 2 steps an epoch
    for stops, options in ((Stops("validation", 3), {}), (Stops(), {"ckpt_path": "last"})):
        hooks = CheckpointHook(1), ClosureHook("before_val_epoch", note), stops
        trainer = make_trainer(tmp_path, *hooks, enable_checkpointing=True, **how)
        with contextlib.suppress(InterruptedError):
            trainer.fit(Module(), make_loader(3), make_loader(1), **options)
    assert lengths == [(6, 4)] * 3
