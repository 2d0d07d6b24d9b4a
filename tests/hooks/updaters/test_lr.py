"""Learning rate hooks in real Trainers, against rates recorded from mmcv."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks import HOOKS, Hook, HookAdapter, TrainStepModule, schedules
from lightning_hooks.hooks.updaters.anneal import (
    CosineAnnealingCooldownLrUpdaterHook,
    CosineAnnealingLrUpdaterHook,
    CosineRestartLrUpdaterHook,
    FlatCosineAnnealingLrUpdaterHook,
    LinearAnnealingLrUpdaterHook,
)
from lightning_hooks.hooks.updaters.cyclic import CyclicLrUpdaterHook, OneCycleLrUpdaterHook
from lightning_hooks.hooks.updaters.decay import (
    ExpLrUpdaterHook,
    FixedLrUpdaterHook,
    InvLrUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
)
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from support.golden import recorded
from support.schedule_runs import CASES, Optimizers, SaveAndStop, ValueRecorder, case_of, fit
from support.training import NoValidation, make_loader, make_trainer

LR_CASES = [case for case in CASES if case["key"] == "lr"]


def groups(*lrs: float, optimizers: int = 1) -> Optimizers:
    """Return optimizers with one parameter group for each rate, dealt out in turn."""
    return Optimizers([{"lr": list(lrs[i::optimizers])} for i in range(optimizers)])


# some drawn milestones and periods are longer than the run
@pytest.mark.filterwarnings("ignore:.*UpdaterHook of ")
@pytest.mark.parametrize("index", range(0, len(LR_CASES), 13))
def test_equal_to_mmcv_in_a_real_run_bit_for_bit(tmp_path: Path, index: int) -> None:
    case = LR_CASES[index]
    given = copy.deepcopy(case["hook"])
    assert fit(tmp_path, case) == case["values"]
    assert case["hook"] == given


@pytest.mark.parametrize("name", ["linear/step", "linear/cosine"])
def test_equal_to_mmcv_in_real_training(tmp_path: Path, name: str) -> None:
    golden = recorded("training")
    case = golden["cases"][name]
    hook = dict(case["hooks"]["lr_config"])
    policy = hook.pop("policy")
    hook["type"] = f"{policy[0].upper()}{policy[1:]}LrUpdaterHook"
    rows: list[Any] = []

    class Rows(Hook):
        def before_train_iter(self, runner: Any) -> None:
            rows.append(["before_train_iter", runner.epoch, runner.iter, runner.current_lr()])

        def after_train_iter(self, runner: Any) -> None:
            rows.append(["after_train_iter", runner.epoch, runner.iter, runner.current_lr()])

        def after_val_iter(self, runner: Any) -> None:
            rows.append(["after_val_iter", runner.epoch, runner.iter, runner.current_lr()])

    model = job.make_model(golden["seed"])
    train, val = job.make_data(golden["seed"])
    trainer = make_trainer(
        tmp_path,
        HookAdapter([hook, Rows()]),
        max_epochs=golden["epochs"],
        num_sanity_val_steps=0,
    )
    trainer.fit(TrainStepModule(model, job.make_optimizer(model)), train, val)
    assert rows == [row[:4] for row in case["rows"]]


# a warning of every resume within an epoch; here the data do not matter
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("stop_after", [2, 4, 5, 7, 10])
def test_right_after_a_resume_also_inside_an_epoch(
    tmp_path: Path, by_epoch: bool, stop_after: int
) -> None:
    def hook() -> Any:
        return CosineAnnealingLrUpdaterHook(
            min_lr_ratio=0.01, by_epoch=by_epoch, warmup="linear", warmup_iters=6
        )

    whole, rest = ValueRecorder(), ValueRecorder()
    make_trainer(tmp_path, hook(), whole, max_epochs=4).fit(groups(1.0, 0.5), make_loader(5))
    path = tmp_path / "stopped.ckpt"
    # the resume raises max_epochs; the new value counts
    first = make_trainer(tmp_path, hook(), SaveAndStop(path, stop_after), max_epochs=2)
    first.fit(groups(1.0, 0.5), make_loader(5))
    second = make_trainer(tmp_path, hook(), rest, max_epochs=4)
    second.fit(groups(1.0, 0.5), make_loader(5), ckpt_path=path)
    assert rest.values == whole.values[stop_after:]


def test_follows_a_change_of_max_epochs(tmp_path: Path) -> None:
    class Prolong(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner._max_epochs = 4

    recorder = ValueRecorder()
    hook = CosineAnnealingLrUpdaterHook(min_lr=0.0)
    trainer = make_trainer(tmp_path, hook, Prolong(), recorder, max_epochs=2)
    trainer.fit(groups(1.0), make_loader(1))
    assert [lr for [lr] in recorder.values] == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_dict_of_optimizers(tmp_path: Path) -> None:
    recorder = ValueRecorder()
    hook = StepLrUpdaterHook(step=1, gamma=0.5, warmup="constant", warmup_iters=1)
    trainer = make_trainer(tmp_path, hook, recorder, max_epochs=2)
    trainer.fit(groups(1.0, 2.0, 3.0, optimizers=2), make_loader(2))
    assert hook.base_lr == {"0": [1.0, 3.0], "1": [2.0]}
    assert hook.regular_lr == {"0": [0.5, 1.5], "1": [1.0]}
    assert [lrs["0"] for lrs in recorder.values] == [
        pytest.approx(lrs) for lrs in ([0.1, 0.3], [1, 3], [0.5, 1.5], [0.5, 1.5])
    ]
    assert [lrs["1"] for lrs in recorder.values] == [[0.2], [2.0], [1.0], [1.0]]


def test_old_subclass_with_its_own_get_lr_and_warm_up(tmp_path: Path) -> None:
    class Old(LrUpdaterHook):
        def __init__(self) -> None:  # as old code does, without super().__init__()
            self.warmup, self.warmup_iters = "linear", 2

        def get_lr(self, runner: Any, base_lr: float) -> float:
            return base_lr / (runner.epoch + 1)

        def get_warmup_lr(self, cur_iters: int) -> list[float]:
            return [lr * (cur_iters / self.warmup_iters) ** 2 for lr in self.regular_lr]

    recorder = ValueRecorder()
    make_trainer(tmp_path, Old(), recorder, max_epochs=2).fit(groups(1.0, 2.0), make_loader(3))
    first, second = [[1, 2]], [[0.5, 1]] * 3
    assert recorder.values == [[0, 0], [0.25, 0.5], *first, *second]


def test_policies_follow_the_formulas_in_a_run(tmp_path: Path) -> None:
    def rates(**hook: Any) -> list[float]:
        return [lr for [lr] in fit(tmp_path, case_of(by_epoch=False, **hook))]

    near = lambda values: pytest.approx(values, abs=5e-7)  # noqa: E731
    assert rates(type="FixedLrUpdaterHook") == [1.0] * 10
    assert rates(type="ExpLrUpdaterHook", gamma=0.5) == [0.5**t for t in range(10)]
    assert rates(type="InvLrUpdaterHook", gamma=1.0) == near([1 / (1 + t) for t in range(10)])
    assert rates(type="PolyLrUpdaterHook", power=2, min_lr=0.1) == near(
        [1, 0.829, 0.676, 0.541, 0.424, 0.325, 0.244, 0.181, 0.136, 0.109]
    )
    assert rates(type="LinearAnnealingLrUpdaterHook", min_lr=0) == near(
        [1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1]
    )
    assert rates(type="FlatCosineAnnealingLrUpdaterHook", start_percent=0.5, min_lr=0) == near(
        [1, 1, 1, 1, 1, 1, 0.904508, 0.654508, 0.345492, 0.095492]
    )
    restart = {"periods": [5, 5], "restart_weights": [1, 0.5], "min_lr": 0}
    assert rates(type="CosineRestartLrUpdaterHook", **restart)[5:] == near(
        [0.5, 0.452254, 0.327254, 0.172746, 0.047746]
    )


def test_departure_a_warm_up_epoch_is_as_long_as_what_is_trained(tmp_path: Path) -> None:
    hook = {"warmup": "constant", "warmup_iters": 1, "warmup_by_epoch": True, "warmup_ratio": 0.5}
    case = case_of(type="FixedLrUpdaterHook", **hook)
    assert fit(tmp_path, case, limit_train_batches=2) == [[0.5], [0.5], [1.0], [1.0]]


def test_departure_warmup_by_epoch_works_where_iterations_are_counted(tmp_path: Path) -> None:
    hook = {"warmup": "constant", "warmup_iters": 1, "warmup_by_epoch": True, "warmup_ratio": 0.5}
    case = case_of(type="FixedLrUpdaterHook", by_epoch=False, **hook)
    case.update(runner="IterBasedRunner", max_iters=7)
    assert fit(tmp_path, case) == [[0.5]] * 5 + [[1.0]] * 2


def test_departure_a_rate_that_would_never_move_is_announced(tmp_path: Path) -> None:
    case = case_of(type="StepLrUpdaterHook", step=1)
    case.update(runner="IterBasedRunner")
    with pytest.warns(UserWarning, match="never moves the learning rate"):
        assert fit(tmp_path, case) == [[1.0]] * 10


def test_departure_a_schedule_without_an_end_is_refused_at_the_start(tmp_path: Path) -> None:
    recorder = ValueRecorder()
    trainer = make_trainer(tmp_path, CosineAnnealingLrUpdaterHook(min_lr=0), recorder, max_steps=3)
    with pytest.raises(ValueError, match="needs the length of the run: give max_epochs"):
        trainer.fit(groups(1.0), make_loader(2))
    assert not recorder.values


class Stream(IterableDataset[Any]):
    """Five batches, without a length."""

    def __iter__(self) -> Iterator[Any]:
        return iter(make_loader(5))


def test_a_loader_without_a_length_needs_a_limit_only_for_a_schedule_by_iteration(
    tmp_path: Path,
) -> None:
    def rates(by_epoch: bool, **limits: int) -> list[float]:
        hook, recorder = CosineAnnealingLrUpdaterHook(min_lr=0, by_epoch=by_epoch), ValueRecorder()
        trainer = make_trainer(tmp_path, hook, recorder, max_epochs=2, **limits)
        trainer.fit(groups(1.0), DataLoader(Stream(), batch_size=None))
        return [rate for (rate,) in recorder.values]

    def cosine(position: int, total: int) -> Any:
        return pytest.approx((1 + math.cos(math.pi * position / total)) / 2, abs=1e-15)

    message = r"max_steps .*; limit_train_batches=\.\.\. gives a loader a length, by_epoch=True"
    with pytest.raises(ValueError, match=message):
        rates(by_epoch=False)
    assert rates(by_epoch=False, limit_train_batches=3) == [cosine(i, 6) for i in range(6)]
    assert rates(by_epoch=False, max_steps=7) == [cosine(i, 7) for i in range(7)]
    assert rates(by_epoch=True) == [cosine(0, 2)] * 5 + [cosine(1, 2)] * 5


def test_departure_a_schedule_that_would_fail_later_is_refused_at_the_start(tmp_path: Path) -> None:
    def refused(message: str, **hook: Any) -> None:
        hook.setdefault("by_epoch", False)
        with pytest.raises(ValueError, match=message) as caught:
            fit(tmp_path, case_of(**hook))
        assert "SGD (group 0)" in str(caught.value)
        assert f"in hook {hook['type']}.before_run" in "".join(caught.value.__notes__)

    restart = {"type": "CosineRestartLrUpdaterHook", "restart_weights": [1, 1], "min_lr": 0}
    refused("periods .* add up to 7, the run has 10", periods=[3, 4], **restart)
    one_cycle = {"type": "OneCycleLrUpdaterHook", "max_lr": 1.0}
    refused("gives the first phase no length", pct_start=0.1, **one_cycle)
    refused("max_lr has 3 values", **{**one_cycle, "max_lr": [0.1, 0.2, 0.3]})
    refused("max_lr has no value", **{**one_cycle, "max_lr": {"Adam": 0.1}})
    refused("cyclic_times=11 is more", type="CyclicLrUpdaterHook", cyclic_times=11)
    refused("cool_down_time=10", type="CosineAnnealingCooldownLrUpdaterHook", min_lr=0.1)


@pytest.mark.parametrize(
    "hook",
    [
        {"type": "StepLrUpdaterHook", "step": [2, 5]},
        {"type": "CosineAnnealingLrUpdaterHook", "min_lr": 1.0, "by_epoch": False},
    ],
)
def test_departure_a_schedule_that_never_moves_is_announced(
    tmp_path: Path, hook: dict[str, Any]
) -> None:
    run = "10 iterations" if "by_epoch" in hook else "2 epochs"
    message = (
        rf"{hook['type']} of SGD \(group 0\) never moves the learning rate in this run of {run}"
    )
    with pytest.warns(UserWarning, match=message):
        assert fit(tmp_path, case_of(**hook)) == [[1.0]] * 10


def test_the_message_names_the_optimizers_by_their_names(tmp_path: Path) -> None:
    module = Optimizers([{"name": "g", "lr": [1.0, 2.0]}, {"name": "d", "lr": [1.0]}])
    trainer = make_trainer(tmp_path, StepLrUpdaterHook(step=[9]), max_epochs=2)
    with pytest.warns(UserWarning, match=r"'g': SGD \(groups 0 to 1\), 'd': SGD \(group 0\)"):
        trainer.fit(module, make_loader(2))


def test_total_steps_of_one_cycle_may_be_longer_than_the_run(tmp_path: Path) -> None:
    hook = {"type": "OneCycleLrUpdaterHook", "max_lr": 1.0, "anneal_strategy": "linear"}
    long = fit(tmp_path, case_of(total_steps=20, **hook))
    assert [lr for [lr] in long][:6] == pytest.approx([0.04 + 0.96 * t / 5 for t in range(6)])
    assert long[-1] != pytest.approx([4e-6])
    with pytest.raises(ValueError, match=r"total_steps=9 .* the 10 iterations of the run"):
        fit(tmp_path, case_of(total_steps=9, **hook))


def test_cosine_with_a_cool_down(tmp_path: Path) -> None:
    hook = {"min_lr": 0.1, "cool_down_ratio": 0.5, "cool_down_time": 6, "by_epoch": False}
    rates = fit(tmp_path, case_of(type="CosineAnnealingCooldownLrUpdaterHook", **hook))
    near = [1, 0.868198, 0.55, 0.231802, 0.1, 0.05, 0.05, 0.05, 0.05, 0.05]
    assert [lr for [lr] in rates] == pytest.approx(near, abs=5e-7)


def test_a_second_fit_and_another_length_leave_nothing_behind(tmp_path: Path) -> None:
    hook = OneCycleLrUpdaterHook(max_lr=1.0)
    for epochs in (3, 2):
        recorder = ValueRecorder()
        make_trainer(tmp_path, hook, recorder, max_epochs=epochs).fit(groups(1.0), make_loader(5))
        expected = [schedules.one_cycle(1 / 25, t, 5 * epochs) for t in range(5 * epochs)]
        assert [lr for [lr] in recorder.values] == expected


def test_an_old_subclass_of_a_policy_with_its_own_warm_up(tmp_path: Path) -> None:
    """The subclass is written like mmdetection's policy for YOLOX."""

    class Old(CosineAnnealingLrUpdaterHook):
        def __init__(self, num_last_epochs: int, **kwargs: Any) -> None:
            self.num_last_epochs = num_last_epochs
            super().__init__(**kwargs)

        def get_warmup_lr(self, cur_iters: int) -> Any:
            factor = self.warmup_ratio * pow((cur_iters + 1) / float(self.warmup_iters), 2)
            return [lr * factor for lr in self.base_lr]

        def get_lr(self, runner: Any, base_lr: float) -> float:
            last = len(runner.data_loader) * self.num_last_epochs
            done, total = runner.iter + 1, runner.max_iters
            target = base_lr * self.min_lr_ratio
            if done >= total - last:
                return target
            passed = (done - self.warmup_iters) / (total - self.warmup_iters - last)
            return schedules.annealing_cos(base_lr, target, passed)

    hook = Old(
        num_last_epochs=1,
        by_epoch=False,
        min_lr_ratio=0.1,
        warmup="exp",
        warmup_by_epoch=True,
        warmup_iters=1,
        warmup_ratio=1,
    )
    recorder = ValueRecorder()
    make_trainer(tmp_path, hook, recorder, max_epochs=4).fit(groups(1.0), make_loader(2))
    assert [lr for [lr] in recorder.values] == pytest.approx(
        [0.25, 1.0, 0.868198, 0.55, 0.231802, 0.1, 0.1, 0.1], abs=5e-7
    )


