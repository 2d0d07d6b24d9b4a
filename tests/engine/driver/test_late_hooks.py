"""A native hook registered by another hook during a run works from the next point on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    ExpLrUpdaterHook,
    Hook,
    TextLoggerHook,
)
from support.foreign_hooks import old
from support.training import NoValidation, TinyModule, fit

BATCHES, EPOCHS = 3, 3
POINTS = {  # point of registration: the remaining iterations
    "before_run": 9,
    "before_train_epoch": 9,
    "after_train_iter": 8,
    "after_train_epoch": 6,
}
every_point = pytest.mark.parametrize(("point", "left"), POINTS.items())


def train(tmp_path: Path, point: str, hook: Any, **arguments: Any) -> Any:
    """Train; register the hook at the first call of the point."""
    given = [hook]

    def register(runner: Any) -> None:
        if given:
            runner.register_hook(given.pop())

    arguments = {"module": NoValidation, "batches": BATCHES, "max_epochs": EPOCHS, **arguments}
    return fit(tmp_path, old(**{point: register}), host=True, **arguments)


@every_point
def test_an_average(tmp_path: Path, point: str, left: int) -> None:
    ema = EMAHook(momentum=0.1, warm_up=0)
    seen: list[Any] = []

    class Module(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            if not self.trainer.sanity_checking:
                seen.append((self.net.weight - ema.ema_state_dict()["net.weight"]).abs().max())

    train(tmp_path, point, ema, module=Module, val=1)
    assert ema.steps == left
    assert seen[-1] == 0  # validated with the average


@pytest.mark.parametrize("point", ["before_run", "after_train_iter"])
def test_an_average_in_a_run_by_iteration(tmp_path: Path, point: str) -> None:
    ema = EMAHook()
    train(tmp_path, point, ema, by_epoch=False)
    assert ema.steps == POINTS[point]


@every_point
def test_a_checkpoint_hook_and_a_text_log(tmp_path: Path, point: str, left: int) -> None:
    train(tmp_path, point, CheckpointHook(interval=1))
    assert sorted(p.name for p in tmp_path.glob("epoch_*")) == [
        f"epoch_{i}.pth" for i in range(1, EPOCHS + 1)
    ]
    train(tmp_path, point, TextLoggerHook(interval=1))
    (log,) = tmp_path.glob("*.log.json")
    lines = [line for line in log.read_text().splitlines() if '"train"' in line]
    assert len(lines) == left


@every_point
def test_a_schedule_and_a_check(tmp_path: Path, point: str, left: int) -> None:
    trainer = train(tmp_path, point, ExpLrUpdaterHook(gamma=0.9, by_epoch=False))
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    assert rate == pytest.approx(0.1 * 0.9 ** (BATCHES * EPOCHS - 1))

    class Fails(NoValidation):
        def loss(self, batch: Any) -> Any:
            last = self.trainer.current_epoch == EPOCHS - 1
            return super().loss(batch) * (float("nan") if last else 1)

    with pytest.raises(Exception, match=r"(?i)nan|invalid"):
        train(tmp_path, point, CheckInvalidLossHook(interval=1), module=Fails)


def test_a_hook_of_ones_own_has_the_points_that_follow_as_in_mmcv(tmp_path: Path) -> None:
    calls: list[str] = []

    class Mine(Hook):
        def before_run(self, runner: Any) -> None:
            calls.append("before_run")

        def before_train_epoch(self, runner: Any) -> None:
            calls.append("before_train_epoch")

        def after_run(self, runner: Any) -> None:
            calls.append("after_run")

    train(tmp_path, "after_train_iter", Mine(), max_epochs=2)
    assert calls == ["before_train_epoch", "after_run"]


def test_a_second_fit_registers_it_again(tmp_path: Path) -> None:
    ema = EMAHook(after_fit="raw")
    hook = old(after_train_iter=lambda r: ema in r.hooks or r.register_hook(ema))
    trainer = fit(tmp_path, hook, host=True, module=NoValidation, batches=BATCHES)
    assert ema.steps == BATCHES - 1
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.model, trainer.train_dataloader)
    assert ema.steps > BATCHES - 1
