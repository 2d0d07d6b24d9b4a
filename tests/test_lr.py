"""Learning rate hooks in real Trainers, against rates recorded from mmcv."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import job
import lightning as L
import pytest
import torch
from helpers import make_loader, make_trainer
from lightning.pytorch.callbacks import Callback
from torch import nn

from lightning_hooks import HOOKS, Hook, HookAdapter, TrainStepModule
from lightning_hooks.hooks.lr import LrUpdaterHook
from lightning_hooks.hooks.lr_annealing import (
    CosineAnnealingLrUpdaterHook,
    CosineRestartLrUpdaterHook,
    FlatCosineAnnealingLrUpdaterHook,
    LinearAnnealingLrUpdaterHook,
)
from lightning_hooks.hooks.lr_policies import (
    ExpLrUpdaterHook,
    FixedLrUpdaterHook,
    InvLrUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
)

GOLDEN = Path(__file__).parent / "golden"
CASES = json.loads((GOLDEN / "schedules.json").read_text())["cases"]


class LrRecorder(Hook):
    """Notes every group's rate with which an iteration starts."""

    reads_step = False

    def __init__(self) -> None:
        self.lrs: list[Any] = []

    def before_train_iter(self, runner: Any) -> None:
        self.lrs.append(runner.current_lr())


class Groups(L.LightningModule):
    """One parameter group for each base rate; with several optimizers, one for each."""

    def __init__(self, base_lrs: list[float], optimizers: int = 1) -> None:
        super().__init__()
        self.base_lrs, self.count = base_lrs, optimizers
        self.automatic_optimization = optimizers == 1
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in base_lrs])

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor | None:
        if self.automatic_optimization:
            return sum(self.weights)  # type: ignore[return-value]
        for optimizer in self.optimizers():
            optimizer.step()
        return None

    def configure_optimizers(self) -> Any:
        groups = [{"params": [w], "lr": lr} for w, lr in zip(self.weights, self.base_lrs)]  # noqa: B905
        return [torch.optim.SGD(groups[i :: self.count]) for i in range(self.count)]


def fit(tmp_path: Path, case: dict[str, Any], **kwargs: Any) -> list[list[float]]:
    """Train as the recorder did."""
    recorder = LrRecorder()
    by_epoch = case["runner"] == "EpochBasedRunner"
    adapter = HookAdapter([case["hook"], (recorder, "LOWEST")], by_epoch=by_epoch)
    limit = {"max_epochs": case["max_epochs"]} if by_epoch else {"max_steps": case["max_iters"]}
    trainer = make_trainer(tmp_path, adapter, **limit, **kwargs)
    trainer.fit(Groups(case["base_lrs"]), make_loader(case["iters_per_epoch"]))
    return recorder.lrs


def config(**hook: Any) -> dict[str, Any]:
    """A case of 2 epochs of 5 batches from a rate of 1."""
    case = {"runner": "EpochBasedRunner", "max_epochs": 2, "iters_per_epoch": 5, "base_lrs": [1.0]}
    return {**case, "max_iters": 10, "hook": hook}


@pytest.mark.parametrize("index", range(0, 200, 7))
def test_equal_to_mmcv_in_a_real_run_bit_for_bit(tmp_path: Path, index: int) -> None:
    case = CASES[index]
    given = copy.deepcopy(case["hook"])
    assert fit(tmp_path, case) == case["lrs"]
    assert case["hook"] == given


@pytest.mark.parametrize("name", ["linear/step", "linear/cosine"])
def test_equal_to_mmcv_in_real_training(tmp_path: Path, name: str) -> None:
    golden = json.loads((GOLDEN / "training.json").read_text())
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


class SaveAndStop(Callback):
    """Saves a checkpoint by the end of a batch and ends the run there."""

    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


# said of every resume inside an epoch; here the data do not matter
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

    whole, rest = LrRecorder(), LrRecorder()
    make_trainer(tmp_path, hook(), whole, max_epochs=4).fit(Groups([1.0, 0.5]), make_loader(5))
    path = tmp_path / "stopped.ckpt"
    # max_epochs is raised by the resume: what counts is the new one
    first = make_trainer(tmp_path, hook(), SaveAndStop(path, stop_after), max_epochs=2)
    first.fit(Groups([1.0, 0.5]), make_loader(5))
    second = make_trainer(tmp_path, hook(), rest, max_epochs=4)
    second.fit(Groups([1.0, 0.5]), make_loader(5), ckpt_path=path)
    assert rest.lrs == whole.lrs[stop_after:]


