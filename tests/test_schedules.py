"""The pure schedules, against numbers recorded from mmcv and against hand-made lists."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import schedules

GOLDEN = json.loads((Path(__file__).parent / "golden" / "schedules.json").read_text())["cases"]


def policy_of(hook: dict[str, Any]) -> partial[float]:
    """Bind the schedule that a hook's arguments mean."""
    if hook["type"] == "StepLrUpdaterHook":
        return partial(
            schedules.step, step=hook["step"], gamma=hook["gamma"], minimum=hook["min_lr"]
        )
    return partial(schedules.cosine, minimum=hook.get("min_lr"), ratio=hook.get("min_lr_ratio"))


def learning_rates(case: dict[str, Any]) -> list[list[float]]:
    """Compute what the recorder saw, without a trainer."""
    hook, batches = case["hook"], case["iters_per_epoch"]
    policy, by_epoch = policy_of(hook), hook["by_epoch"]
    total = case["max_epochs"] if by_epoch else case["max_iters"]
    length = hook.get("warmup_iters", 0) * (batches if hook.get("warmup_by_epoch") else 1)
    warm_up = partial(
        schedules.warm_up, kind=hook.get("warmup"), ratio=hook.get("warmup_ratio", 0.1)
    )
    return [
        [
            policy(base, t // batches if by_epoch else t, total) * warm_up(t, length)
            for base in case["base_lrs"]
        ]
        for t in range(case["max_iters"])
    ]


def test_equal_to_mmcv_on_recorded_configurations_bit_for_bit() -> None:
    assert len(GOLDEN) == 200
    wrong = [i for i, case in enumerate(GOLDEN) if learning_rates(case) != case["lrs"]]
    assert not wrong


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
    "linear": (
        partial(schedules.linear, minimum=0.0),
        [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
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


def test_a_restart_after_the_last_period_is_refused() -> None:
    with pytest.raises(ValueError, match="after the last of the periods"):
        schedules.cosine_restart(1.0, 10, periods=[5, 5], weights=[1, 1], minimum=0)


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
