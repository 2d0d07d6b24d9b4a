"""A resume with another rate, or without a schedule, logs the restored rates."""

from __future__ import annotations

import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging

from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    FieldUpdaterHook,
    StepMomentumUpdaterHook,
)
from support.training import NoValidation, fit


class Configured(NoValidation):
    """A module with configurable options of the optimizer."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {"lr": 0.1, "momentum": 0.8, "weight_decay": 0.5, **options}

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), **self.options)


class Scheduled(Configured):
    """Has a scheduler of torch's, too."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)]


def cosine(**options: Any) -> CosineAnnealingLrUpdaterHook:
    return CosineAnnealingLrUpdaterHook(min_lr=0, **options)


def resumed(tmp_path: Path, hooks: Any, module: NoValidation, before: Any = None) -> Any:
    """Train for two epochs, then for two more with other hooks and another module."""
    first = hooks if before is None else before
    fit(tmp_path, *(make() for make in first), CheckpointHook(), module=Configured(), max_epochs=2)
    return fit(
        *(tmp_path, *(make() for make in hooks), CheckpointHook()),
        module=module,
        max_epochs=4,
        ckpt_path="last",
    )


@pytest.mark.parametrize(
    ("make", "options", "told"),
    [
        (cosine, {"lr": 0.2}, "learning rate .*: 0.1, not 0.2; base_lr=... gives another"),
        (lambda: StepMomentumUpdaterHook(1), {"momentum": 0.9}, "momentum .*: 0.8, not 0.9$"),
        (
            lambda: FieldUpdaterHook("weight_decay", policy="step", step=1),
            {"weight_decay": 0.25},
            "weight_decay .*: 0.5, not 0.25$",
        ),
    ],
)
def test_a_value_of_the_file_in_place_of_the_programs_is_told(
    tmp_path: Path, make: Any, options: dict[str, Any], told: str, caplog: Any
) -> None:
    with caplog.at_level(logging.WARNING):
        resumed(tmp_path, [make], Configured(**options))
    assert re.search(f"goes on from the {told}", caplog.messages[-1])


@pytest.mark.parametrize("options", [{}, {"weight_decay": 0.1}])
def test_a_resume_with_the_same_rates_says_nothing(
    tmp_path: Path, options: dict[str, Any], caplog: Any
) -> None:
    resumed(tmp_path, [cosine, lambda: StepMomentumUpdaterHook(1)], Configured(**options))
    assert "goes on from" not in caplog.text
    assert "learning rate stays" not in caplog.text


def test_a_base_given_to_the_schedule_counts_after_a_resume(tmp_path: Path, caplog: Any) -> None:
    trainer = resumed(tmp_path, [lambda: cosine(base_lr=0.4)], Configured(lr=0.2), [cosine])
    assert trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.4 * (1 - 0.5**0.5) / 2)
    assert "goes on from" not in caplog.text


def test_a_rate_that_no_schedule_sets_any_more_is_told(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        trainer = resumed(tmp_path, [], Configured(), [cosine])
    rate = trainer.optimizers[0].param_groups[0]["lr"]
    assert rate == pytest.approx(0.05)
    assert re.findall(r"learning rate stays .* has left it: (.*)\. No hook", caplog.text) == [
        f"{rate:.6g} (of 0.1)"
    ]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: StepMomentumUpdaterHook(1), r"the momentum stays .* left it: [\d.]+ \(of 0.8\)"),
        (
            lambda: FieldUpdaterHook("weight_decay", policy="LinearAnnealing", end=0.25),
            r"the weight_decay stays .* left it: 0.375 \(of 0.5\)",
        ),
    ],
)
def test_another_value_that_no_schedule_sets_any_more_is_told(
    tmp_path: Path, make: Any, told: str, caplog: Any
) -> None:
    resumed(tmp_path, [cosine], Configured(), [cosine, make])
    assert re.search(told, caplog.text)
    assert caplog.text.count("has left it") == 1
    caplog.clear()
    resumed(tmp_path, [cosine, make], Configured())
    assert "has left it" not in caplog.text


def test_a_text_of_a_group_is_no_value_that_a_schedule_has_left(
    tmp_path: Path, caplog: Any
) -> None:
    class Named(Configured):
        def configure_optimizers(self) -> Any:
            group = {"params": self.parameters(), "mode": "fast", "initial_mode": 1.0}
            return torch.optim.SGD([group], **self.options)

    fit(tmp_path, cosine(), CheckpointHook(), module=Named(), max_epochs=2)
    fit(tmp_path, CheckpointHook(), module=Named(), max_epochs=3, ckpt_path="last")
    assert caplog.text.count("has left it") == 1


@pytest.mark.parametrize(
    ("module", "callbacks"),
    [
        (Scheduled, []),
        (Configured, [partial(StochasticWeightAveraging, swa_lrs=0.1, swa_epoch_start=3)]),
    ],
)
def test_what_sets_the_rate_in_place_of_the_hook_is_no_missing_schedule(
    tmp_path: Path, module: Any, callbacks: list[Any], caplog: Any
) -> None:
    resumed(tmp_path, callbacks, module(), [cosine])
    assert "learning rate stays" not in caplog.text
