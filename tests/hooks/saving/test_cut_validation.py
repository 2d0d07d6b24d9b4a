"""A run ends within a validation, or in a point: due files, whole validations, paths for others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    ClosureHook,
    EMAHook,
    EvalHook,
    Hook,
    InvalidLossError,
)
from support.training import NoValidation, TinyModule, fit, make_loader

pytestmark = pytest.mark.filterwarnings(
    "ignore:You're resuming from a checkpoint", "ignore:the run goes on in epoch"
)


def names(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*_*.pth"), key=os.path.getmtime)]


class Cut(TinyModule):
    """Logs 10, 11, 12, 13 in the four batches; raises once in the validation of epoch 2."""

    error: BaseException | None = None
    place = "validation_step"

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def fail(self, place: str) -> None:
        if self.error is not None and place == self.place and self.trainer.current_epoch == 1:
            raise self.error

    def on_validation_start(self) -> None:
        self.fail("on_validation_start")
        self.batches.append(0)

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 2:
            self.fail("validation_step")
        self.batches[-1] += 1
        self.log("val_loss", torch.tensor(10.0 + batch_idx))

    def on_validation_epoch_end(self) -> None:
        self.fail("on_validation_epoch_end")

    def on_validation_end(self) -> None:
        self.fail("on_validation_end")


PLACES = ["on_validation_start", "validation_step", "on_validation_epoch_end", "on_validation_end"]


@pytest.mark.parametrize("place", PLACES)
def test_a_resumed_validation_is_whole(tmp_path: Path, place: str) -> None:
    def train(error: BaseException | None, **words: Any) -> tuple[Any, Any]:
        best, module = BestCheckpointHook("val_loss"), Cut()
        module.error, module.place = error, place
        last = CheckpointHook(interval=1)
        fit(tmp_path, best, last, EMAHook(), module=module, val=4, max_epochs=3,
            num_sanity_val_steps=0, **words)  # fmt: skip
        return module, best

    with pytest.raises(RuntimeError, match="cut"):
        train(RuntimeError("cut"))
    assert "epoch_2.pth" in names(tmp_path)
    module, best = train(None, ckpt_path="last")
    assert module.batches == [4, 4]
    assert module.trainer.global_step == 12
    assert best.best_model_score == 11.5
    path = tmp_path / "epoch_3.pth"
    again = Cut()
    options = {"val": 4, "max_epochs": 4, "num_sanity_val_steps": 0, "ckpt_path": path}
    fit(tmp_path, CheckpointHook(), EMAHook(), module=again, **options)
    assert again.batches == [4]  # a later file repeats no validation


class Broken(TensorDataset):
    def evaluate(self, results: Any, logger: Any = None) -> Any:
        raise RuntimeError("bug in evaluate")


@pytest.mark.parametrize(("by_epoch", "due"), [(True, "epoch_2.pth"), (False, "iter_4.pth")])
def test_a_due_file_is_written_when_an_evaluation_raises(
    tmp_path: Path, by_epoch: bool, due: str, caplog: pytest.LogCaptureFixture
) -> None:
    interval = 2 if by_epoch else 4
    loader = DataLoader(Broken(torch.ones(2, 1)))
    evaluation = EvalHook(loader, interval=interval, by_epoch=by_epoch, test_fn=lambda m, x: [0])
    last = CheckpointHook(interval=interval, by_epoch=by_epoch)
    with pytest.raises(RuntimeError, match="bug in evaluate"):
        fit(tmp_path, evaluation, last, module=NoValidation, max_epochs=3)
    assert names(tmp_path) == [due]
    line = f"with a file due; to go on from {tmp_path / due} write"
    assert line in caplog.text


def test_a_due_best_file_is_written_when_the_validation_raises(tmp_path: Path) -> None:
    class Raises(Callback):
        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                raise RuntimeError("cut")

    class Scored(TensorDataset):
        def evaluate(self, results: Any, logger: Any = None) -> Any:
            return {"acc": 0.5}

    loader = DataLoader(Scored(torch.ones(2, 1)))
    evaluation = EvalHook(loader, interval=2, save_best="acc", test_fn=lambda model, x: [0])
    with pytest.raises(RuntimeError, match="cut"):
        fit(tmp_path, evaluation, callbacks=[Raises()], val=1, max_epochs=3, num_sanity_val_steps=0)
    assert names(tmp_path) == ["best_acc_epoch_2.pth"]


def test_a_bad_state_is_not_written_after_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch, batch_idx) * float("nan")

    hooks = CheckpointHook(interval=1, by_epoch=False), CheckInvalidLossHook(interval=1)
    with pytest.raises(InvalidLossError):
        fit(tmp_path, *hooks, module=Bad)
    assert names(tmp_path) == []


@pytest.mark.parametrize("by_epoch", [True, False])
def test_later_hooks_of_the_point_find_the_path_of_the_file(tmp_path: Path, by_epoch: bool) -> None:
    told: list[str] = []

    def look(runner: Any) -> None:
        told.append(Path(runner.meta["hook_msgs"]["last_ckpt"]).name)

    point = "after_train_epoch" if by_epoch else "after_train_iter"
    hooks = CheckpointHook(interval=1, by_epoch=by_epoch), ClosureHook(point, look)
    fit(tmp_path, *hooks, val=1, max_epochs=2, batches=2, meta={})
    unit, count = ("epoch", 2) if by_epoch else ("iter", 4)
    assert told == [f"{unit}_{n}.pth" for n in range(1, count + 1)]


@pytest.mark.parametrize("beside", [False, True])
def test_fast_dev_run_tells_no_path(tmp_path: Path, beside: bool) -> None:
    hook: Any = (
        CheckpointHook(1, save_best="val_loss") if beside else BestCheckpointHook("val_loss")
    )
    trainer = fit(tmp_path, hook, val=1, fast_dev_run=True, meta={})
    assert hook.best_model_path == hook.last_model_path == ""
    assert hook.best_k_models == {}
    with pytest.raises(ValueError, match="fast_dev_run"):
        trainer.test(trainer.lightning_module, make_loader(1), ckpt_path="best")


@pytest.mark.parametrize("calls_super", [False, True])
def test_a_hook_with_a_save_point_of_its_own_gets_no_further_file(
    tmp_path: Path, calls_super: bool
) -> None:
    class At(CheckpointHook):
        def after_train_iter(self, runner: Any) -> None:
            if calls_super:
                super().after_train_iter(runner)

    class Stops(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 2

    fit(tmp_path, At(by_epoch=False), Stops(), module=NoValidation, max_epochs=2)
    assert names(tmp_path) == (["iter_3.pth"] if calls_super else [])


def test_export_without_a_path_names_the_hook() -> None:
    for hook in (CheckpointHook(), BestCheckpointHook("val_loss"), EvalHook(save_best="val_loss")):
        with pytest.raises(TypeError, match=rf"^{type(hook).__name__}.export\(\) needs a path"):
            hook.export()
