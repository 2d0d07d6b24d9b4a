"""Lightning's ``LearningRateMonitor`` logs the used rates if it stands after the hooks."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    FixedLrUpdaterHook,
    HookAdapter,
    StepLrUpdaterHook,
)
from support.training import NoValidation, make_loader, make_trainer


class Module(NoValidation):
    """Keeps the rate of each step."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.rates = [*getattr(self, "rates", []), optimizer.param_groups[0]["lr"]]


def logged(folder: Path, *callbacks: Any) -> tuple[list[float], list[float], list[str]]:
    """Train three epochs of four steps; return the rates logged and used, and the warnings."""
    module, logger = Module(), CSVLogger(folder, name="csv")
    trainer = make_trainer(folder, *callbacks, max_epochs=3, logger=logger, log_every_n_steps=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, make_loader(4))
    with open(Path(logger.log_dir) / "metrics.csv") as file:
        rates = [float(row["lr-SGD"]) for row in csv.DictReader(file) if row["lr-SGD"]]
    found = [str(one.message) for one in caught if "LearningRateMonitor" in str(one.message)]
    return rates, module.rates, found


def by_epoch() -> Any:
    return StepLrUpdaterHook(step=[1, 2])


def by_iter() -> Any:
    return CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=False)


@pytest.mark.parametrize(("interval", "make"), [("epoch", by_epoch), ("step", by_iter)])
@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_after_the_hooks_it_logs_the_rates_used_and_before_them_a_warning(
    tmp_path: Path, interval: Any, make: Any, host: bool
) -> None:
    every = 4 if interval == "epoch" else 1

    def hook() -> Any:
        return HookAdapter([make()]) if host else make()

    rates, used, said = logged(tmp_path / "after", hook(), LearningRateMonitor(interval))
    assert rates == pytest.approx(used[::every])
    assert said == []
    rates, used, said = logged(tmp_path / "before", LearningRateMonitor(interval), hook())
    assert rates[1:] == pytest.approx(used[::every][:-1])
    name = type(make()).__name__
    (message,) = said
    assert message.startswith(f"LearningRateMonitor stands before {name} in callbacks=[...] and")
    assert message.endswith("put it after the hooks")


def test_between_two_hooks_it_logs_the_rates_used(tmp_path: Path) -> None:
    """The first hook in the list sets the rates of all hooks."""
    hooks = (EMAHook(), LearningRateMonitor("step"), by_iter())
    rates, used, said = logged(tmp_path, *hooks)
    assert rates == pytest.approx(used)
    assert said == []


def test_at_the_start_of_an_epoch_a_rate_by_iteration_is_still_the_one_before(
    tmp_path: Path,
) -> None:
    rates, used, _ = logged(tmp_path, by_iter(), LearningRateMonitor("epoch"))
    assert rates == pytest.approx([used[0], used[3], used[7]])
    warming = FixedLrUpdaterHook(warmup="linear", warmup_iters=4)
    rates, used, _ = logged(tmp_path / "warm", warming, LearningRateMonitor("epoch"))
    assert rates[0] == pytest.approx(used[-1])  # the regular rate
    assert used[0] < rates[0]
