"""Events at the start and end of a batch, beside the calls of hooks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.profilers import SimpleProfiler

from lightning_hooks import (
    CheckInvalidLossHook,
    EMAHook,
    Hook,
    HookAdapter,
    TextLoggerHook,
    TrainStepModule,
)
from support.training import TinyModule, make_loader, make_trainer


class After(Hook):
    """A hook that calls the given function after each training iteration."""

    def __init__(self, do: Any = lambda runner: None) -> None:
        self.do = do

    def after_train_iter(self, runner: Any) -> None:
        self.do(runner)


def test_an_error_names_its_hook_also_where_two_share_a_function(tmp_path: Path) -> None:
    def shared(runner: Any) -> None:
        calls.append(runner.iter)
        if len(calls) == 4:
            raise ValueError("now")

    class One: ...

    class Two: ...

    calls: list[int] = []
    hooks = [One(), Two()]
    for hook in hooks:
        hook.after_train_iter = shared  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="now") as caught:
        make_trainer(tmp_path, HookAdapter(hooks)).fit(TinyModule(), make_loader(), make_loader(1))
    assert calls == [0, 0, 1, 1]
    assert "Two.after_train_iter" in caught.value.__notes__[0]


def test_an_optimizer_assigned_as_the_epoch_begins_makes_its_first_step(tmp_path: Path) -> None:
    class Replace(After):
        def on_train_epoch_start(self, trainer: L.Trainer, pl_module: Any) -> None:
            runner = self.runner
            runner.optimizer = torch.optim.SGD(pl_module.parameters(), lr=0.0)

        def before_run(self, runner: Any) -> None:
            self.runner = runner

    module = TinyModule()
    before = module.net.weight.clone()
    make_trainer(tmp_path, Replace(), max_epochs=2).fit(module, make_loader(), make_loader(1))
    assert torch.equal(module.net.weight, before)


def test_a_hooks_wish_to_stop_stands_against_who_takes_it_back(tmp_path: Path) -> None:
    class GoOn(Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
            if trainer.global_step == 1:
                trainer.should_stop = False

    def stop(runner: Any) -> None:
        if runner.iter == 0:
            runner.should_stop = True

    trainer = make_trainer(tmp_path, After(stop), GoOn(), min_epochs=0, min_steps=2)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    assert trainer.global_step == 2


def test_a_batch_that_a_hook_replaces_in_validation_is_there_afterwards(tmp_path: Path) -> None:
    class Replace(Hook):
        def before_val_iter(self, runner: Any) -> None:
            runner.data_batch = "mine"

        def after_val_iter(self, runner: Any) -> None:
            seen.append(runner.data_batch)

        def after_val_epoch(self, runner: Any) -> None:
            seen.append(hasattr(runner, "data_batch"))

    seen: list[Any] = []
    trainer = make_trainer(tmp_path, Replace(), num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    assert seen == ["mine", False]


def test_a_file_written_before_the_batch_has_ended_for_hooks_finds_its_batch(
    tmp_path: Path,
) -> None:
    class Early(Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            trainer.save_checkpoint(tmp_path / "early.ckpt")

    hook = CheckInvalidLossHook(dump_dir=str(tmp_path / "dumped"))
    make_trainer(tmp_path, Early(), hook).fit(TinyModule(), make_loader(), make_loader(1))
    assert (tmp_path / "early.ckpt").exists()


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_of_the_users_classes_and_profiler_is_assigned(tmp_path: Path, fails: bool) -> None:
    class Module(TinyModule): ...

    def do(runner: Any) -> None:
        during.append((dict(vars(Module)), "profile" in vars(runner.trainer.profiler)))
        if fails:
            raise ValueError("now")

    during: list[Any] = []
    module, before = Module(), dict(vars(Module))
    trainer = make_trainer(tmp_path, After(do))
    with pytest.raises(ValueError, match="now") if fails else contextlib.nullcontext():
        trainer.fit(module, make_loader(), make_loader(1))
    assert during[0] == (before, False)


def test_a_class_pickled_by_value_in_a_fit_loads_without_this_package(tmp_path: Path) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")

    class Module(TinyModule): ...

    found: list[bytes] = []
    hooks = [EMAHook(), After(lambda runner: found.append(cloudpickle.dumps(Module)))]
    make_trainer(tmp_path, HookAdapter(hooks)).fit(Module(), make_loader(), make_loader(1))
    assert not any(b"lightning_hooks" in one for one in found)


@pytest.mark.parametrize("hook", [After(), TextLoggerHook()])
def test_a_module_may_name_the_arguments_of_its_log(hook: Hook, tmp_path: Path) -> None:
    class Module(TinyModule):
        def log(self, key: str, val: Any = None, **kwargs: Any) -> None:
            super().log(key, val, **kwargs)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = self.loss(batch)
            self.log(key="mine", val=loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None: ...

    trainer = make_trainer(tmp_path, hook)
    trainer.fit(Module(), make_loader(), make_loader(1))
    assert "mine" in trainer.callback_metrics


class PassesOn(Callback):
    """A callback that wraps others and forwards an event."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def on_train_batch_start(self, *args: Any) -> None:
        several = self.held.values() if isinstance(self.held, dict) else self.held
        for hook in several if isinstance(self.held, (dict, list)) else [self.held]:
            hook.on_train_batch_start(*args)


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("kind", [lambda hook: hook, lambda hook: [hook], lambda hook: {0: hook}])
def test_a_callback_may_pass_events_on_to_a_hook(kind: Any, host: bool, tmp_path: Path) -> None:
    hook = EMAHook()
    trainer = make_trainer(tmp_path, HookAdapter(hook) if host else hook, PassesOn(kind(hook)))
    trainer.fit(TinyModule(), make_loader(1), make_loader(1))
    assert trainer.global_step == 1


