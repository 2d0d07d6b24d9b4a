"""A resumed run restores the hooks' states and warns once of unmatched states."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    TextLoggerHook,
)
from lightning_hooks.dialects import detectron2
from lightning_hooks.engine.hook_states import Identity, adopt_states, pair
from support.foreign_hooks import OldEMA
from support.training import NoValidation, fit, make_trainer

hosted = pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])


class Total(Hook):
    """A stateful hook that adds its factor in each iteration."""

    def __init__(self, factor: int, name: str = "") -> None:
        self.factor, self.total, self.name = factor, 0, name

    def after_train_iter(self, runner: Any) -> None:
        self.total += self.factor

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.total = state_dict["total"]


class Counts(detectron2.HookBase):
    """A stateful hook of the detectron2 dialect."""

    count = 0

    def after_step(self) -> None:
        self.count += 1

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class PlainTotal:
    """A stateful hook that is not a Lightning callback."""

    total = 0

    def after_train_iter(self, runner: Any) -> None:
        self.total += 1

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.total = state["total"]


def train(folder: Path, *hooks: Any, **arguments: Any) -> list[str]:
    """Train an epoch, or resume for a second epoch; return the warnings."""
    path = folder / "a.ckpt"
    resumes = {"ckpt_path": path, "max_epochs": 2} if path.exists() else {}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer = fit(folder, *hooks, module=NoValidation, **{**resumes, **arguments})
    if not path.exists():
        trainer.save_checkpoint(path, weights_only=False)
    return [str(w.message) for w in caught if "pytree" not in w.filename]


@hosted
@pytest.mark.parametrize("first", [False, True], ids=["from bare", "from hosted"])
def test_a_state_goes_with_its_class_and_its_arguments(
    tmp_path: Path, host: bool, first: bool
) -> None:
    train(tmp_path, Total(1), Total(10), host=first)
    ten, one = Total(10), Total(1)
    assert train(tmp_path, IterTimerHook(), ten, one, host=host) == []
    assert (ten.total, one.total) == (80, 8)
    ten, other = Total(10), Total(2)  # a new argument
    assert train(tmp_path, ten, other, host=host) == []
    assert (ten.total, other.total) == (80, 4 + 8)


def test_a_changed_copy_has_a_key_of_its_own(tmp_path: Path) -> None:
    class Every(Total):
        n = 1

        def _state_arguments(self) -> dict[str, Any]:
            return {"n": self.n}

    one = Every(1)
    assert one.state_key.endswith("Every{'n': 1}")
    ten = copy.deepcopy(one)
    ten.n = 10
    make_trainer(tmp_path, one, ten)  # Lightning refuses two equal keys


@hosted
def test_a_state_without_a_hook_and_a_hook_without_one_are_a_warning_each(
    tmp_path: Path, host: bool
) -> None:
    train(tmp_path, Total(1), Total(10))
    (told,) = train(tmp_path, Total(10), host=host)
    assert told.startswith("the checkpoint has the state of Total(factor=1), and no hook of this")
    assert "Give the Trainer Total(factor=1) to go on with it" in told
    new = Total(3)
    (told,) = train(tmp_path, Total(10), Total(1), new, host=host)
    assert told.startswith(
        "Total(factor=3) finds no state of its own in the checkpoint, and begins"
    )
    assert new.total == 12


@hosted
def test_a_hook_without_a_state_may_come_and_go_in_silence(tmp_path: Path, host: bool) -> None:
    schedule = CosineAnnealingLrUpdaterHook(min_lr=0.01, by_epoch=False)
    train(tmp_path, IterTimerHook(), schedule)
    assert train(tmp_path, TextLoggerHook(), host=host) == []
    schedule = CosineAnnealingLrUpdaterHook(min_lr=0.01, by_epoch=False)
    assert train(tmp_path, schedule, TextLoggerHook(), host=host) == []


def test_a_hook_whose_state_is_empty_takes_no_other_hooks() -> None:
    first, second = Total(1, name="a"), Total(1, name="b")
    table = [
        {"class": "Total", "arguments": {"factor": 1, "name": name}, "key": name} for name in "ab"
    ]
    checkpoint = {"callbacks": {"b": {"total": 3}, "ModelCheckpoint{}": {"x": 1}}}
    assert adopt_states(checkpoint, table, [first, second]) == []
    assert checkpoint["callbacks"] == {
        second.state_key: {"total": 3},
        "ModelCheckpoint{}": {"x": 1},
    }


@pytest.mark.parametrize(
    ("saved", "present", "found"),
    [
        ([{"m": 1}, {"m": 2}], [{"m": 2}, {"m": 1}], {0: 1, 1: 0}),
        ([{"m": 1}, {"m": 2}], [{"m": 3}, {"m": 4}], {0: 0, 1: 1}),
        ([{"m": 1}, {"m": 2}], [{"m": 3}, {"m": 1}], {0: 1, 1: 0}),
        ([{"m": 1}, {"m": 2}], [{"m": 2}], {0: 1}),
        ([{"m": 1}], [{"m": 2}, {"m": 1}], {1: 0}),
        ([{"m": 1, "n": 1}, {"m": 2, "n": 2}], [{"m": 2, "n": 3}, {"m": 1, "n": 4}], {0: 1, 1: 0}),
        ([], [{"m": 1}], {}),
    ],
)
def test_pairs_by_the_fewest_differences_then_by_order(
    saved: Any, present: Any, found: dict[int, int]
) -> None:
    identities = ([Identity("EMAHook", one) for one in some] for some in (saved, present))
    assert pair(*identities) == found


@hosted
def test_buffers_of_an_old_hook_are_told_of_too(tmp_path: Path, host: bool) -> None:
    train(tmp_path, HookAdapter([OldEMA()]))
    beside = [Total(1)] if host else [HookAdapter([Total(1)])]
    told = train(tmp_path, *beside, host=host)
    assert len(told) == 2
    assert "the checkpoint has the buffer 'ema_net_bias' and 1 more, which a hook" in told[1]
    assert train(tmp_path, HookAdapter([OldEMA()])) == []


def test_an_old_hook_whose_buffers_are_not_in_the_file_is_told_of(tmp_path: Path) -> None:
    train(tmp_path, IterTimerHook())
    (told,) = train(tmp_path, HookAdapter([OldEMA()]))
    assert "added the buffer 'ema_net_bias' and 1 more to the model, which the checkpoint" in told


def test_the_state_of_a_hook_that_is_no_callback_is_saved_too(tmp_path: Path) -> None:
    train(tmp_path, HookAdapter([PlainTotal()]))
    hook = PlainTotal()
    assert train(tmp_path, HookAdapter([hook])) == []
    assert hook.total == 8
    (told,) = train(tmp_path, IterTimerHook())
    assert told.startswith("the checkpoint has the state of PlainTotal, and no hook of this")


def test_hooks_of_a_dialect_are_told_of_too(tmp_path: Path) -> None:
    train(tmp_path, HookAdapter([Counts()]))
    (told,) = train(tmp_path, IterTimerHook())
    assert told.startswith("the checkpoint has the state of Counts, and no hook of this Trainer")
    (told,) = train(tmp_path, HookAdapter([Counts(), Counts()]))
    assert told.startswith("Counts[1] finds no state of its own in the checkpoint")
