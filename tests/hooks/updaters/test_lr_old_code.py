"""Old code can change a learning rate hook during a run, with effect at once, as with mmcv."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HOOKS, Hook, HookAdapter, schedules
from lightning_hooks.hooks.updaters.anneal import CosineAnnealingLrUpdaterHook
from lightning_hooks.hooks.updaters.decay import ExpLrUpdaterHook, PolyLrUpdaterHook
from support.schedule_runs import CASES, Optimizers, ValueRecorder
from support.training import make_loader, make_trainer

HALVES = [1, 0.5, 0.25, 0.125, 0.0625, 0.03125]


class Halving(ExpLrUpdaterHook):
    """Halves the rate in every iteration."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(gamma=0.5, by_epoch=False, **kwargs)


class At(Hook):
    """Calls a function before the n-th iteration."""

    def __init__(self, n: int, action: Callable[[Any], None]) -> None:
        self.n, self.action = n, action

    def before_train_iter(self, runner: Any) -> None:
        if runner.iter == self.n:
            self.action(runner)


def rates(tmp_path: Path, *hooks: Any, lrs: tuple[float, ...] = (1.0,)) -> Any:
    """Train for 6 iterations; return the rates of each."""
    recorder = ValueRecorder()
    adapter = HookAdapter([(At(0, lambda runner: None), 0), *hooks, (recorder, "LOWEST")])
    trainer = make_trainer(tmp_path, adapter, max_epochs=2)
    trainer.fit(Optimizers([{"lr": list(lrs)}]), make_loader(3))
    found: Any = recorder.values
    return [row[0] for row in found] if len(lrs) == 1 else found


def tenfold(result: Any) -> Any:
    return [10 * lr for lr in result] if isinstance(result, list) else 10 * result


@pytest.mark.parametrize("on", ["class", "instance"])
@pytest.mark.parametrize("lrs", [(1.0,), (1.0, 1.0), (1.0, 2.0)])
@pytest.mark.parametrize("name", ["get_lr", "get_regular_lr", "_value", "get_warmup_lr", "_set_lr"])
def test_whatever_is_overridden_is_asked(
    tmp_path: Path, name: str, lrs: tuple[float, ...], on: str
) -> None:
    warm_up = name == "get_warmup_lr"
    arguments = {"warmup": "constant", "warmup_iters": 6, "warmup_ratio": 1.0} if warm_up else {}

    def override(self: Any, *args: Any) -> Any:
        if name == "_set_lr":
            return Halving._set_lr(self, args[0], tenfold(args[1]))
        return tenfold(getattr(Halving, name)(self, *args))

    if on == "class":
        hook = type("Old", (Halving,), {name: override})(**arguments)
    else:
        hook = Halving(**arguments)
        setattr(hook, name, override.__get__(hook))
    found = rates(tmp_path, hook, lrs=lrs)
    if len(lrs) == 1:
        assert found == [10 * half for half in HALVES]
    else:
        assert found == [[10 * lr * half for lr in lrs] for half in HALVES]


# some drawn milestones and periods are longer than the run
@pytest.mark.filterwarnings("ignore:Old of ")
def test_overriding_with_the_same_changes_no_bit_of_what_mmcv_computes() -> None:
    cases = [
        case
        for case in CASES
        if case["key"] == "lr" and not case["hook"]["by_epoch"] and len(case["optimizers"]) == 1
    ]
    assert len(cases) > 100

    def get_lr(self: Any, runner: Any, base_lr: float) -> Any:
        return super(type(self), self).get_lr(runner, base_lr)

    for case in cases:
        config = dict(case["hook"])
        cls: Any = HOOKS.get(config.pop("type"))
        epochs = case["max_epochs"] or 1
        run: dict[str, Any] = {
            "max_epochs": epochs,
            "iters_per_epoch": case["max_iters"] // epochs,
            "base_lr": case["optimizers"][0]["lr"],
        }
        old = type("Old", (cls,), {"get_lr": get_lr})(**config)
        assert schedules.sample(old, **run) == case["values"]


def test_a_rate_changed_by_hand_is_set_anew(tmp_path: Path) -> None:
    def change(runner: Any) -> None:
        runner.optimizer.param_groups[0]["lr"] = 7.0

    assert (
        rates(tmp_path, Halving(), (At(2, change), 1), (At(3, change), "LOWEST"))
        == [
            *HALVES[:3],  # changed before the hook comes
            7.0,  # changed afterward
            *HALVES[4:],
        ]
    )


@pytest.mark.parametrize("lrs", [(1.0,), (1.0, 2.0)])
def test_other_bases_count_from_the_next_iteration(tmp_path: Path, lrs: tuple[float, ...]) -> None:
    hook = Halving()
    actions: list[Callable[[Any], None]] = [
        lambda runner: setattr(hook, "base_lr", [10 * lr for lr in lrs]),
        lambda runner: hook.base_lr.__setitem__(0, 100.0),  # type: ignore[union-attr]
    ]
    found = rates(tmp_path, hook, (At(2, actions[0]), 1), (At(4, actions[1]), 1), lrs=lrs)
    first = [row[0] for row in found] if len(lrs) > 1 else found
    assert first == [1, 0.5, 2.5, 1.25, 6.25, 3.125]
    if len(lrs) > 1:
        assert [row[1] for row in found] == [2, 1, 5, 2.5, 1.25, 0.625]


