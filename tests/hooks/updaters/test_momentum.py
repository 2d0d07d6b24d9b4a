"""Momentum hooks in real Trainers, against momenta recorded from mmcv."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import (
    HOOKS,
    CosineAnnealingMomentumUpdaterHook,
    CyclicMomentumUpdaterHook,
    ExpMomentumUpdaterHook,
    FixedMomentumUpdaterHook,
    Hook,
    HookAdapter,
    InvMomentumUpdaterHook,
    LinearAnnealingMomentumUpdaterHook,
    OneCycleMomentumUpdaterHook,
    PolyMomentumUpdaterHook,
    StepMomentumUpdaterHook,
)
from lightning_hooks.hooks.updaters.cyclic import OneCycleLrUpdaterHook
from lightning_hooks.hooks.updaters.momentum import MomentumUpdaterHook
from support.schedule_runs import CASES, Optimizers, SaveAndStop, ValueRecorder, case_of, fit
from support.training import TinyModule, make_loader, make_trainer

MOMENTUM_CASES = [case for case in CASES if case["key"] == "momentum"]


# some drawn milestones are longer than the run
@pytest.mark.filterwarnings("ignore:.*UpdaterHook of ")
@pytest.mark.parametrize("index", range(0, len(MOMENTUM_CASES), 11))
def test_equal_to_mmcv_in_a_real_run_bit_for_bit(tmp_path: Path, index: int) -> None:
    case = MOMENTUM_CASES[index]
    given = copy.deepcopy(case["hook"])
    assert fit(tmp_path, case) == case["values"]
    assert case["hook"] == given


def momenta(tmp_path: Path, kind: str = "SGD", base: float = 0.9, **hook: Any) -> list[float]:
    """Train 10 iterations, and return the momentum of each."""
    return [m for [m] in fit(tmp_path, case_of("momentum", base, kind, by_epoch=False, **hook))]


def near(values: Any) -> Any:
    return pytest.approx(values, abs=5e-7)


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_policies_follow_mmcvs_traces(tmp_path: Path, kind: str) -> None:
    assert momenta(tmp_path, kind, type="OneCycleMomentumUpdaterHook") == near(
        [0.95, 0.9, 0.85, 0.854952, 0.868826, 0.888874, 0.911126, 0.931174, 0.945048, 0.95]
    )
    assert momenta(tmp_path, kind, type="CyclicMomentumUpdaterHook") == near(
        [
            *(0.9, 0.886126, 0.852632, 0.819137, 0.805263),
            *(0.811609, 0.828947, 0.852632, 0.876316, 0.893654),
        ]
    )
    assert momenta(tmp_path, kind, type="StepMomentumUpdaterHook", step=3) == near(
        [0.9] * 3 + [0.45] * 3 + [0.225] * 3 + [0.1125]
    )


def test_policies_that_mmcv_has_for_learning_rates_only(tmp_path: Path) -> None:
    run = {"tmp_path": tmp_path, "base": 0.8}
    assert momenta(type="FixedMomentumUpdaterHook", **run) == [0.8] * 10
    assert momenta(type="ExpMomentumUpdaterHook", gamma=0.5, **run) == near(
        [0.8 * 0.5**t for t in range(10)]
    )
    assert momenta(type="InvMomentumUpdaterHook", gamma=1.0, **run) == near(
        [0.8 / (1 + t) for t in range(10)]
    )
    assert momenta(type="PolyMomentumUpdaterHook", min_momentum=0.3, **run) == near(
        [0.8 - 0.05 * t for t in range(10)]
    )


def test_a_warm_up_divides(tmp_path: Path) -> None:
    warm = {"type": "FixedMomentumUpdaterHook", "warmup_iters": 4, "warmup_ratio": 0.5}
    run = {"tmp_path": tmp_path, "base": 0.4}
    assert momenta(warmup="constant", **warm, **run) == near([0.8] * 4 + [0.4] * 6)
    assert momenta(warmup="linear", **warm, **run)[:5] == near(
        [0.4 / (1 - (1 - t / 4) * 0.5) for t in range(5)]
    )
    assert momenta(warmup="exp", **warm, **run)[:5] == near(
        [0.4 / 0.5 ** (1 - t / 4) for t in range(5)]
    )
    assert FixedMomentumUpdaterHook(warmup="exp", warmup_iters=1).warmup_ratio == 0.9


def test_departure_warmup_by_epoch_is_there_for_momenta_too(tmp_path: Path) -> None:
    hook = {"warmup": "constant", "warmup_iters": 1, "warmup_by_epoch": True}
    case = case_of("momentum", 0.45, type="StepMomentumUpdaterHook", step=1, **hook)
    assert fit(tmp_path, case) == [[0.5]] * 5 + [[0.225]] * 5


def test_beside_a_learning_rate_hook(tmp_path: Path) -> None:
    rates, momenta = ValueRecorder("lr"), ValueRecorder("momentum")
    hooks = [OneCycleLrUpdaterHook(max_lr=0.05), OneCycleMomentumUpdaterHook()]
    trainer = make_trainer(tmp_path, HookAdapter([*hooks, rates, momenta]), max_epochs=2)
    module = TinyModule()
    trainer.fit(module, make_loader(5), make_loader(1))
    assert rates.values.index([0.05]) == momenta.values.index([0.85]) == 2
    [group] = trainer.optimizers[0].param_groups
    assert (group["max_momentum"], group["base_momentum"]) == (0.95, 0.85)


# a warning of every resume within an epoch; here the data do not matter
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
@pytest.mark.parametrize("stop_after", [3, 5, 8])
@pytest.mark.parametrize(
    "hook",
    [
        CosineAnnealingMomentumUpdaterHook(
            min_momentum=0.1, warmup="linear", warmup_iters=7, warmup_ratio=0.96
        ),
        OneCycleMomentumUpdaterHook(base_momentum=[0.7, 0.8]),
    ],
)
def test_right_after_a_resume(tmp_path: Path, hook: Any, stop_after: int) -> None:
    def module() -> Optimizers:
        return Optimizers([{"kind": "Adam", "lr": [0.1, 0.1], "momentum": [0.9, 0.5]}])

    whole, rest = ValueRecorder("momentum"), ValueRecorder("momentum")
    make_trainer(tmp_path, hook, whole, max_epochs=3).fit(module(), make_loader(5))
    path = tmp_path / "stopped.ckpt"
    first = make_trainer(tmp_path, copy.deepcopy(hook), SaveAndStop(path, stop_after), max_epochs=2)
    first.fit(module(), make_loader(5))
    second = make_trainer(tmp_path, copy.deepcopy(hook), rest, max_epochs=3)
    second.fit(module(), make_loader(5), ckpt_path=path)
    assert rest.values == whole.values[stop_after:]


def test_old_subclass_with_its_own_get_momentum(tmp_path: Path) -> None:
    class Old(MomentumUpdaterHook):
        def __init__(self) -> None:  # as old code does, without super().__init__()
            self.warmup = None

        def get_momentum(self, runner: Any, base_momentum: float) -> float:
            return base_momentum / (runner.epoch + 1)

    recorder, hook = ValueRecorder("momentum"), Old()
    trainer = make_trainer(tmp_path, hook, recorder, max_epochs=2)
    trainer.fit(Optimizers([{"lr": [0.1, 0.1], "momentum": [0.9, 0.5]}]), make_loader(1))
    assert recorder.values == [[0.9, 0.5], [0.45, 0.25]]
    assert hook.base_momentum == [0.9, 0.5]
    assert hook.regular_momentum == [0.45, 0.25]


def test_departure_further_betas_are_kept(tmp_path: Path) -> None:
    class Adan(torch.optim.Adam):
        """An optimizer with three betas, as Adan."""

        def step(self, closure: Any = None) -> Any:
            return closure() if closure is not None else None

    class Module(TinyModule):
        def configure_optimizers(self) -> torch.optim.Optimizer:
            optimizer = Adan(self.parameters())
            optimizer.param_groups[0]["betas"] = (0.98, 0.92, 0.99)
            return optimizer

    trainer = make_trainer(tmp_path, StepMomentumUpdaterHook(step=1), max_epochs=2)
    trainer.fit(Module(), make_loader(1), make_loader(1))
    assert trainer.optimizers[0].param_groups[0]["betas"] == (0.49, 0.92, 0.99)


class Steps(Hook):
    """Counts iterations."""

    count = 0

    def before_train_iter(self, runner: Any) -> None:
        self.count += 1


@pytest.mark.parametrize(
    ("kind", "hook", "when"),
    [
        ("Adam", FixedMomentumUpdaterHook(warmup="linear", warmup_iters=3), "1.0 at iteration 0"),
        ("SGD", FixedMomentumUpdaterHook(warmup="exp", warmup_iters=3), "1.0 at iteration 0"),
        ("SGD", StepMomentumUpdaterHook(step=[1], gamma=1.2), "1.08 at epoch 1"),
        ("Adam", OneCycleMomentumUpdaterHook(max_momentum=1.0), "1.0 at iteration 0"),
        ("Adam", CyclicMomentumUpdaterHook(target_ratio=(1.2, 1.0)), "at iteration 3"),
        ("SGD", LinearAnnealingMomentumUpdaterHook(-0.5, by_epoch=False), "at iteration 6"),
    ],
)
def test_departure_momentum_outside_its_range_is_refused_at_the_start(
    tmp_path: Path, kind: str, hook: Any, when: str
) -> None:
    steps = Steps()
    trainer = make_trainer(tmp_path, hook, steps, max_epochs=2)
    module = Optimizers([{"kind": kind, "lr": [0.1, 0.1], "momentum": [0.5, 0.9]}])
    with pytest.raises(ValueError, match=rf"{kind} \(group \d\) would be .*{when}.*in \[0, 1\)"):
        trainer.fit(module, make_loader(5))
    assert steps.count == 0


def test_departure_a_get_momentum_outside_the_range_is_refused_as_it_is_set(tmp_path: Path) -> None:
    class Rising(MomentumUpdaterHook):
        def get_momentum(self, runner: Any, base_momentum: float) -> float:
            return base_momentum + 0.3 * runner.iter

    steps = Steps()
    trainer = make_trainer(tmp_path, Rising(by_epoch=False), steps)
    with pytest.raises(ValueError, match=r"Adam \(group 1\) would be 1.1 at iteration 2"):
        trainer.fit(
            Optimizers([{"kind": "Adam", "lr": [0.1, 0.1], "momentum": [0.2, 0.5]}]), make_loader(5)
        )
    assert steps.count == 2


@pytest.mark.parametrize("hook", [StepMomentumUpdaterHook(step=1), OneCycleMomentumUpdaterHook()])
def test_departure_an_optimizer_without_momentum_is_named_at_the_start(
    tmp_path: Path, hook: Any
) -> None:
    module = Optimizers([{"name": "g", "lr": [1.0]}, {"name": "d", "kind": "Adagrad", "lr": [1.0]}])
    with pytest.raises(ValueError, match=r"'d': Adagrad \(group 0\) has neither momentum"):
        make_trainer(tmp_path, hook).fit(module, make_loader(2))


def test_departure_only_a_scheduler_that_sets_momenta_is_announced(tmp_path: Path) -> None:
    class Scheduled(TinyModule):
        def __init__(self, cycle_momentum: bool) -> None:
            super().__init__()
            self.cycle_momentum = cycle_momentum

        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [
                torch.optim.lr_scheduler.CyclicLR(
                    optimizer, 0.01, 0.1, cycle_momentum=self.cycle_momentum
                )
            ]

    hook = StepMomentumUpdaterHook(step=1)
    make_trainer(tmp_path, hook).fit(Scheduled(False), make_loader(2), make_loader(1))
    with pytest.warns(UserWarning, match="StepMomentumUpdaterHook and CyclicLR set the momentum"):
        make_trainer(tmp_path, hook).fit(Scheduled(True), make_loader(2), make_loader(1))


def test_counted_in_epochs_where_iterations_are_is_announced(tmp_path: Path) -> None:
    hook = CosineAnnealingMomentumUpdaterHook(min_momentum=0.1)
    adapter = HookAdapter([hook], by_epoch=False)
    with pytest.warns(UserWarning, match=r"SGD \(group 0\) never moves the momentum"):
        make_trainer(tmp_path, adapter, max_steps=3).fit(
            TinyModule(), make_loader(3), make_loader(1)
        )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepMomentumUpdaterHook(step=0), "step must be positive"),
        (lambda: StepMomentumUpdaterHook(1, min_momentum=-1), "min_momentum must be at least 0"),
        (lambda: CosineAnnealingMomentumUpdaterHook(), "either min_momentum or min_momentum_ratio"),
        (lambda: LinearAnnealingMomentumUpdaterHook(0.1, 0.1), "either min_momentum or"),
        (lambda: CyclicMomentumUpdaterHook(by_epoch=True), "by_epoch must be False"),
        (lambda: OneCycleMomentumUpdaterHook(base_momentum="0.8"), "base_momentum must be"),
        (lambda: OneCycleMomentumUpdaterHook(max_momentum=None), "max_momentum must be"),
        (lambda: OneCycleMomentumUpdaterHook(pct_start=-1), "pct_start must be a number between"),
        (lambda: MomentumUpdaterHook(warmup="cubic"), '"cubic" is not a supported type'),
        (lambda: PolyMomentumUpdaterHook(warmup="linear"), "warmup_iters must be an int"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_policy_that_a_subclass_replaces_is_not_judged(tmp_path: Path) -> None:
    class Half(StepMomentumUpdaterHook):
        def get_momentum(self, runner: Any, base_momentum: Any) -> float:
            return 0.5

    hook = Half(step=1, gamma=2.0)  # 1.8 in the second epoch
    trainer = make_trainer(tmp_path, hook, max_epochs=3)
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    assert trainer.optimizers[0].param_groups[0]["momentum"] == 0.5


def test_registered_at_mmcvs_priority_and_pickled() -> None:
    for cls in (
        *(StepMomentumUpdaterHook, CosineAnnealingMomentumUpdaterHook, CyclicMomentumUpdaterHook),
        *(LinearAnnealingMomentumUpdaterHook, OneCycleMomentumUpdaterHook, InvMomentumUpdaterHook),
        *(FixedMomentumUpdaterHook, ExpMomentumUpdaterHook, PolyMomentumUpdaterHook),
    ):
        assert HOOKS.get(cls.__name__) is cls
    hook = OneCycleMomentumUpdaterHook()
    assert HookAdapter([hook]).get_hook_info().splitlines()[1].startswith("(HIGH")
    assert pickle.loads(pickle.dumps(hook)).pct_start == 0.3
