"""Phases, shares of the run, custom lengths and the final decay, without a Trainer."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_hooks import (
    HOOKS,
    CosineAnnealingLrUpdaterHook,
    CosineAnnealingMomentumUpdaterHook,
    CosineRestartLrUpdaterHook,
    CyclicLrUpdaterHook,
    ExpLrUpdaterHook,
    FieldUpdaterHook,
    FixedLrUpdaterHook,
    LinearAnnealingLrUpdaterHook,
    LrUpdaterHook,
    OneCycleLrUpdaterHook,
    PhasesLrUpdaterHook,
    PhasesMomentumUpdaterHook,
    REXLrUpdaterHook,
    StepLrUpdaterHook,
    WSDLrUpdaterHook,
    YOLOXLrUpdaterHook,
    schedules,
)


def rates(hook: Any, epochs: int = 2, batches: int = 5, **options: Any) -> list[Any]:
    """Return the rates of a run, from a base of 1."""
    given = {"base_lr": 1.0, "base_momentum": 0.8, **options}
    return schedules.sample(hook, max_epochs=epochs, iters_per_epoch=batches, **given)


def by_iter(*phases: dict[str, Any], **options: Any) -> PhasesLrUpdaterHook:
    return PhasesLrUpdaterHook(list(phases), by_epoch=False, **options)


# -- phases ------------------------------------------------------------------------------------

COSINE = {"policy": "CosineAnnealing", "min_lr_ratio": 0.5}


def test_a_phase_is_the_policy_over_its_window() -> None:
    found = rates(by_iter({"policy": "fixed", "length": 4}, COSINE))
    window = rates(CosineAnnealingLrUpdaterHook(min_lr=0.5, by_epoch=False), 1, 6)
    assert found == [1.0] * 4 + window


@pytest.mark.parametrize(
    ("second", "start"), [({}, 0.5), ({"restart": True}, 1.0)], ids=["reached", "restart"]
)
def test_a_phase_starts_from_the_value_reached_or_the_base(second: Any, start: float) -> None:
    hook = by_iter({**COSINE, "length": 4}, {"policy": "exp", "gamma": 0.5, **second})
    assert rates(hook)[4:7] == [start, start / 2, start / 4]


def test_lengths_are_counts_or_shares_and_the_last_is_the_rest() -> None:
    def borders(*lengths: Any, epochs: int = 4, **options: Any) -> list[int]:
        # each phase halves the final value of the previous phase
        phases = [{"policy": "step", "step": 1000, "length": n} for n in lengths]
        hook = PhasesLrUpdaterHook(phases, **options)
        return schedules.ends_of_phases([phase.length for phase in hook.windows], epochs * 5)

    assert borders(3, 7, None, by_epoch=False) == [3, 10, 20]
    assert borders(0.1, 0.7, 0.2, by_epoch=False) == [2, 16, 20]
    assert borders(3, 0.25, None, by_epoch=False) == [3, 8, 20]
    thirds = [1 / 3] * 3
    assert schedules.ends_of_phases(thirds, 10) == [3, 7, 10]


def test_one_cycle_in_a_phase_is_that_of_a_run_of_its_own() -> None:
    cycle = {"policy": "OneCycle", "max_lr": 2.0, "div_factor": 4.0}
    alone = rates(OneCycleLrUpdaterHook(max_lr=2.0, div_factor=4.0), 1, 6)
    hook = by_iter({"policy": "fixed", "length": 2}, {**cycle, "length": 6}, {"policy": "fixed"})
    *both, after, _ = rates(hook)
    assert both == [1.0, 1.0, *alone]
    assert after == pytest.approx(2.0 / 4.0 / 1e4)  # the last rate of the cycle
    momenta = {"policy": "OneCycle", "base_momentum": 0.5, "max_momentum": 0.9}
    phases = [{"policy": "fixed", "length": 4}, momenta]
    found = rates(PhasesMomentumUpdaterHook(phases, by_epoch=False))
    assert (found[:5], min(found[4:])) == ([0.8] * 4 + [0.9], pytest.approx(0.5, abs=0.05))


def test_phases_by_epoch_count_epochs() -> None:
    hook = PhasesLrUpdaterHook([{"policy": "fixed", "length": 1}, {"policy": "exp", "gamma": 0.5}])
    assert rates(hook, 4, 2) == [1, 1, 1, 1, 0.5, 0.5, 0.25, 0.25]


def test_a_warm_up_scales_all_phases() -> None:
    warm_up = {"warmup": "linear", "warmup_iters": 0.4, "warmup_ratio": 0.5}
    found = rates(by_iter({"policy": "fixed", "length": 2}, COSINE, **warm_up))
    plain = rates(by_iter({"policy": "fixed", "length": 2}, COSINE))
    factors = [0.5, 0.625, 0.75, 0.875, *[1.0] * 6]
    assert found == [rate * factor for rate, factor in zip(plain, factors, strict=True)]


def test_each_group_has_its_own_base() -> None:
    found = rates(by_iter({**COSINE, "length": 5}, COSINE), base_lr=[1.0, 0.1])
    assert [row[1] for row in found] == pytest.approx([row[0] / 10 for row in found])


def test_phases_of_phases() -> None:
    inner = {"policy": "phases", "phases": [{"policy": "fixed", "length": 2}, COSINE], "length": 6}
    found = rates(by_iter(inner, {"policy": "fixed"}))
    assert (
        found
        == rates(by_iter({"policy": "fixed", "length": 2}, {**COSINE, "length": 4}, inner))[:6]
        + [0.5] * 4
    )


def test_phases_of_momenta() -> None:
    phases = [
        {"policy": "fixed", "length": 5},
        {"policy": "LinearAnnealing", "min_momentum": 0.3},
    ]
    found = rates(PhasesMomentumUpdaterHook(phases, by_epoch=False))
    assert found == pytest.approx([0.8] * 5 + [0.8, 0.7, 0.6, 0.5, 0.4])


def test_a_policy_of_the_users_own() -> None:
    @HOOKS.register_module(force=True)
    class TriangleLrUpdaterHook(LrUpdaterHook):
        def get_lr(self, runner: Any, base_lr: float) -> float:
            return base_lr * abs(1 - 2 * runner.iter / runner._max_iters)

    hook = by_iter({"policy": "triangle", "length": 4}, {"policy": "triangle", "length": 6})
    assert rates(hook) == pytest.approx([1, 0.5, 0, 0.5, 1, 2 / 3, 1 / 3, 0, 1 / 3, 2 / 3])


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        ([], "at least one phase"),
        ([{"length": 1}], r'phases\[0\] needs the key "policy"'),
        ([{"policy": "fixd"}], r"phases\[0\]: unknown policy 'fixd'; did you mean 'Fixed'"),
        ([{"policy": "fixed"}, {"policy": "fixed"}], r"phases\[0\] needs the key \"length\", got"),
        ([{"policy": "fixed", "length": 0}], r"phases\[0\]\['length'\] must be an int of at least"),
        ([{"policy": "fixed", "length": 1.5}], r"in \(0, 1\], got 1.5"),
        ([{"policy": "fixed", "length": 0.5}] * 3, r"add up to 1.5, not to 1"),
        ([{"policy": "fixed", "length": 0.5}], r"add up to 0.5, not to 1; the last length may"),
        ([{"policy": "OneCycle", "max_lr": [1.0, 2.0]}], "has a bases_of of its own"),
        ([{"policy": "YOLOX", "num_last_epochs": 1, "min_lr": 0}], "has a before_run of its own"),
        ([{**COSINE, "warmup": "linear"}], "warmup is for the whole schedule"),
    ],
)
def test_wrong_phases_are_refused(phases: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        by_iter(*phases)


def test_phases_are_checked_against_the_run() -> None:
    with pytest.raises(ValueError, match=r"end after 8 of 10 iterations: they must reach the end"):
        rates(by_iter({"policy": "fixed", "length": 5}, {**COSINE, "length": 3}))
    with pytest.warns(UserWarning, match=r"phases\[1\], 'CosineAnnealing', never comes"):
        rates(by_iter({"policy": "exp", "gamma": 0.5, "length": 10}, COSINE))
    restarts = {"policy": "CosineRestart", "periods": [2, 2], "restart_weights": [1, 1]}
    with pytest.raises(ValueError, match=r"phases\[0\]: the periods \[2, 2\] add up to 4"):
        rates(by_iter({**restarts, "min_lr": 0, "length": 5}, COSINE))


# -- the decay at the end ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "decay"),
    [
        ("linear", [1, 0.775, 0.55, 0.325]),
        ("cosine", [1, 0.868198, 0.55, 0.231802]),
        ("1-sqrt", [1, 0.55, 0.363604, 0.220577]),
    ],
)
@pytest.mark.parametrize("length", [4, 0.4])
def test_a_decay_at_the_end(shape: str, decay: list[float], length: float) -> None:
    hook = WSDLrUpdaterHook(decay=length, shape=shape, min_lr_ratio=0.1)
    assert rates(hook) == pytest.approx([1] * 6 + decay, abs=1e-6)


def test_a_decay_by_epoch_and_after_a_warm_up() -> None:
    assert rates(WSDLrUpdaterHook(decay=2, by_epoch=True), 4, 1) == [1, 1, 1, 0.5]
    hook = WSDLrUpdaterHook(decay=0.5, warmup="linear", warmup_iters=0.2, warmup_ratio=0.5)
    assert rates(hook)[:3] == [0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    "arguments", [{"decay": 0}, {"decay": 1.5}, {"shape": "cosin"}, {"min_lr_ratio": 2}]
)
def test_a_wrong_decay_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        WSDLrUpdaterHook(**arguments)
    with pytest.raises(ValueError, match="decay=11 is longer than the run, which has 10"):
        rates(WSDLrUpdaterHook(decay=11))


# -- shares and custom lengths -----------------------------------------------------------------


@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_warm_up_of_a_share_of_the_run(by_epoch: bool) -> None:
    def hook(length: float) -> Any:
        return CosineAnnealingLrUpdaterHook(
            min_lr=0, by_epoch=by_epoch, warmup="exp", warmup_iters=length
        )

    assert rates(hook(0.3)) == rates(hook(3))
    momentum = CosineAnnealingMomentumUpdaterHook(0.5, warmup="linear", warmup_iters=0.3)
    same = CosineAnnealingMomentumUpdaterHook(0.5, warmup="linear", warmup_iters=3)
    assert rates(momentum) == rates(same)


POLICIES = {
    "cosine": lambda **k: CosineAnnealingLrUpdaterHook(min_lr=0.1, **k),
    "line": lambda **k: LinearAnnealingLrUpdaterHook(min_lr=0.1, **k),
    "restarts": lambda **k: CosineRestartLrUpdaterHook([4, 4], [1, 1], min_lr=0.1, **k),
    "cycles": lambda **k: CyclicLrUpdaterHook(target_ratio=(2, 0.1), cyclic_times=2, **k),
    "one cycle": lambda **k: OneCycleLrUpdaterHook(max_lr=1.0, **k),
    "exp": lambda **k: ExpLrUpdaterHook(gamma=0.5, **k),
    "step": lambda **k: StepLrUpdaterHook([2, 5], **k),
    "REX": lambda **k: REXLrUpdaterHook(min_lr=0.1, **k),
    "phases": lambda **k: PhasesLrUpdaterHook(
        [{"policy": "fixed", "length": 0.5}, {"policy": "exp", "gamma": 0.5}], **k
    ),
}
LAST = {"one cycle": 1 / 25 / 1e4, "exp": 0.5**8, "step": 0.01, "phases": 0.5**4}


@pytest.mark.parametrize("total", [8, 0.5])
@pytest.mark.parametrize("name", POLICIES)
def test_a_length_of_its_own_and_then_the_last_value(name: str, total: float) -> None:
    found = rates(POLICIES[name](by_epoch=False, total=total), 2, 8)
    assert found[:8] == rates(POLICIES[name](by_epoch=False), 1, 8)
    assert found[8:] == pytest.approx([LAST.get(name, 0.1)] * 8)


def test_a_length_of_its_own_by_epoch_and_of_an_old_policy() -> None:
    assert rates(LinearAnnealingLrUpdaterHook(min_lr=0, total=2), 4, 1) == [1, 0.5, 0, 0]

    class Old(LrUpdaterHook):
        def get_lr(self, runner: Any, base_lr: float) -> float:
            return base_lr * (1 - runner.iter / runner.max_iters)

    assert rates(Old(by_epoch=False, total=4), 1, 6) == [1, 0.75, 0.5, 0.25, 0, 0]

    class Double(LinearAnnealingLrUpdaterHook):
        def get_lr(self, runner: Any, base_lr: float) -> float:
            return 2 * super().get_lr(runner, base_lr)

    for total in (4, 0.5):
        hook = Double(min_lr=0, by_epoch=False, total=total)
        assert rates(hook, 1, 8) == [2, 1.5, 1, 0.5, 0, 0, 0, 0]
    warm_up = {"warmup": "constant", "warmup_iters": 3, "warmup_ratio": 0.5}
    hook = LinearAnnealingLrUpdaterHook(min_lr=0.5, by_epoch=False, total=2, **warm_up)
    assert rates(hook, 1, 4) == [0.5, 0.375, 0.25, 0.5]


@pytest.mark.parametrize("total", [0, 1.5, True, "8"])
def test_a_wrong_length_is_refused(total: Any) -> None:
    with pytest.raises(ValueError, match="total"):
        FixedLrUpdaterHook(total=total)


# -- fields ------------------------------------------------------------------------------------


def test_a_field_is_set_as_a_rate_would_be() -> None:
    given: dict[str, Any] = {"by_epoch": False, "warmup": "linear", "warmup_iters": 2}
    field = FieldUpdaterHook("weight_decay", policy="CosineAnnealing", end=0.4, **given)
    found = rates(field, fields={"weight_decay": [1.0, 0.0]})
    rate = rates(CosineAnnealingLrUpdaterHook(min_lr=0.4, **given))
    assert [row[0] for row in found] == rate
    assert {row[1] for row in found} == {0.0}


def test_groups_with_zero_are_set_if_asked_for() -> None:
    field = FieldUpdaterHook("weight_decay", "LinearAnnealing", end=0.5, include_zeros=True)
    assert rates(field, 2, 1, fields={"weight_decay": 0.0}) == [0, 0.25]


def test_a_field_inside_of_a_tuple_and_in_phases() -> None:
    phases = [{"policy": "fixed", "length": 0.5}, {"policy": "LinearAnnealing", "end": 0.9}]
    field = FieldUpdaterHook("betas.1", policy="phases", phases=phases)
    assert rates(field, 4, 1, fields={"betas.1": 0.8}) == pytest.approx([0.8, 0.8, 0.8, 0.85])
    wsd = FieldUpdaterHook("eps", policy="WSD", decay=2)
    assert rates(wsd, 4, 1, fields={"eps": 1.0}) == [1, 1, 1, 0.5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("lr", "step"), r"lr has hooks of its own: write stepLrUpdaterHook"),
        (("betas.x", "fixed"), r'a key and a place as "betas.1"'),
    ],
)
def test_a_wrong_field_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FieldUpdaterHook(*arguments)


def test_a_field_needs_a_policy_with_one_base_for_all_groups() -> None:
    with pytest.raises(ValueError, match="the policy of eps: 'OneCycle' cannot be part"):
        FieldUpdaterHook("eps", "OneCycle", by_epoch=False, max_lr=[1.0, 2.0])


def test_a_field_needs_a_value_for_its_preview_and_a_valid_end() -> None:
    with pytest.raises(ValueError, match=r"give fields=\{'eps': ...\}"):
        rates(FieldUpdaterHook("eps", "fixed"))
    high = FieldUpdaterHook("betas.1", "LinearAnnealing", end=2.0, by_epoch=False)
    with pytest.raises(ValueError, match=r"betas.1 of .* must be in \[0, 1\)"):
        rates(high, fields={"betas.1": 0.5})


def test_yolox_keeps_its_own_ways() -> None:
    hook = YOLOXLrUpdaterHook(num_last_epochs=1, min_lr=0.1, total=8)
    assert rates(hook, 2, 5)[-3:] == [0.1] * 3
