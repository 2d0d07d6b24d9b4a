"""Learning rates and momenta by optimizer step, under gradient accumulation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler
from lightning.pytorch.plugins import MixedPrecision
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    FixedLrUpdaterHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    LinearAnnealingLrUpdaterHook,
    LinearAnnealingMomentumUpdaterHook,
    LrUpdaterHook,
    OneCycleLrUpdaterHook,
    PhasesLrUpdaterHook,
    PolyLrUpdaterHook,
    StepLrUpdaterHook,
    StepMomentumUpdaterHook,
    YOLOXLrUpdaterHook,
    register_training_hooks,
    schedules,
)
from support.schedule_runs import ValueRecorder
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]


def line(**kwargs: Any) -> LinearAnnealingLrUpdaterHook:
    """Return a schedule of ``1 - steps done / steps of the run``."""
    return LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False, by_step=True, **kwargs)


def rates(
    tmp_path: Path, *hooks: Any, module: Any = None, batches: int = 5, **kwargs: Any
) -> list[float]:
    """Train, and return the rate of each batch."""
    seen, options = ValueRecorder(), kwargs.pop("adapter", {})
    adapter = HookAdapter([*hooks, (seen, "LOWEST")], **options)
    trainer = make_trainer(tmp_path, adapter, *kwargs.pop("callbacks", []), **kwargs)
    trainer.fit(module or TinyModule(lr=1.0), make_loader(batches))
    return [pytest.approx(rate) for [rate] in seen.values]


def of(*steps: int, total: int) -> list[float]:
    return [1 - step / total for step in steps]


# -- steps by Lightning, hooks and modules -----------------------------------------------------


def test_batches_of_one_step_share_a_rate_and_the_last_of_an_epoch_steps(tmp_path: Path) -> None:
    found = rates(tmp_path, line(), max_epochs=2, accumulate_grad_batches=2)
    assert found == of(0, 0, 1, 1, 2, 3, 3, 4, 4, 5, total=6)
    batches = LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False)
    found = rates(tmp_path, batches, max_epochs=2, accumulate_grad_batches=2)
    assert found == of(*range(10), total=10)


@pytest.mark.parametrize("by_epoch", [True, False])
def test_max_steps_is_the_length_of_the_schedule(tmp_path: Path, by_epoch: bool) -> None:
    found = rates(
        tmp_path, line(), max_steps=4, accumulate_grad_batches=2, adapter={"by_epoch": by_epoch}
    )
    assert found == of(0, 0, 1, 1, 2, 3, 3, total=4)


class Stream(IterableDataset[Any]):
    """Batches without a known number."""

    def __init__(self, batches: int) -> None:
        self.data = make_loader(batches).dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)


@pytest.mark.parametrize(("batches", "told"), [(3, 1), (4, 0), (100, 0)])
def test_a_line_tells_that_a_length_in_iterations_is_unknown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, batches: int, told: int
) -> None:
    hook = LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False)
    trainer = make_trainer(tmp_path, hook, max_steps=6, accumulate_grad_batches=2)
    trainer.fit(TinyModule(), DataLoader(Stream(batches), 2))
    assert caplog.text.count("is known in the last pass only") == told


def test_batches_to_a_step_that_change_with_the_epoch(tmp_path: Path) -> None:
    scheduler = GradientAccumulationScheduler({1: 4})
    found = rates(tmp_path, line(), callbacks=[scheduler], max_epochs=2)
    assert found == of(0, 1, 2, 3, 4, 5, 5, 5, 5, 6, total=7)


@pytest.mark.parametrize(
    ("changes", "steps", "total"), [({0: 3, 1: 1}, 3, 5), ({1: 3, 2: 1}, 9, 11)]
)
def test_max_steps_in_iterations_where_batches_to_a_step_change_with_the_epoch(
    tmp_path: Path, changes: dict[int, int], steps: int, total: int
) -> None:
    batches = LinearAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=False)
    scheduler = GradientAccumulationScheduler(changes)
    found = rates(tmp_path, batches, callbacks=[scheduler], batches=3, max_steps=steps)
    assert found == of(*range(total), total=total)


@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_steps": 6}])
def test_steps_of_a_hook_that_steps_at_every_epochs_end(
    tmp_path: Path, limit: dict[str, int]
) -> None:
    hook = GradientCumulativeOptimizerHook(cumulative_iters=2, by_epoch=True)
    found = rates(tmp_path, line(), hook, **limit)
    assert found == of(0, 0, 1, 1, 2, 3, 3, 4, 4, 5, total=6)


@pytest.mark.filterwarnings("ignore:.*iterations are too few")
@pytest.mark.parametrize("limit", [{"max_epochs": 2}, {"max_steps": 10}])
def test_steps_of_a_hook_go_across_epochs(tmp_path: Path, limit: dict[str, int]) -> None:
    cumulative = GradientCumulativeOptimizerHook(cumulative_iters=4)
    options = {"by_epoch": "max_epochs" in limit}  # counted in iterations, max_steps are iterations
    found = rates(tmp_path, line(), cumulative, adapter=options, **limit)
    assert found == of(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, total=3)


def test_max_steps_of_a_run_in_epochs_are_the_steps_of_a_hook_too(tmp_path: Path) -> None:
    cumulative = GradientCumulativeOptimizerHook(cumulative_iters=2)
    found = rates(tmp_path, line(), cumulative, max_epochs=9, max_steps=3)
    assert found == of(0, 0, 1, 1, 2, 2, total=3)


class Manual(TinyModule):
    """A module with manual optimization that steps after every second batch."""

    automatic_optimization = False

    def __init__(self) -> None:
        super().__init__(lr=1.0)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self.manual_backward(self.loss(batch))
        if batch_idx % 2:
            self.optimizers().step()  # type: ignore[union-attr]


def test_a_module_that_steps_by_itself_needs_max_steps(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs the length of the run: give max_steps, or with"):
        rates(tmp_path, line(), module=Manual(), max_epochs=1)
    found = rates(tmp_path, line(), module=Manual(), batches=6, max_steps=3)
    assert found == of(0, 0, 1, 1, 2, 2, total=3)
    step = StepLrUpdaterHook(step=[2], by_epoch=False, by_step=True)  # needs no length
    found = rates(tmp_path, step, module=Manual(), batches=6)
    assert found == [1, 1, 1, 1, 0.1, 0.1]


@pytest.mark.parametrize(
    ("hook", "end"),
    [
        (PolyLrUpdaterHook(power=0.9, min_lr=0.25, by_epoch=False), 0.25),
        (CosineAnnealingLrUpdaterHook(min_lr=0.5, by_epoch=False), 0.5),
        (PhasesLrUpdaterHook([{"policy": "LinearAnnealing", "min_lr": 0.5}], by_epoch=False), 0.5),
    ],
    ids=["poly", "cosine", "phases"],
)
def test_a_schedule_stays_where_it_ends_if_the_module_makes_fewer_steps(
    hook: Any, end: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = rates(tmp_path, hook, module=Manual(), batches=10, max_steps=4)
    assert found[4:] == [end] * 4
    assert caplog.text.count("stays where it ends: the run goes on after its 4 iterations") == 1


class Overflows(L.LightningModule):
    """A module with infinite gradients in the given batches."""

    def __init__(self, *overflows: int, fused: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.overflows, self.fused = overflows, fused

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return (self.weight * (math.inf if batch_idx in self.overflows else 1.0)).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0, fused=self.fused)


def mixed() -> MixedPrecision:
    return MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))


def test_steps_that_the_scaler_skips_do_not_count(tmp_path: Path) -> None:
    module = Overflows(1, 2)
    found = rates(tmp_path, line(), module=module, plugins=[mixed()])
    assert found == of(0, 1, 1, 1, 2, total=5)
    # a fused optimizer does not tell
    module = Overflows(1, 2, fused=True)
    found = rates(tmp_path, line(), module=module, plugins=[mixed()])
    assert found == of(0, 1, 2, 3, 4, total=5)


def test_skipped_steps_are_known_after_a_resume(tmp_path: Path) -> None:
    hook, seen = line(), ValueRecorder()
    trainer = make_trainer(tmp_path, hook, plugins=[mixed()])
    trainer.fit(Overflows(1, 2), make_loader(5))
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    again = make_trainer(tmp_path, line(), seen, plugins=[mixed()], max_epochs=2)
    again.fit(Overflows(), make_loader(5), ckpt_path=tmp_path / "one.ckpt")
    assert seen.values == [[pytest.approx(1 - step / 10)] for step in range(3, 8)]
    # in another run the same hook begins with the first step
    assert rates(tmp_path, hook)[:2] == of(0, 1, total=5)


# -- position, warm-up and epochs --------------------------------------------------------------


def test_a_warm_up_in_steps_on_a_policy_in_epochs(tmp_path: Path) -> None:
    hook = StepLrUpdaterHook(step=1, warmup="linear", warmup_iters=4, by_step=True)
    found = rates(tmp_path, hook, max_epochs=2, accumulate_grad_batches=2)
    warm = [0.1, 0.1, 0.325, 0.325, 0.55]
    assert found == [*warm, 0.0775, 0.0775, 0.1, 0.1, 0.1]


def test_a_warm_up_of_epochs_takes_their_steps(tmp_path: Path) -> None:
    hook = FixedLrUpdaterHook(warmup="linear", warmup_iters=1, warmup_by_epoch=True, by_step=True)
    found = rates(tmp_path, hook, max_epochs=2, accumulate_grad_batches=2)
    assert found == [0.1, 0.1, 0.4, 0.4, 0.7, 1, 1, 1, 1, 1]


def test_yolox_by_step(tmp_path: Path) -> None:
    hook = YOLOXLrUpdaterHook(1, min_lr=0.0, by_step=True)
    found = rates(tmp_path, hook, batches=4, max_epochs=3, accumulate_grad_batches=2)
    cosine = [schedules.cosine(1.0, t, 4) for t in (1, 1, 2, 2, 3, 3)]
    assert found == [*cosine, *[0.0] * 6]


class OldPolicy(LrUpdaterHook):
    """A policy written for mmcv."""

    def get_lr(self, runner: Any, base_lr: float) -> float:
        runner.asked = True
        return float(base_lr * (1 - runner.iter / runner.max_iters))


def test_an_old_policy_sees_a_runner_that_counts_steps(tmp_path: Path) -> None:
    hook = OldPolicy(by_epoch=False, by_step=True)
    found = rates(tmp_path, hook, max_epochs=2, accumulate_grad_batches=2)
    assert found == of(0, 0, 1, 1, 2, 3, 3, 4, 4, 5, total=6)


def test_momentum_by_step_and_the_step_named_where_it_would_leave_its_range(
    tmp_path: Path,
) -> None:
    hook = StepMomentumUpdaterHook(step=2, by_epoch=False, by_step=True)
    seen = ValueRecorder("momentum")
    trainer = make_trainer(tmp_path, hook, seen, accumulate_grad_batches=2)
    trainer.fit(TinyModule(), make_loader(8))
    assert [value for [value] in seen.values] == [0.9] * 4 + [0.45] * 4
    bad = LinearAnnealingMomentumUpdaterHook(min_momentum=2.0, by_epoch=False, by_step=True)
    trainer = make_trainer(tmp_path, bad, accumulate_grad_batches=2)
    with pytest.raises(ValueError, match=r"SGD \(group 0\) would be 1.\d+ at optimizer step 1"):
        trainer.fit(TinyModule(), make_loader(8))


class SaveAndStop(L.Callback):
    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.fit_loop.total_batch_idx + 1 == self.after:
            trainer.save_checkpoint(self.path)
            trainer.should_stop = True


@pytest.mark.parametrize("stop_after", [3, 4, 5, 7])
def test_right_after_a_resume_also_inside_an_epoch(tmp_path: Path, stop_after: int) -> None:
    def hook() -> Any:
        return CosineAnnealingLrUpdaterHook(
            min_lr=0.0, by_epoch=False, by_step=True, warmup="exp", warmup_iters=4
        )

    def run(*callbacks: Any, ckpt: Path | None = None) -> list[Any]:
        seen = ValueRecorder()
        trainer = make_trainer(
            tmp_path, hook(), seen, *callbacks, max_epochs=4, accumulate_grad_batches=2
        )
        trainer.fit(TinyModule(lr=1.0), make_loader(5), ckpt_path=ckpt)
        return seen.values

    whole, path = run(), tmp_path / "stopped.ckpt"
    run(SaveAndStop(path, stop_after))
    assert run(ckpt=path) == whole[stop_after:]


@pytest.mark.parametrize("kind", ["lightning", "mmcv"])
def test_the_count_goes_on_from_a_file_that_a_hook_resumes(tmp_path: Path, kind: str) -> None:
    class Save(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            runner.save_checkpoint(str(tmp_path), "mmcv")

    class Resume(Hook):
        def before_run(self, runner: Any) -> None:
            runner.resume(str(tmp_path / kind))

    trainer = make_trainer(tmp_path, Save(), accumulate_grad_batches=2)
    trainer.fit(TinyModule(lr=1.0), make_loader(5))
    trainer.save_checkpoint(tmp_path / "lightning")
    found = rates(tmp_path, line(), Resume(), max_epochs=2, accumulate_grad_batches=2)
    assert found == of(3, 3, 4, 4, 5, total=6)


# -- before the run ----------------------------------------------------------------------------


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_sample_shows_the_same(tmp_path: Path, accumulate: int) -> None:
    found = rates(
        tmp_path,
        line(warmup="linear", warmup_iters=3),
        max_epochs=2,
        accumulate_grad_batches=accumulate,
    )
    assert found == schedules.sample(
        line(warmup="linear", warmup_iters=3),
        max_epochs=2,
        iters_per_epoch=5,
        base_lr=1.0,
        accumulate_grad_batches=accumulate,
    )


def test_the_whole_schedule_is_judged_in_steps(tmp_path: Path) -> None:
    short = OneCycleLrUpdaterHook(max_lr=1.0, total_steps=5, by_step=True)
    with pytest.raises(ValueError, match="total_steps=5 must not be less than the 6 optimizer"):
        rates(tmp_path, short, max_epochs=2, accumulate_grad_batches=2)
    late = StepLrUpdaterHook(step=[6], by_epoch=False, by_step=True)
    with pytest.warns(UserWarning, match="never moves the learning rate"):
        rates(tmp_path, late, max_epochs=2, accumulate_grad_batches=2)


def test_from_an_mmcv_config(tmp_path: Path) -> None:
    hooks = register_training_hooks(
        lr_config={"policy": "step", "step": [2], "by_epoch": False, "by_step": True},
        momentum_config={"policy": "step", "step": [2], "by_epoch": False, "by_step": True},
        timer_config=None,
    )
    seen = ValueRecorder()
    trainer = make_trainer(tmp_path, hooks, seen, accumulate_grad_batches=2)
    trainer.fit(TinyModule(lr=1.0), make_loader(6))
    assert [rate for [rate] in seen.values] == [1.0] * 4 + [0.1] * 2


@pytest.mark.parametrize("kind", [StepLrUpdaterHook, StepMomentumUpdaterHook])
def test_bad_arguments_are_refused(kind: Any) -> None:
    with pytest.raises(ValueError, match=r"by_step=True .* give by_epoch=False, or a warmup"):
        kind(step=1, by_step=True)
    with pytest.raises(TypeError, match="by_step must be a bool, got 4"):
        kind(step=1, by_epoch=False, by_step=4)
