"""The schedules without a trainer, against numbers recorded from mmcv and hand-made lists."""

from __future__ import annotations

import copy
import pickle
from functools import partial
from itertools import chain
from typing import Any

import pytest

from lightning_hooks import (
    HOOKS,
    OneCycleMomentumUpdaterHook,
    StepMomentumUpdaterHook,
    schedules,
)
from lightning_hooks.hooks.updaters.anneal import CosineAnnealingLrUpdaterHook
from lightning_hooks.hooks.updaters.cyclic import OneCycleLrUpdaterHook
from lightning_hooks.hooks.updaters.decay import FixedLrUpdaterHook, StepLrUpdaterHook
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from support.golden import recorded

GOLDEN = recorded("schedules")["cases"]


def sampled(case: dict[str, Any]) -> list[list[float]]:
    """Compute the recorded values without a Trainer."""
    bases = {key: {one["name"]: one[key] for one in case["optimizers"]} for key in ("lr",)}
    bases["momentum"] = {one["name"]: one["momentum"] for one in case["optimizers"]}
    by_name = None not in bases["lr"]
    epochs = case["max_epochs"] or 1
    rows = schedules.sample(
        HOOKS.build(case["hook"]),
        max_epochs=epochs,
        iters_per_epoch=case["max_iters"] // epochs,
        base_lr=bases["lr"] if by_name else bases["lr"][None],
        base_momentum=bases["momentum"] if by_name else bases["momentum"][None],
    )
    return [list(chain(*row.values())) for row in rows] if by_name else rows


# some drawn milestones and periods are longer than the run
@pytest.mark.filterwarnings("ignore:.*UpdaterHook of ")
@pytest.mark.parametrize("kind", sorted({case["hook"]["type"] for case in GOLDEN}))
def test_equal_to_mmcv_on_recorded_configurations_bit_for_bit(kind: str) -> None:
    cases = [case for case in GOLDEN if case["hook"]["type"] == kind]
    assert len(cases) >= 36
    given = copy.deepcopy(cases)
    wrong = [case["hook"] for case in cases if sampled(case) != case["values"]]
    assert not wrong
    assert cases == given


def test_the_recorded_configurations_are_of_all_kinds() -> None:
    assert len(GOLDEN) >= 500
    assert len({case["hook"]["type"] for case in GOLDEN}) == 11 + 5
    assert {case["hook"].get("warmup") for case in GOLDEN} == {None, "constant", "linear", "exp"}
    assert any(case["hook"].get("warmup_by_epoch") for case in GOLDEN)
    assert {case["hook"]["by_epoch"] for case in GOLDEN} == {True, False}
    assert {len(case["optimizers"]) for case in GOLDEN} == {1, 2}


