"""Values and files of a resumed run before its first batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import CheckpointHook, ClosureHook, TextLoggerHook
from support.probes import Recorder, SaveAt
from support.training import fit


def train(folder: Path, *hooks: Any, **options: Any) -> None:
    fit(folder, *hooks, val=1, max_epochs=2, **options)


def fail(runner: Any) -> None:
    raise InterruptedError


class SaveAtStart(Callback):
    """Saves in ``on_train_start``."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        trainer.save_checkpoint(self.path)


def test_an_error_before_the_first_batch_writes_no_file_of_an_iteration_to_come(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ckpt"
    train(tmp_path, SaveAt("on_train_batch_end", path, 6))
    for point in ("before_run", "before_train_epoch"):
        hook = CheckpointHook(10, on_exception=True)
        with pytest.raises(InterruptedError):
            train(tmp_path / point, hook, ClosureHook(point, fail), ckpt_path=path)
        assert [*(tmp_path / point).glob("*.pth")] == []


def test_a_file_from_before_the_first_batch_has_the_iterations_done(tmp_path: Path) -> None:
    path, again, recorder = tmp_path / "a.ckpt", tmp_path / "b.ckpt", Recorder()
    train(tmp_path, SaveAt("on_train_batch_end", path, 6))
    train(tmp_path, Recorder(), SaveAtStart(again), ckpt_path=path)
    assert torch.load(again, weights_only=True)["meta"]["iter"] == 6
    train(tmp_path, recorder, ckpt_path=again)
    begun = [call[2] for call in recorder.calls if call[0] == "before_train_iter"]
    assert begun == [6, 7]


class Shown(Callback):
    """Records ``callback_metrics`` at the end of a validation; can raise an error before."""

    def __init__(self, cut_at: str = "") -> None:
        self.cut_at, self.values = cut_at, dict[str, float]()

    def _come_to(self, event: str, trainer: Any) -> None:
        if event == self.cut_at and trainer.global_step == 4:
            raise InterruptedError

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        self._come_to("batch end", trainer)

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._come_to("validation", trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.global_step == 4:
            values = trainer.callback_metrics
            self.values = {name: value.item() for name, value in values.items()}


@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("event", ["batch end", "validation"])
def test_the_validation_that_a_run_begins_with_shows_the_modules_own_values(
    by_epoch: bool, event: str, tmp_path: Path
) -> None:
    """The module's value takes precedence over a hook's average of the same name."""

    def run(folder: str, shown: Shown, ckpt: Any = None) -> dict[str, float]:
        save = CheckpointHook(9, on_exception=True, by_epoch=by_epoch)
        hooks = [save, TextLoggerHook(interval=2)]
        options = {"callbacks": [shown], "by_epoch": by_epoch, "ckpt_path": ckpt}
        train(tmp_path / folder, *hooks, **options)
        return shown.values

    whole = run("whole", Shown())
    with pytest.raises(InterruptedError):
        run("cut", Shown(event))
    assert run("cut", Shown(), tmp_path / "cut" / "iter_4.pth") == whole
    assert whole["train_loss"] != whole["loss"]
