"""CheckInvalidLossHook in a fit after one that has failed."""

from __future__ import annotations

from pathlib import Path

import lightning as L
import pytest
from lightning.pytorch.callbacks import Callback

from lightning_hooks import CheckInvalidLossHook, InvalidLossError
from support.torture.bad_batches import LOSS, BadModule, batches, loader
from support.training import make_trainer


class FailsBeforeTheRun(Callback):
    """Raises as a data set does that is not found."""

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise."""
        raise FileNotFoundError("no such image")


def test_a_resume_that_fails_leaves_the_next_run_its_own_states(tmp_path: Path) -> None:
    """The next run restores the state of the last reading, not the state of its start."""

    def train(hook: CheckInvalidLossHook) -> BadModule:
        module = BadModule()
        make_trainer(tmp_path, hook).fit(module, loader(batches(8, {6: LOSS})))
        return module

    file = tmp_path / "a.ckpt"
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=2, action="restore"))
    trainer.fit(BadModule(), loader(batches(2)))
    trainer.save_checkpoint(file)
    hook = CheckInvalidLossHook(interval=2, action="restore")
    trainer = make_trainer(tmp_path, hook, FailsBeforeTheRun(), max_epochs=2)
    with pytest.raises(FileNotFoundError):
        trainer.fit(BadModule(), loader(batches(2)), ckpt_path=file)
    weights = train(hook).net.weight
    assert weights.equal(train(CheckInvalidLossHook(interval=2, action="restore")).net.weight)


def test_a_trainer_that_trains_again_is_the_users_again(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=2))
    with pytest.raises(InvalidLossError):
        trainer.fit(BadModule(), loader(batches(4, {2: LOSS})))
    trainer.fit(BadModule(), loader(batches(4)))
    assert "save_checkpoint" not in vars(trainer)