def test_other_arguments_count_from_the_next_iteration(tmp_path: Path) -> None:
    hook = Halving()
    found = rates(tmp_path, hook, (At(3, lambda runner: setattr(hook, "gamma", 0.1)), 1))
    assert found == [*HALVES[:3], 1.0 * 0.1**3, 1.0 * 0.1**4, 1.0 * 0.1**5]


def test_a_list_of_groups_that_is_replaced_or_grows(tmp_path: Path) -> None:
    def regroup(runner: Any) -> None:
        optimizer = runner.optimizer
        optimizer.param_groups = [dict(group) for group in optimizer.param_groups]

    def add(runner: Any) -> None:
        weight = torch.nn.Parameter(torch.zeros(1))
        runner.optimizer.add_param_group({"params": [weight], "lr": 5.0})

    halving, recorder = Halving(), ValueRecorder()
    scheduled = At(5, lambda runner: halving.base_lr.append(32.0))  # type: ignore[union-attr]
    hooks = [halving, (At(2, regroup), 1), (At(4, add), 1), (scheduled, 1), (recorder, "LOWEST")]
    trainer = make_trainer(tmp_path, HookAdapter(hooks), max_epochs=2)
    trainer.fit(Optimizers([{"lr": [1.0]}]), make_loader(3))
    assert recorder.values == [*([half] for half in HALVES[:4]), [HALVES[4], 5.0], [HALVES[5], 1.0]]
    assert halving.regular_lr == [HALVES[5], 1.0]


def test_another_optimizer_is_used_from_the_next_iteration(tmp_path: Path) -> None:
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3.0)
    found = rates(
        tmp_path, Halving(), (At(2, lambda runner: setattr(runner, "optimizer", other)), 1)
    )
    assert found == HALVES
    assert other.param_groups[0]["lr"] == HALVES[-1]


def test_the_counter_that_a_hook_moves_moves_the_rate(tmp_path: Path) -> None:
    def back(runner: Any) -> None:
        runner._iter -= 2

    assert rates(tmp_path, Halving(), (At(3, back), 1)) == [1, 0.5, 0.25, 0.5, 0.25, 0.5]


@pytest.mark.parametrize("how", ["_max_epochs", "_max_iters", "trainer"])
def test_a_run_that_gets_longer_anneals_longer(tmp_path: Path, how: str) -> None:
    class Prolong(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.fit_loop.max_epochs = 4

    def prolong(runner: Any) -> None:
        if how == "_max_epochs":
            runner._max_epochs = 4
        elif how == "_max_iters":
            runner._max_iters = 12

    recorder = ValueRecorder()
    hook = PolyLrUpdaterHook(by_epoch=False)
    adapter = HookAdapter([hook, (At(2, prolong), 1), (recorder, "LOWEST")])
    others = [Prolong()] if how == "trainer" else []
    trainer = make_trainer(tmp_path, adapter, *others, max_epochs=2)
    trainer.fit(Optimizers([{"lr": [1.0]}]), make_loader(3))
    at_once = how != "trainer"  # by the Trainer from the next epoch on, as mmcv counts
    expected = [1, 1 - 1 / 6, 1 - 2 / 12 if at_once else 1 - 2 / 6]
    if how == "_max_iters":  # for the epoch, as in mmcv
        expected += [1 - t / 6 for t in range(3, 6)]
    else:
        expected += [1 - t / 12 for t in range(3, 12)]
    assert [lr for [lr] in recorder.values] == pytest.approx(expected)


def test_an_old_before_run_without_super(tmp_path: Path) -> None:
    class Old(CosineAnnealingLrUpdaterHook):
        def before_run(self, runner: Any) -> None:
            self.base_lr = [0.5 for _ in runner.optimizer.param_groups]

    found = rates(tmp_path, Old(min_lr=0.5, by_epoch=False))
    assert found == [0.5] * 6


# -- attributes set by Lightning on a callback -------------------------------------------------


def test_a_log_of_the_hooks_own_is_kept_also_with_its_own_setattr(tmp_path: Path) -> None:
    class Logs(Hook):
        def log(self, runner: Any) -> str:
            return "mine"

    class Strict(Logs):
        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

    class Quiet(Hook):
        pass

    hooks = [Logs(), Strict(), type("Sub", (Strict,), {})(), Quiet()]
    trainer = make_trainer(tmp_path, *hooks, max_epochs=1)
    trainer.fit(Optimizers([{"lr": [1.0]}]), make_loader(1))
    assert [hook.log(None) for hook in hooks[:3]] == ["mine"] * 3  # type: ignore[attr-defined]
    assert hooks[3].log == trainer.lightning_module.log  # type: ignore[attr-defined]
    assert type(hooks[3]).__setattr__ is object.__setattr__
