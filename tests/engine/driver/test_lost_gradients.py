"""A checkpoint between accumulated batches lacks the gradients, which the resume reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import CheckpointHook, GradientCumulativeOptimizerHook, Hook, HookAdapter
from lightning_hooks.dialects import cvpods
from support.foreign_hooks import OptimizerHook
from support.probes import Recorder, SaveAt
from support.training import NoValidation, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended")

LOST = "next step has no gradients of the {} batches before the file"


class EveryThird(OptimizerHook):
    """An old project's gradient accumulation, not declared by an attribute."""

    def after_train_iter(self, runner: Any) -> None:
        runner.outputs["loss"].backward()
        if runner.iter % 3 == 2:
            runner.optimizer.step()
            runner.optimizer.zero_grad()


class Fails(Hook):
    """Raises an error in a batch."""

    priority = "LOWEST"

    def __init__(self, at: int) -> None:
        self.at = at

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter == self.at:
            raise RuntimeError("cut")


def resumed(
    tmp_path: Path, batches: int, first: Any, then: Any, module: Any = NoValidation
) -> None:
    """Save a checkpoint after some batches, then resume from the checkpoint."""
    path = tmp_path / "a.ckpt"
    for limits, (hooks, options), ckpt in (
        ({"max_epochs": 2}, first(SaveAt("on_train_batch_end", path, batches)), None),
        ({"max_epochs": 3}, then(Recorder()), path),
    ):
        trainer = make_trainer(tmp_path, *hooks, **limits, **options)
        trainer.fit(module(), make_loader(4), ckpt_path=ckpt)


def owned(make: Any) -> Any:
    return lambda *others: ([HookAdapter([make(), *others])], {})


def lightnings(batches: int) -> Any:
    return lambda *others: ([*others], {"accumulate_grad_batches": batches})


@pytest.mark.parametrize(
    ("make", "batches", "lost"),
    [
        (lambda: cvpods.OptimizationHook(accumulate_grad_steps=3), 2, 2),
        (lambda: cvpods.OptimizationHook(accumulate_grad_steps=3), 4, 1),  # between two epochs
        (lambda: cvpods.OptimizationHook(accumulate_grad_steps=3), 6, 0),
        (EveryThird, 5, 2),
        (EveryThird, 3, 0),
        (lambda: GradientCumulativeOptimizerHook(cumulative_iters=4), 3, 3),
        (OptimizerHook, 3, 0),
    ],
)
def test_of_hooks_that_own_the_step(
    make: Any, batches: int, lost: int, tmp_path: Path, caplog: Any
) -> None:
    resumed(tmp_path, batches, owned(make), owned(make))
    assert (LOST.format(lost) in caplog.text) == bool(lost)
    assert caplog.text.count("no gradients") == bool(lost)


@pytest.mark.parametrize(("before", "lost"), [(4, 2), (2, 0)])
def test_one_line_tells_of_a_group_that_the_file_has_cut(
    before: int, lost: int, tmp_path: Path, caplog: Any
) -> None:
    def cumulative(iters: int) -> Any:
        return owned(lambda: GradientCumulativeOptimizerHook(cumulative_iters=iters))

    resumed(tmp_path, 2, cumulative(before), cumulative(4))
    assert (LOST.format(lost) in caplog.text) == bool(lost)
    assert ("is not divisible by cumulative_iters" in caplog.text) == (not lost)


@pytest.mark.parametrize(
    ("before", "now", "batches", "lost"),
    [(4, 4, 2, 2), (4, 1, 2, 2), (4, 2, 2, 2), (1, 4, 2, 2), (4, 4, 4, 0), (2, 1, 2, 0)],
)
def test_of_lightning_whose_accumulation_may_change(
    before: int, now: int, batches: int, lost: int, tmp_path: Path, caplog: Any
) -> None:
    resumed(tmp_path, batches, lightnings(before), lightnings(now))
    assert (LOST.format(lost) in caplog.text) == bool(lost)


def test_a_batch_without_loss_has_no_gradients_to_lose(tmp_path: Path, caplog: Any) -> None:
    class Skips(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    with pytest.warns(UserWarning, match="is not called where training_step returns None"):
        resumed(tmp_path, 2, owned(OptimizerHook), owned(OptimizerHook), Skips)
    assert "no gradients" not in caplog.text


def test_of_a_file_at_an_error(tmp_path: Path, caplog: Any) -> None:
    def train(*others: Any, **options: Any) -> None:
        owner, keep = cvpods.OptimizationHook(3), CheckpointHook(on_exception=True)
        make_trainer(tmp_path, HookAdapter([owner, keep, *others]), max_epochs=2).fit(
            NoValidation(), make_loader(8), **options
        )

    with pytest.raises(RuntimeError, match="cut"):
        train(Fails(at=4))
    train(ckpt_path=tmp_path / "iter_5.pth")
    assert LOST.format(2) in caplog.text