def test_follows_a_change_of_max_epochs(tmp_path: Path) -> None:
    class Prolong(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner._max_epochs = 4

    recorder = LrRecorder()
    hook = CosineAnnealingLrUpdaterHook(min_lr=0.0)
    trainer = make_trainer(tmp_path, hook, Prolong(), recorder, max_epochs=2)
    trainer.fit(Groups([1.0]), make_loader(1))
    assert [lr for [lr] in recorder.lrs] == pytest.approx([1, 0.853553, 0.5, 0.146447], abs=1e-6)


def test_dict_of_optimizers(tmp_path: Path) -> None:
    recorder = LrRecorder()
    hook = StepLrUpdaterHook(step=1, gamma=0.5, warmup="constant", warmup_iters=1)
    trainer = make_trainer(tmp_path, hook, recorder, max_epochs=2)
    trainer.fit(Groups([1.0, 2.0, 3.0], optimizers=2), make_loader(2))
    assert hook.base_lr == {"0": [1.0, 3.0], "1": [2.0]}
    assert hook.regular_lr == {"0": [0.5, 1.5], "1": [1.0]}
    assert [lrs["0"] for lrs in recorder.lrs] == [
        pytest.approx(lrs) for lrs in ([0.1, 0.3], [1, 3], [0.5, 1.5], [0.5, 1.5])
    ]
    assert [lrs["1"] for lrs in recorder.lrs] == [[0.2], [2.0], [1.0], [1.0]]


def test_old_subclass_with_its_own_get_lr_and_warm_up(tmp_path: Path) -> None:
    class Old(LrUpdaterHook):
        def __init__(self) -> None:  # as old code does, without super().__init__()
            self.warmup, self.warmup_iters = "linear", 2

        def get_lr(self, runner: Any, base_lr: float) -> float:
            return base_lr / (runner.epoch + 1)

        def get_warmup_lr(self, cur_iters: int) -> list[float]:
            return [lr * (cur_iters / self.warmup_iters) ** 2 for lr in self.regular_lr]

    recorder = LrRecorder()
    make_trainer(tmp_path, Old(), recorder, max_epochs=2).fit(Groups([1.0, 2.0]), make_loader(3))
    first, second = [[1, 2]], [[0.5, 1]] * 3
    assert recorder.lrs == [[0, 0], [0.25, 0.5], *first, *second]


def test_policies_follow_the_formulas_in_a_run(tmp_path: Path) -> None:
    def rates(**hook: Any) -> list[float]:
        return [lr for [lr] in fit(tmp_path, config(by_epoch=False, **hook))]

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
    case = config(type="FixedLrUpdaterHook", **hook)
    assert fit(tmp_path, case, limit_train_batches=2) == [[0.5], [0.5], [1.0], [1.0]]


def test_departure_warmup_by_epoch_works_where_iterations_are_counted(tmp_path: Path) -> None:
    hook = {"warmup": "constant", "warmup_iters": 1, "warmup_by_epoch": True, "warmup_ratio": 0.5}
    case = config(type="FixedLrUpdaterHook", by_epoch=False, **hook)
    case.update(runner="IterBasedRunner", max_iters=7)
    assert fit(tmp_path, case) == [[0.5]] * 5 + [[1.0]] * 2


def test_departure_a_rate_that_would_never_move_is_announced(tmp_path: Path) -> None:
    case = config(type="StepLrUpdaterHook", step=1)
    case.update(runner="IterBasedRunner")
    with pytest.warns(UserWarning, match="never moves the learning rate"):
        assert fit(tmp_path, case) == [[1.0]] * 10


def test_a_scheduler_of_the_module_beside_the_hook_is_announced(tmp_path: Path) -> None:
    class Scheduled(Groups):
        def configure_optimizers(self) -> Any:
            optimizers = super().configure_optimizers()
            return optimizers, [torch.optim.lr_scheduler.ExponentialLR(optimizers[0], 0.9)]

    trainer = make_trainer(tmp_path, StepLrUpdaterHook(step=1))
    with pytest.warns(UserWarning, match=r"ExponentialLR of SGD.*StepLrUpdaterHook both set"):
        trainer.fit(Scheduled([1.0]), make_loader(2))


def test_a_schedule_without_an_end_is_refused_at_the_start(tmp_path: Path) -> None:
    recorder = LrRecorder()
    trainer = make_trainer(tmp_path, CosineAnnealingLrUpdaterHook(min_lr=0), recorder, max_steps=3)
    with pytest.raises(ValueError, match="needs the length of the run: give max_epochs"):
        trainer.fit(Groups([1.0]), make_loader(2))
    assert not recorder.lrs


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StepLrUpdaterHook(step=0), "step must be positive"),
        (lambda: StepLrUpdaterHook(step=[3, -1]), "step must be positive"),
        (lambda: CosineAnnealingLrUpdaterHook(), "either min_lr or min_lr_ratio"),
        (lambda: CosineAnnealingLrUpdaterHook(0.1, 0.1), "either min_lr or min_lr_ratio"),
        (lambda: FlatCosineAnnealingLrUpdaterHook(2.0, 0.1), "start_percent"),
        (lambda: CosineRestartLrUpdaterHook([1, 2], [1], 0.1), "the same length"),
        (lambda: LrUpdaterHook(warmup="cubic"), '"cubic" is not a supported type'),
        (lambda: LrUpdaterHook(warmup="linear"), "warmup_iters must be an int of at least 1"),
        (lambda: LrUpdaterHook(warmup="exp", warmup_iters=2, warmup_ratio=0), "warmup_ratio"),
    ],
)
def test_bad_arguments_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("step", ["8", [1.5], None, True])
def test_a_step_of_another_type_is_refused(step: Any) -> None:
    with pytest.raises(TypeError, match="step must be an int or a list of ints"):
        StepLrUpdaterHook(step=step)


def test_registered_at_mmcvs_priority_and_pickled() -> None:
    for cls in (
        *(StepLrUpdaterHook, CosineAnnealingLrUpdaterHook, LinearAnnealingLrUpdaterHook),
        *(FixedLrUpdaterHook, ExpLrUpdaterHook, PolyLrUpdaterHook, InvLrUpdaterHook),
        *(FlatCosineAnnealingLrUpdaterHook, CosineRestartLrUpdaterHook),
    ):
        assert HOOKS.get(cls.__name__) is cls
    hook = StepLrUpdaterHook(step=[8, 11])
    assert HookAdapter([hook]).get_hook_info().splitlines()[1].startswith("(VERY_HIGH")
    assert pickle.loads(pickle.dumps(hook)).step == [8, 11]
