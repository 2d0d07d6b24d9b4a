"""A run with fewer batches per epoch than already done resumes with the next epoch."""

from __future__ import annotations

import logging
import math
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from lightning_hooks import CheckpointHook, CosineAnnealingLrUpdaterHook
from support.training import NoValidation, fit


class RaisesAt(Callback):
    """Raises where a batch begins."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(self, trainer: Any, *rest: Any) -> None:
        if trainer.global_step == self.step:
            raise RuntimeError("cut")


class Rates(Callback):
    """Records epoch, batch and rate."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, float]] = []

    def on_before_optimizer_step(self, trainer: Any, module: Any, optimizer: Any) -> None:
        batch = trainer.fit_loop.epoch_loop.batch_idx
        self.seen.append((trainer.current_epoch, batch, optimizer.param_groups[0]["lr"]))


def cosine() -> CosineAnnealingLrUpdaterHook:
    return CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=False)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize(
    "shorter", [{"batches": n, "limit_train_batches": min(n, 6)} for n in (4, 5, 7, 10)]
)
@pytest.mark.parametrize("on_exception", [True, False])
def test_the_schedule_ends_with_the_run(
    tmp_path: Path, shorter: dict[str, Any], on_exception: bool, caplog: Any
) -> None:
    saves = {"interval": 8} if on_exception else {"interval": 1, "by_epoch": False}
    saving = CheckpointHook(**saves, on_exception=on_exception)
    with pytest.raises(RuntimeError, match="cut"):
        fit(tmp_path, cosine(), saving, RaisesAt(16), module=NoValidation, batches=10, max_epochs=3)
    rates = Rates()
    with caplog.at_level(logging.WARNING):
        fit(
            *(tmp_path, cosine(), CheckpointHook(), rates),
            module=NoValidation,
            max_epochs=3,
            ckpt_path="last",
            **shorter,
        )
    length = shorter["limit_train_batches"]
    each = [
        (2, i, pytest.approx(0.05 * (1 + math.cos(math.pi * (16 + i) / (16 + length)))))
        for i in range(length)
    ]
    assert rates.seen == each
    told = f"has 6 batches of epoch 2, and an epoch of this run has {length}; to Lightning that"
    assert told in caplog.text