# ten iterations of real mmcv from a base of 1, to six digits
TRACES = {
    "poly": (
        partial(schedules.poly, power=2, minimum=0.1),
        [1, 0.829, 0.676, 0.541, 0.424, 0.325, 0.244, 0.181, 0.136, 0.109],
    ),
    "cosine": (
        partial(schedules.cosine, ratio=0.1),
        [1, 0.977975, 0.914058, 0.814503, 0.689058, 0.55, 0.410942, 0.285497, 0.185942, 0.122025],
    ),
    "flat_cosine": (
        partial(schedules.flat_cosine, start=0.5, minimum=0.0),
        [1, 1, 1, 1, 1, 1, 0.904508, 0.654508, 0.345492, 0.095492],
    ),
    "cosine_restart": (
        partial(schedules.cosine_restart, periods=[5, 5], weights=[1, 0.5], minimum=0.0),
        [
            *(1, 0.904508, 0.654508, 0.345492, 0.095492),
            *(0.5, 0.452254, 0.327254, 0.172746, 0.047746),
        ],
    ),
    "cosine_cooldown": (
        partial(schedules.cosine_cooldown, minimum=0.1, cool_down_ratio=0.5, cool_down_time=6),
        [1, 0.868198, 0.55, 0.231802, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05],
    ),
    # worked out by hand from mmdetection's formula: (cos(pi k / 5) + 1) / 2 between 0.1 and 1
    "yolox": (
        partial(schedules.yolox, last=3, first=2, minimum=0.1),
        [
            *(0.914058, 1, 0.914058, 0.689058, 0.410942, 0.185942),
            *(0.1, 0.1, 0.1, 0.1),
        ],
    ),
    "multi_stage": (
        partial(
            schedules.multi_stage,
            values=[0.4, 0.2],
            starts=[1, 6],
            steps=[[2, 4], 4],
            gammas=[0.5, 0.1],
        ),
        [1, 0.4, 0.2, 0.2, 0.1, 0.1, 0.02, 0.02, 0.002, 0.002],
    ),
    "linear": (
        partial(schedules.linear, minimum=0.0),
        [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
    ),
    "cyclic": (
        schedules.cyclic,
        [1, 2.318019, 5.5, 8.681981, 10, 9.330134, 7.500025, 5.00005, 2.500075, 0.669966],
    ),
    "two cycles": (
        partial(schedules.cyclic, target_ratio=(10, 0.1), cyclic_times=2, gamma=0.5),
        [1, 5.5, 10, 7.525, 2.575, 1, 3.25, 5.5, 4.15, 1.45],
    ),
    "one_cycle": (
        lambda base, t, total: schedules.one_cycle(base / 25, t, total),
        [0.04, 0.52, 1, 0.950485, 0.811746, 0.611262, 0.388742, 0.188258, 0.049519, 4e-6],
    ),
    "three phases": (
        lambda base, t, total: schedules.one_cycle(base / 25, t, total, three_phase=True),
        [0.04, 0.52, 1, 0.52, 0.04, 0.036181, 0.026182, 0.013822, 0.003823, 4e-6],
    ),
    "one_cycle_momentum": (
        lambda base, t, total: schedules.one_cycle_momentum((0.95, 0.85), t, total),
        [0.95, 0.9, 0.85, 0.854952, 0.868826, 0.888874, 0.911126, 0.931174, 0.945048, 0.95],
    ),
    "exp": (partial(schedules.exp, gamma=0.5), [0.5**t for t in range(10)]),
    "inv": (partial(schedules.inv, gamma=1, power=2), [1 / (1 + t) ** 2 for t in range(10)]),
    "fixed": (schedules.fixed, [1] * 10),
}


@pytest.mark.parametrize("name", TRACES)
def test_trace(name: str) -> None:
    policy, expected = TRACES[name]
    assert [policy(1.0, t, 10) for t in range(10)] == pytest.approx(expected, abs=5e-7)


def test_warm_up_traces() -> None:
    linear = [schedules.warm_up(t, 4, kind="linear", ratio=0.1) for t in range(6)]
    assert linear == pytest.approx([0.1, 0.325, 0.55, 0.775, 1, 1])
    exp = [schedules.warm_up(t, 4, kind="exp", ratio=0.1) for t in range(6)]
    assert exp == pytest.approx([0.1, 0.177828, 0.316228, 0.562341, 1, 1], abs=5e-7)
    constant = [schedules.warm_up(t, 2, kind="constant", ratio=0.1) for t in range(3)]
    assert constant == [0.1, 0.1, 1]
    assert schedules.warm_up(0, 5, kind=None) == 1


def test_a_warm_up_scales_the_policy_and_does_not_delay_it() -> None:
    hook = StepLrUpdaterHook(step=[1], warmup="linear", warmup_iters=7, warmup_ratio=0.5)
    assert schedules.sample(hook, max_epochs=2, iters_per_epoch=5, base_lr=1.0) == pytest.approx(
        [0.5, 0.571429, 0.642857, 0.714286, 0.785714, 0.085714, 0.092857, 0.1, 0.1, 0.1], abs=5e-7
    )


def test_a_restart_after_the_last_period_is_refused() -> None:
    with pytest.raises(ValueError, match="after the last of the periods"):
        schedules.cosine_restart(1.0, 10, periods=[5, 5], weights=[1, 1], minimum=0)


def test_one_cycle_without_a_way_up_starts_at_the_peak() -> None:
    rates = [schedules.one_cycle(0.1, t, 10, pct_start=0.1, div_factor=10) for t in range(10)]
    assert rates[0] == 1.0
    assert rates == sorted(rates, reverse=True)
    assert schedules.one_cycle(0.1, 12, 10) == schedules.one_cycle(0.1, 9, 10)


def test_bound_schedules_pickle() -> None:
    policy = partial(schedules.step, step=[2], gamma=0.5)
    assert pickle.loads(pickle.dumps(policy))(1.0, 2, 4) == 0.5


@pytest.mark.parametrize(
    "arguments",
    [("cubic", 5, 0.1), ("linear", 0, 0.1), ("exp", 2.5, 0.1), ("linear", 5, 0), ("linear", 5, 2)],
)
def test_bad_warm_up_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="warmup"):
        schedules.check_warm_up(*arguments)


# -- sample ------------------------------------------------------------------------------------


def test_sample_is_of_the_shape_of_its_bases() -> None:
    hook = StepLrUpdaterHook(step=1, gamma=0.5)
    sample = partial(schedules.sample, hook, max_epochs=2, iters_per_epoch=1)
    assert sample(base_lr=1) == [1, 0.5]
    assert sample(base_lr=[1.0, 2.0]) == [[1, 2], [0.5, 1]]
    assert sample(base_lr={"a": 1.0, "b": [2.0]}) == [{"a": 1, "b": [2]}, {"a": 0.5, "b": [1]}]
    momentum = StepMomentumUpdaterHook(step=1)
    assert schedules.sample(momentum, max_epochs=2, iters_per_epoch=1) == [0.9, 0.45]
    one_cycle = OneCycleMomentumUpdaterHook(anneal_strategy="linear", pct_start=0.75)
    rows = schedules.sample(one_cycle, max_epochs=1, iters_per_epoch=4, base_momentum=[0.5, 0.5])
    assert rows == [pytest.approx([m, m]) for m in (0.95, 0.9, 0.85, 0.95)]


def test_sample_leaves_the_hook_as_it_is() -> None:
    hook = FixedLrUpdaterHook(warmup="linear", warmup_iters=1, warmup_by_epoch=True)
    before = copy.deepcopy(vars(hook))
    assert schedules.sample(hook, max_epochs=2, iters_per_epoch=2)[2:] == [0.1, 0.1]
    assert vars(hook) == before


def test_sample_of_an_old_subclass() -> None:
    class Triangle(LrUpdaterHook):
        def get_lr(self, runner: Any, base_lr: float) -> float:
            return base_lr * abs(1 - 2 * runner.iter / runner.max_iters)

    hook = Triangle(by_epoch=False)
    rates = schedules.sample(hook, max_epochs=1, iters_per_epoch=4, base_lr=1.0)
    assert rates == [1, 0.5, 0, 0.5]


def test_sample_refuses_what_the_hook_refuses_at_the_start_of_a_run() -> None:
    hook = OneCycleLrUpdaterHook(max_lr=1.0, pct_start=0.1)
    with pytest.raises(ValueError, match="gives the first phase no length"):
        schedules.sample(hook, max_epochs=2, iters_per_epoch=5)
    with pytest.raises(ValueError, match="max_epochs must be an int of at least 1"):
        schedules.sample(CosineAnnealingLrUpdaterHook(0.0), max_epochs=0, iters_per_epoch=5)