def test_a_module_may_pass_events_on_to_a_hook(tmp_path: Path) -> None:
    class Module(TinyModule):
        def on_before_zero_grad(self, optimizer: Any) -> None:
            self.hook.on_before_zero_grad(self.trainer, self, optimizer)

    module = Module()
    module.hook = EMAHook()
    trainer = make_trainer(tmp_path, module.hook)
    trainer.fit(module, make_loader(1), make_loader(1))
    assert trainer.global_step == 1


def test_a_hook_taken_out_in_the_fit_has_all_events_afterwards(tmp_path: Path) -> None:
    def take_out(runner: Any) -> None:
        kept = [callback for callback in runner.trainer.callbacks if callback is not gone]
        runner.trainer.callbacks = kept

    gone = After()
    make_trainer(tmp_path, After(take_out), gone).fit(TinyModule(), make_loader(), make_loader(1))
    assert callable(gone.on_before_zero_grad)


def test_a_profiler_that_records_goes_on_recording(tmp_path: Path) -> None:
    profiler = SimpleProfiler()
    trainer = make_trainer(tmp_path, After(), profiler=profiler)
    trainer.fit(TinyModule(), make_loader(), make_loader(1))
    assert len(profiler.recorded_durations["[Callback]Driver.on_train_batch_end"]) == 4


def test_a_train_step_module_logs_as_any_other(tmp_path: Path) -> None:
    class Model(torch.nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
            loss = self(data[0]).square().mean()
            return {"loss": loss, "log_vars": {}, "num_samples": 1}

        val_step = train_step

    class Logs(Callback):
        def on_train_epoch_end(self, trainer: L.Trainer, pl_module: Any) -> None:
            pl_module.log("at_the_end", 3.0)

    model = Model(4, 2)
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer = make_trainer(tmp_path, After(), Logs())
    trainer.fit(module, make_loader(), make_loader(1))
    assert trainer.callback_metrics["at_the_end"] == 3.0
    module.extra = torch.nn.Linear(1, 1)
    assert "extra.weight" in dict(module.named_parameters())
