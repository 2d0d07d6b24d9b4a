"""Rates by iteration where the training loader has another length in each epoch."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from lightning_hooks import (
    CheckpointHook,
    FixedLrUpdaterHook,
    HookAdapter,
    LinearAnnealingLrUpdaterHook,
)
from support.schedule_runs import Optimizers, ValueRecorder
from support.training import make_trainer

LENGTHS = 2, 4, 6
"""The batches of each epoch."""


class Growing(Optimizers):
    """A module whose training loader grows by two batches in each epoch."""

    def __init__(self) -> None:
        super().__init__([{"lr": [1.0]}])

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(range(LENGTHS[self.trainer.current_epoch]))  # type: ignore[arg-type]


def rates(tmp_path: Path, hook: Any, ckpt_path: str | None = None, **options: Any) -> list[float]:
    """Train with a hook, and return the rate of each iteration."""
    seen = ValueRecorder()
    adapter = HookAdapter(
        [hook, CheckpointHook(interval=1), (seen, "LOWEST")], **options.pop("adapter", {})
    )
    options = {"max_epochs": 3, **options}
    trainer = make_trainer(tmp_path, adapter, reload_dataloaders_every_n_epochs=1, **options)
    trainer.fit(Growing(), ckpt_path=ckpt_path)
    return [rate for [rate] in seen.values]


def line(**options: Any) -> LinearAnnealingLrUpdaterHook:
    """Return a schedule of ``1 - done / length``."""
    return LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False, **options)


SHARES = [
    *(iteration / (0 + 3 * 2) for iteration in range(2)),
    *(iteration / (2 + 2 * 4) for iteration in range(2, 6)),
    *(iteration / (6 + 1 * 6) for iteration in range(6, 12)),
]


@pytest.mark.parametrize("by_epoch", [True, False])
def test_departure_a_line_does_not_rise_with_a_growing_loader(
    tmp_path: Path, by_epoch: bool
) -> None:
    found = rates(tmp_path, line(), adapter={"by_epoch": by_epoch})
    assert found == pytest.approx([1 - share for share in SHARES])
    assert all(after <= before for before, after in pairwise(found))


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_resume_goes_on_with_the_same_rates(tmp_path: Path, epoch: int) -> None:
    def hook() -> Any:
        return line(warmup="linear", warmup_iters=2, warmup_by_epoch=True)

    whole = rates(tmp_path, hook())
    rest = rates(tmp_path, hook(), str(tmp_path / f"epoch_{epoch}.pth"))
    assert rest == whole[sum(LENGTHS[:epoch]) :]


def test_a_warm_up_by_epoch_ends_with_its_epoch(tmp_path: Path) -> None:
    warm_up = {"warmup": "linear", "warmup_iters": 2, "warmup_by_epoch": True}
    found = rates(tmp_path, FixedLrUpdaterHook(warmup_ratio=0.1, **warm_up))
    shares = [0 / 4, 1 / 4, 2 / 6, 3 / 6, 4 / 6, 5 / 6, *[1] * 6]
    assert found == pytest.approx([0.1 + 0.9 * share for share in shares])


def test_steps_of_several_batches(tmp_path: Path) -> None:
    found = rates(tmp_path, line(by_step=True), accumulate_grad_batches=2)
    steps = [0 / 3, 0 / 3, 1 / 5, 1 / 5, 2 / 5, 2 / 5, 3 / 6, 3 / 6, 4 / 6, 4 / 6, 5 / 6, 5 / 6]
    assert found == pytest.approx([1 - share for share in steps])


def test_iterations_of_a_number_of_steps(tmp_path: Path) -> None:
    """The run has five steps of three batches or of the remainder of an epoch."""
    found = rates(tmp_path, line(), accumulate_grad_batches=3, max_epochs=-1, max_steps=5)
    # an epoch of 2 batches has 1 step, an epoch of 4 batches has 2
    ends = [10] * 2 + [2 + 8] * 4 + [6 + 6] * 6
    assert found == pytest.approx([1 - i / end for i, end in enumerate(ends)])
