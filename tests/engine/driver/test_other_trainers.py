"""Hooks shared by several Trainers, and fits after an interrupted fit."""

from __future__ import annotations

import copy
import gc
import weakref
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    CheckInvalidLossHook,
    EMAHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    StepLrUpdaterHook,
)
from support.foreign_hooks import OldEMA
from support.foreign_hooks import OptimizerHook as OldOptimizerHook
from support.probes import Recorder, SaveAt
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer


def weights(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in module.parameters()])


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_the_callbacks_of_an_earlier_trainer_train_as_the_hooks_do(tmp_path: Path) -> None:
    def train(module: Any, epochs: int, callbacks: Any) -> L.Trainer:
        trainer = make_trainer(tmp_path, max_epochs=epochs, callbacks=callbacks)
        trainer.fit(module, make_loader(6))
        return trainer

    hooks = [StepLrUpdaterHook(step=[1]), GradientCumulativeOptimizerHook(cumulative_iters=3)]
    first = train(TinyModule(), 2, hooks)
    given, taken = TinyModule(), TinyModule()
    train(given, 3, copy.deepcopy(hooks))
    again = train(taken, 3, first.callbacks)  # type: ignore[attr-defined]
    assert torch.equal(weights(given), weights(taken))
    assert again.global_step == 6
    assert again.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.01)