def test_departure_the_ratios_of_cycles_may_be_a_list() -> None:
    as_tuple, as_list = (
        CyclicLrUpdaterHook(target_ratio=(5, 0.5)),
        CyclicLrUpdaterHook(False, [5, 0.5]),
    )
    assert as_list.target_ratio == as_tuple.target_ratio == (5, 0.5)
    assert CyclicLrUpdaterHook(target_ratio=2.0).target_ratio == (2.0, 2e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepLrUpdaterHook(step=0), "step must be positive"),
        (lambda: StepLrUpdaterHook(step=[3, -1]), "step must be positive"),
        (lambda: CosineAnnealingLrUpdaterHook(), "either min_lr or min_lr_ratio"),
        (lambda: CosineAnnealingLrUpdaterHook(0.1, 0.1), "either min_lr or min_lr_ratio"),
        (lambda: FlatCosineAnnealingLrUpdaterHook(2.0, 0.1), "start_percent"),
        (lambda: CosineRestartLrUpdaterHook([1, 2], [1], 0.1), "the same length"),
        (lambda: CosineRestartLrUpdaterHook([1, 0], [1, 1], 0.1), "periods must be positive"),
        (lambda: CyclicLrUpdaterHook(by_epoch=True), "counts iterations"),
        (lambda: CyclicLrUpdaterHook(target_ratio="10"), "target_ratio must be a number or two"),
        (lambda: CyclicLrUpdaterHook(target_ratio=(1, 2, 3)), "target_ratio must be a number or"),
        (lambda: CyclicLrUpdaterHook(cyclic_times=0), "cyclic_times must be an int of at least 1"),
        (lambda: CyclicLrUpdaterHook(step_ratio_up=1.0), r"step_ratio_up must be .* in \[0, 1\)"),
        (lambda: CyclicLrUpdaterHook(anneal_strategy="exp"), 'anneal_strategy must be "cos" or'),
        (lambda: CyclicLrUpdaterHook(gamma=0), r"gamma must be in \(0, 1\]"),
        (lambda: OneCycleLrUpdaterHook("1"), "max_lr must be a number, a list or a dict"),
        (lambda: OneCycleLrUpdaterHook(1.0, total_steps=2.5), "total_steps must be an int"),
        (lambda: OneCycleLrUpdaterHook(1.0, pct_start=1.5), "pct_start must be a number between"),
        (lambda: OneCycleLrUpdaterHook(1.0, by_epoch=True), "by_epoch must be False"),
        (lambda: OneCycleLrUpdaterHook(1.0, base_lr=0.1), "leave base_lr out"),
        (lambda: StepLrUpdaterHook(1, base_lr="0.1"), "base_lr must be a number, a list or a dict"),
        (lambda: CosineAnnealingCooldownLrUpdaterHook(), "either min_lr or min_lr_ratio"),
        (lambda: LrUpdaterHook(warmup="cubic"), '"cubic" is not a supported type'),
        (lambda: LrUpdaterHook(warmup="linear"), "warmup_iters must be an int of at least 1"),
        (lambda: LrUpdaterHook(warmup="exp", warmup_iters=2, warmup_ratio=0), "warmup_ratio"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("policy", "given", "message"),
    [
        ("Step", {"step": 1, "gamma": "0.1"}, "gamma must be a number, got '0.1'"),
        ("Step", {"step": 1, "gamma": -1}, "gamma must be at least 0, got -1"),
        ("Step", {"step": 1, "min_lr": True}, "min_lr must be a number, got True"),
        ("Step", {"step": 1, "by_epoch": "no"}, "by_epoch must be a bool, got 'no'"),
        ("Exp", {"gamma": None}, "gamma must be a number"),
        ("Inv", {"gamma": 0.1, "power": "1"}, "power must be a number"),
        ("Poly", {"power": -1.0}, "power must be at least 0"),
        ("CosineAnnealing", {"min_lr": "1e-4"}, "min_lr must be .* write 1.0e-4, not 1e-4"),
        ("Poly", {"min_lr": -0.1}, "min_lr must be at least 0"),
        ("CosineRestart", {"periods": 5, "min_lr": 0}, "periods must be a list of numbers, got 5"),
        ("CosineRestart", {"periods": ["5"], "min_lr": 0}, r"periods\[0\] must be a number"),
        ("CosineAnnealingCooldown", {"min_lr": 0, "cool_down_time": 1.5}, "cool_down_time must be"),
        ("Cyclic", {"gamma": "1"}, "gamma must be a number"),
        ("OneCycle", {"max_lr": {"a": [1.0, "2"]}}, r"max_lr\['a'\] must be a number, a list or"),
        ("OneCycle", {"max_lr": 1.0, "div_factor": 0}, "div_factor must be above 0, got 0"),
        ("OneCycle", {"max_lr": 1.0, "three_phase": "no"}, "three_phase must be a bool"),
        ("Fixed", {"warmup": "exp", "warmup_iters": 2, "warmup_ratio": "1"}, "warmup_ratio must"),
    ],
)
def test_departure_what_is_no_number_or_bool_is_refused_at_construction(
    policy: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        HOOKS.build({"type": f"{policy}LrUpdaterHook", **given})


@pytest.mark.parametrize("step", ["8", [1.5], None, True])
def test_a_step_of_another_type_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match="step must be an int or a list of ints"):
        StepLrUpdaterHook(step=step)


