"""CheckInvalidLossHook names the exact step of a bad loss and rarely reads the device."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from lightning_hooks import HOOKS, CheckpointHook, HookAdapter, TrainStepModule
from lightning_hooks.hooks.invalid_loss import check
from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook, InvalidLossError
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook
from support.device_reads import Reads
from support.processes import environment
from support.torture.bad_batches import Spoiled, failing
from support.training import make_loader, make_trainer


class Saver(Callback):
    """Saves a checkpoint at the end of one batch."""

    def __init__(self, path: Path, after: int) -> None:
        self.path, self.after = path, after

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        if trainer.global_step == self.after:
            trainer.save_checkpoint(self.path)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("step", [0, 3, 4, 6])
def test_departure_names_the_first_bad_iteration(tmp_path: Path, step: int, value: float) -> None:
    module = Spoiled(step, value)
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=4), max_epochs=2)
    message = failing(trainer, module, make_loader(5))
    assert f"the loss became {value} at iter {step} (epoch {step // 5}" in message
    assert f"inner_iter {step % 5}" in message
    # at most an interval late, and not later than the end of the epoch
    assert module.batches == {0: 4, 3: 4, 4: 5, 6: 8}[step]


def test_names_the_losses_that_went_bad(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=1))
    bad, good = failing(trainer, Spoiled(2), make_loader(4)).splitlines()[1:3]
    assert bad == "not finite: loss=nan, loss_box=nan, logged_box=nan"
    assert good.startswith("finite: loss_cls=")


@pytest.mark.parametrize("hooks", [[], [OptimizerHook()]], ids=["lightning", "owned"])
def test_names_the_log_vars_that_went_bad(tmp_path: Path, hooks: list[Any]) -> None:
    class Model(nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
            loss = self(data[0]).sum() * float("nan")
            log_vars = {"loss_box": loss.item(), "loss_cls": 0.5}
            return {"loss": loss, "log_vars": log_vars, "num_samples": 2}

        val_step = train_step

    model = Model(4, 2)
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer = make_trainer(tmp_path, HookAdapter([*hooks, CheckInvalidLossHook()]))
    message = failing(trainer, module, make_loader(2), make_loader(1))
    assert "iter 0 " in message
    assert "not finite: loss=nan, loss_box=nan\nfinite: loss_cls=0.5\n" in message


class Masked(Spoiled):
    """A module with a finite loss; a logged part of the loss is bad in one step.

    The module logs or returns the part, by ``logs``.
    """

    logs = True

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor]:
        bad, self.batches = self.batches == self.step, self.batches + 1
        loss = self.loss(batch)
        part = loss.detach() * (self.value if bad else 1.0)
        if self.logs and bad:
            self.log("loss_box", part)
        returned = {"loss": loss, "accuracy": part * torch.nan}
        return returned if self.logs else {**returned, "loss_box": part}


@pytest.mark.parametrize("logs", [True, False])
def test_departure_each_component_of_a_loss_is_checked(logs: bool, tmp_path: Path) -> None:
    module = Masked(3)
    module.logs = logs
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=2), max_epochs=2)
    message = failing(trainer, module, make_loader(5))
    assert "the loss became nan at iter 3 (epoch 0, inner_iter 3;" in message
    assert "loss_box=nan" in message.splitlines()[1]
    assert "finite: loss=" in message
    assert "1 of the losses up to iter 3 are" in message


class StepsItself(Spoiled):
    """A module with manual optimization that logs or returns its loss under the name ``called``."""

    called = "g_loss"
    returns = False
    automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, torch.Tensor] | None:
        loss = self.loss(batch) * (self.value if batch_idx == self.step else 1.0)
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()
        if self.returns:
            return {self.called: loss}
        return self.log(self.called, loss)


@pytest.mark.parametrize("returns", [False, True], ids=["logged", "returned"])
@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
def test_losses_of_a_module_that_returns_none_are_known_by_name(
    returns: bool, hosted: bool, tmp_path: Path
) -> None:
    hook, module = CheckInvalidLossHook(interval=2), StepsItself(2)
    module.returns = returns
    trainer = make_trainer(tmp_path, HookAdapter([hook]) if hosted else hook)
    message = failing(trainer, module, make_loader(5))
    assert "the loss became nan at iter 2 (epoch 0, inner_iter 2;" in message
    assert "\nnot finite: g_loss=nan\n" in message


def test_a_loss_that_is_not_seen_is_not_called_finite(tmp_path: Path) -> None:
    module = StepsItself(2)
    module.called = "generator"
    message = failing(make_trainer(tmp_path, CheckInvalidLossHook(2)), module, make_loader(5))
    assert "no step had a loss to look at: return it from training_step, or log it" in message
    assert "every loss was finite" not in message


def test_a_component_is_bad_in_its_step_only(tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(interval=1, action="restore", max_restores=1)
    module = Masked(1)
    make_trainer(tmp_path, hook).fit(module, make_loader(5))
    assert module.batches == 5


def test_a_value_that_is_no_loss_may_be_nan(tmp_path: Path) -> None:
    make_trainer(tmp_path, CheckInvalidLossHook(interval=2)).fit(Masked(99), make_loader(3))


@pytest.mark.parametrize("value", [float("nan"), 0.5])
def test_components_of_an_old_model_are_numbers(value: float, tmp_path: Path) -> None:
    class Model(nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
            log_vars = {"loss_box": value, "loss_cls": 0.5}
            return {"loss": self(data[0]).sum(), "log_vars": log_vars, "num_samples": 2}

        val_step = train_step

    model = Model(4, 2)
    module = TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer = make_trainer(tmp_path, OptimizerHook(), CheckInvalidLossHook())
    if value == 0.5:
        trainer.fit(module, make_loader(2), make_loader(1))
    else:
        message = failing(trainer, module, make_loader(2), make_loader(1))
        assert "the loss became nan at iter 0 " in message
        assert "not finite: loss_box=nan\nfinite: loss=" in message


def test_reads_the_device_once_per_interval(tmp_path: Path) -> None:
    class Module(Spoiled):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.loss(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1, foreach=False)

    def count(*hooks: Any) -> list[Any]:
        with Reads() as reads:
            make_trainer(tmp_path, *hooks).fit(Module(-1), make_loader(10))
        found = [read for read in reads.found if read.are_floats and read.method != "cpu"]
        return [(read.method, read.numbers) for read in found]

    assert count() == []
    # a flag for all weights before the run; then losses with a flag; before the last read, at the
    # end of the epoch, the losses whose average goes to Lightning's callbacks
    lists = [("tolist", n) for n in (5, 5, 10, 3)]
    assert count(CheckInvalidLossHook(interval=4)) == [("__bool__", 1), *lists]


@pytest.mark.parametrize("kind", [Spoiled, StepsItself])
def test_reads_in_a_long_interval_too_to_free_memory(
    kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "MAX_UNREAD", 4)
    module, hook = kind(5), CheckInvalidLossHook(interval=10**6)
    kept = []

    class Looks(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            kept.append(hook._history.iters)

    message = failing(make_trainer(tmp_path, hook, Looks()), module, make_loader(20))
    assert "at iter 5 (" in message
    assert "of the losses up to iter 7 are" in message
    assert kept[:7] == [1, 2, 3, 0, 1, 2, 3]


def test_reads_before_a_checkpoint_so_that_none_holds_a_bad_step(tmp_path: Path) -> None:
    path = tmp_path / "model.ckpt"
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(), Saver(path, after=3))
    assert "iter 2 " in failing(trainer, Spoiled(2), make_loader(5))
    assert not path.exists()


def test_a_bad_loss_after_an_epoch_that_the_module_has_cut_short(tmp_path: Path) -> None:
    class Module(Spoiled):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 2 else None

    module = Module(2)
    hooks = CheckInvalidLossHook(interval=1), CheckpointHook(interval=1)
    trainer = make_trainer(tmp_path, *hooks, max_epochs=3, enable_checkpointing=True)
    message = failing(trainer, module, make_loader(4))
    assert "the loss became nan at iter 2 (epoch 1, inner_iter 0" in message
    assert module.batches == 3


def test_reads_before_validation(tmp_path: Path) -> None:
    module = Spoiled(1, validates=True)
    validated: list[int] = []
    module.on_validation_model_eval = lambda: validated.append(1)  # type: ignore[method-assign]
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(), num_sanity_val_steps=0)
    assert "iter 1 " in failing(trainer, module, make_loader(4), make_loader(1))
    assert module.batches == 4


def test_reads_at_the_end_of_the_fit(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=1000))
    assert "iter 4 " in failing(trainer, Spoiled(4), make_loader(5))


def test_where_iterations_are_counted(tmp_path: Path) -> None:
    adapter = HookAdapter(CheckInvalidLossHook(interval=3), by_epoch=False)
    trainer = make_trainer(tmp_path, adapter, max_steps=9)
    assert "iter 4 " in failing(trainer, Spoiled(4), make_loader(4))


def test_another_error_is_not_hidden_by_a_checkpoint_saved_after_it(tmp_path: Path) -> None:
    class SaveOnException(Callback):
        def on_exception(self, trainer: L.Trainer, *args: Any) -> None:
            trainer.save_checkpoint(tmp_path / "last.ckpt")

    class Breaking(Spoiled):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.batches == 2:
                raise KeyError("mine")
            return super().training_step(batch, batch_idx)

    hook = CheckInvalidLossHook()
    trainer = make_trainer(tmp_path, hook, SaveOnException())
    with pytest.raises(KeyError, match="mine"):
        trainer.fit(Breaking(1), make_loader(4))
    # the next fit does not report the error of this fit
    make_trainer(tmp_path, hook).fit(Spoiled(-1), make_loader(4))


def test_a_good_run_and_large_float64_losses_pass(tmp_path: Path) -> None:
    class Large(Spoiled):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.loss(batch).double() * 0 + 1e300

    hook = CheckInvalidLossHook(interval=2)
    make_trainer(tmp_path, hook).fit(Spoiled(-1), make_loader(5))
    make_trainer(tmp_path, hook).fit(Large(-1), make_loader(5))


@pytest.mark.slow
def test_departure_checks_also_where_python_drops_assertions(tmp_path: Path) -> None:
    program = """if True:
        from lightning_hooks import CheckInvalidLossHook
        from support.torture.bad_batches import Spoiled
        from support.training import make_loader, make_trainer

        assert False, "dropped"
        try:
            make_trainer(".", CheckInvalidLossHook()).fit(Spoiled(1), make_loader(2))
        except Exception as error:
            print(error)
    """
    command = [sys.executable, "-O", "-W", "ignore", "-c", program]
    done = subprocess.run(command, env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert "the loss became nan at iter 1" in done.stdout, done.stderr


@pytest.mark.parametrize("interval", [0, -1, 1.5, "50", True])
def test_a_bad_interval_is_refused(interval: Any) -> None:
    with pytest.raises(ValueError, match="interval must be an int of at least 1"):
        CheckInvalidLossHook(interval=interval)


def test_registered_and_pickled_with_mmdets_default() -> None:
    hook = HOOKS.build({"type": "CheckInvalidLossHook"})
    assert pickle.loads(pickle.dumps(hook)).interval == 50


def test_departure_an_error_of_both_kinds_and_a_priority_before_those_that_save() -> None:
    assert issubclass(InvalidLossError, AssertionError)  # as raised by mmdet
    assert issubclass(InvalidLossError, FloatingPointError)
    table = HookAdapter([{"type": "CheckInvalidLossHook"}]).get_hook_info()
    assert "(ABOVE_NORMAL) CheckInvalidLossHook" in table