@pytest.mark.parametrize("other", [False, True])
@pytest.mark.parametrize("hook", [EMAHook(), CheckInvalidLossHook()])
def test_a_hook_of_a_running_fit_is_refused_elsewhere(
    hook: Hook, other: bool, tmp_path: Path
) -> None:
    class Evaluates(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            given = trainer.callbacks if other else [hook]
            nested = make_trainer(tmp_path, callbacks=[c for c in given if c is not self])
            nested.validate(copy.deepcopy(pl_module), make_loader(1), verbose=False)

    with pytest.raises(RuntimeError, match=f"{type(hook).__name__} is in a fit of another Trainer"):
        fit(tmp_path, Evaluates(), hook, val=1)
    fit(tmp_path, hook, val=1)  # the fit is over


def test_a_copy_made_within_a_fit_has_all_events(tmp_path: Path) -> None:
    class Copies(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            made.append(copy.deepcopy(hook))

    made: list[Any] = []
    hook = OptimizerHook(grad_clip={"max_norm": 0.01})
    owns = HookAdapter([hook], owns_backward=True)
    fit(tmp_path, owns, callbacks=[Copies()], module=NoValidation)
    of_copy = fit(tmp_path, *made, module=NoValidation).lightning_module
    of_new = fit(
        tmp_path, OptimizerHook(grad_clip={"max_norm": 0.01}), module=NoValidation
    ).lightning_module
    assert torch.equal(weights(of_copy), weights(of_new))


@pytest.mark.parametrize("hooked", [False, True])
def test_a_fit_cut_short_leaves_nothing_to_the_next_one(hooked: bool, tmp_path: Path) -> None:
    class Fails(Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            raise ValueError("the first")

        def on_exception(self, *args: Any) -> None:
            raise RuntimeError("the second")

    def train(module: Any, *callbacks: Callback) -> torch.Tensor:
        make_trainer(tmp_path, callbacks=callbacks, max_epochs=2).fit(module, make_loader(2))
        return weights(module)

    def hooks() -> list[Hook | HookAdapter]:
        return [IterTimerHook(), HookAdapter([OldEMA(), OldOptimizerHook()])]

    module, fresh = NoValidation(), NoValidation()
    given = [{*vars(fresh)}, copy.deepcopy(fresh.state_dict())]
    with pytest.raises(RuntimeError, match="the second"):
        train(module, Fails(), *hooks())
    module.load_state_dict(given[1], strict=False)
    after = hooks() if hooked else []
    assert torch.equal(train(module, *after), train(fresh, *after))
    assert module.automatic_optimization is True
    assert {*vars(module)} - given[0] <= {"hook_buffers", "_hparams"}


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_a_fit_leaves_no_attribute_on_the_module(host: bool, tmp_path: Path) -> None:
    def attributes(*callbacks: Callback) -> set[str]:
        module = NoValidation()
        make_trainer(tmp_path, *callbacks).fit(module, make_loader(2))
        return {*vars(module)}

    hooks = [IterTimerHook(), OptimizerHook(grad_clip={"max_norm": 1.0}), EMAHook()]
    assert attributes(*([HookAdapter(hooks)] if host else hooks)) == attributes()


@pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])
def test_nothing_in_the_process_keeps_a_trainer_or_its_module(host: bool, tmp_path: Path) -> None:
    hooks = [IterTimerHook(), CheckInvalidLossHook(), EMAHook()]
    trainer: Any = fit(tmp_path, *hooks, module=NoValidation, host=host)
    kept = [weakref.ref(trainer), weakref.ref(trainer.lightning_module)]
    kept += map(weakref.ref, trainer.callbacks)
    del trainer, hooks
    gc.collect()
    assert [one() for one in kept if one() is not None] == []


@pytest.mark.parametrize("hook", [IterTimerHook(), OptimizerHook(grad_clip={"max_norm": 1.0})])
def test_a_callback_may_wrap_the_events_of_others(hook: Hook, tmp_path: Path) -> None:
    events = ("on_train_batch_start", "on_train_batch_end", "on_before_backward")

    class Counts(Callback):
        def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
            for callback in trainer.callbacks:
                for event in events if callback is not self else ():
                    setattr(callback, event, counting(getattr(callback, event)))

    def counting(function: Any) -> Any:
        def wrapped(*args: Any) -> Any:
            calls.append(function)
            return function(*args)

        return wrapped

    calls: list[Any] = []
    fit(tmp_path, hook, Counts(), module=NoValidation, batches=4)
    assert len(calls) == 2 * 3 * 4


def test_a_resume_cut_short_leaves_no_counters_to_a_later_trainer(tmp_path: Path) -> None:
    class FailsOnce(Recorder):
        def before_run(self, runner: Any) -> None:
            super().before_run(runner)
            if self.points == ["before_run"]:
                raise RuntimeError("the first")

    path = tmp_path / "a.ckpt"
    fit(tmp_path, SaveAt("on_train_epoch_end", path), module=NoValidation)
    hook = FailsOnce()
    trainer = make_trainer(tmp_path, hook, max_epochs=2)
    with pytest.raises(RuntimeError, match="the first"):
        trainer.fit(NoValidation(), make_loader(4), ckpt_path=path)
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    make_trainer(tmp_path, callbacks=callbacks).fit(NoValidation(), make_loader(4))
    starts = [call[:3] for call in hook.calls if call[0] == "before_run"]
    assert starts == [("before_run", 1, 4), ("before_run", 0, 0)]


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_a_hosted_hook_lent_to_another_trainer_stays_in_its_adapter(tmp_path: Path) -> None:
    hook = EMAHook()
    trainer = fit(tmp_path, HookAdapter([hook]))
    fit(tmp_path, hook)
    trainer.fit_loop.max_epochs = 3
    trainer.fit(TinyModule(), make_loader(4))
    assert trainer.callbacks.count(hook) == 1  # type: ignore[attr-defined]
    assert hook.state_key.endswith("[0]")


@pytest.mark.parametrize("how", ["test", "predict", "configure_callbacks"])
def test_hooks_go_on_after_another_trainer_evaluates_the_module(how: str, tmp_path: Path) -> None:
    class Evaluates(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if how == "configure_callbacks":
                pl_module.configure_callbacks()
                return
            nested = make_trainer(tmp_path)
            options = {"verbose": False} if how == "test" else {"return_predictions": False}
            getattr(nested, how)(pl_module, make_loader(1), **options)
            pl_module.trainer = trainer

    class Predicts(NoValidation):
        def test_step(self, batch: Any) -> Any:
            return self.loss(batch)

        predict_step = test_step

    def train(*callbacks: Any) -> Any:
        ema, steps = EMAHook(momentum=0.1, warm_up=0), HookAdapter([OldOptimizerHook()])
        trainer = fit(tmp_path, *callbacks, ema, steps, module=Predicts, max_epochs=3)
        return ema.steps, weights(trainer.lightning_module)

    (plain, of_plain), (nested, of_nested) = train(), train(Evaluates())
    assert nested == plain > 0
    assert torch.equal(of_nested, of_plain)