def test_registered_at_mmcvs_priority_and_pickled() -> None:
    for cls in (
        *(StepLrUpdaterHook, CosineAnnealingLrUpdaterHook, LinearAnnealingLrUpdaterHook),
        *(FixedLrUpdaterHook, ExpLrUpdaterHook, PolyLrUpdaterHook, InvLrUpdaterHook),
        *(FlatCosineAnnealingLrUpdaterHook, CosineRestartLrUpdaterHook, CyclicLrUpdaterHook),
        *(OneCycleLrUpdaterHook, CosineAnnealingCooldownLrUpdaterHook),
    ):
        assert HOOKS.get(cls.__name__) is cls
    hook = StepLrUpdaterHook(step=[8, 11])
    assert HookAdapter([hook]).get_hook_info().splitlines()[1].startswith("(VERY_HIGH")
    assert pickle.loads(pickle.dumps(hook)).step == [8, 11]


@pytest.mark.parametrize(
    "hook",
    [
        CosineAnnealingLrUpdaterHook(min_lr_ratio=0.01, by_epoch=False),
        CosineAnnealingLrUpdaterHook(
            min_lr=1e-5, by_epoch=False, warmup="exp", warmup_iters=5, warmup_ratio=0.3
        ),
        LinearAnnealingLrUpdaterHook(min_lr_ratio=0.03),
        FlatCosineAnnealingLrUpdaterHook(min_lr=1e-5, by_epoch=False),
        CosineRestartLrUpdaterHook(
            periods=[7, 13], restart_weights=[1, 0.7], min_lr=1e-5, by_epoch=False
        ),
        PolyLrUpdaterHook(power=0.9, min_lr=1e-5, by_epoch=False),
        ExpLrUpdaterHook(gamma=0.93, by_epoch=False),
        InvLrUpdaterHook(gamma=0.07, power=0.6, by_epoch=False),
        StepLrUpdaterHook(step=[3, 11], gamma=0.3, by_epoch=False),
        StepLrUpdaterHook(step=3, gamma=0.3, min_lr=0.02, by_epoch=False),
        CyclicLrUpdaterHook(cyclic_times=2, gamma=0.7),
        OneCycleLrUpdaterHook(max_lr=[0.1 / 1.07**i for i in range(40)]),
    ],
    ids=lambda hook: type(hook).__name__,
)
@pytest.mark.filterwarnings("ignore:.*never moves")  # with min_lr above a rate
def test_many_rates_are_set_as_each_alone(hook):
    """The vectorized computation for many groups is bit-equal to the computation for one group."""
    rates = [0.1 / 1.07**i for i in range(40)]
    found = schedules.sample(hook, max_epochs=4, iters_per_epoch=5, base_lr=rates)
    for i, rate in enumerate(rates):
        alone = copy.deepcopy(hook)
        if hasattr(hook, "_max_lr"):
            alone._max_lr = rate
        values = schedules.sample(alone, max_epochs=4, iters_per_epoch=5, base_lr=rate)
        assert [row[i] for row in found] == values
        assert {type(row[i]) for row in found} == {float}


def test_a_policy_of_ones_own_never_sees_many_rates_at_once():
    class Own(CosineAnnealingLrUpdaterHook):
        def get_lr(self, runner: Any, base_lr: float) -> float:
            return min(base_lr, 0.05) / (1 + runner.iter)

    rates = [0.1 / 1.07**i for i in range(40)]
    found = schedules.sample(
        Own(min_lr=0, by_epoch=False), max_epochs=1, iters_per_epoch=2, base_lr=rates
    )
    assert found == [[min(rate, 0.05) / n for rate in rates] for n in (1, 2)]


@pytest.mark.parametrize("adapted", [False, True], ids=["bare", "adapter"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_without_milestones_the_rate_is_that_of_the_optimizer(
    tmp_path: Path, adapted: bool, by_epoch: bool
) -> None:
    """As in mmocr's configs: ``lr_config=dict(policy="step", step=[])``."""
    hook = StepLrUpdaterHook(step=[], by_epoch=by_epoch)
    trainer = make_trainer(tmp_path, HookAdapter([hook]) if adapted else hook)
    trainer.fit(NoValidation(lr=0.25), make_loader(2))
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.25
