"""What old hooks read of a step's outputs, where the module is an ordinary LightningModule."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from helpers import TinyModule, make_loader, make_trainer

from lightning_hooks import Hook, HookAdapter, OptimizerHook


class Counts(Hook):
    """As mmcv's hooks weigh what they log."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def after_train_iter(self, runner: Any) -> None:
        self.seen.append(runner.outputs["num_samples"])
        assert "num_samples" not in runner.outputs  # the averages of others are as before

    after_val_iter = after_train_iter


class OldOptimizerHook(OptimizerHook):
    """mmcv's own ``after_train_iter``, as old projects copied it."""

    def after_train_iter(self, runner: Any) -> None:
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        norm = self.clip_grads(runner.model.parameters())
        runner.log_buffer.update({"grad_norm": float(norm)}, runner.outputs["num_samples"])
        runner.optimizer.step()


@pytest.mark.parametrize("owns_backward", [False, True])
def test_the_samples_of_a_batch_are_counted_when_asked_for(
    owns_backward: bool, tmp_path: Path
) -> None:
    counts = Counts()
    hooks = [OldOptimizerHook(grad_clip=dict(max_norm=1.0))] if owns_backward else []
    trainer = make_trainer(tmp_path, HookAdapter([*hooks, (counts, "LOW")]))
    trainer.fit(TinyModule(), make_loader(2, batch_size=3), make_loader(1, batch_size=5))
    assert counts.seen == [3, 3, 5]


def test_what_the_step_returned_counts(tmp_path: Path) -> None:
    class Says(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return {"loss": self.loss(batch), "num_samples": 7}

    class Reads(Hook):
        def after_train_iter(self, runner: Any) -> None:
            assert runner.outputs["num_samples"] == 7

    make_trainer(tmp_path, Reads()).fit(Says(), make_loader(1), make_loader(1))


def test_what_is_missing_is_answered_with_what_to_return(tmp_path: Path) -> None:
    class Reads(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.outputs["log_vars"]

    with pytest.raises(KeyError, match=r"no 'log_vars', only: loss; return dict\(loss=\.\.\., log"):
        make_trainer(tmp_path, Reads()).fit(TinyModule(), make_loader(1), make_loader(1))


def test_a_copy_leaves_the_run_behind(tmp_path: Path) -> None:
    copies: list[Any] = []

    class Keeps(Hook):
        def after_train_iter(self, runner: Any) -> None:
            copies.append(copy.copy(runner.outputs))

    make_trainer(tmp_path, Keeps()).fit(TinyModule(), make_loader(1), make_loader(1))
    assert [type(one) for one in copies] == [dict]
