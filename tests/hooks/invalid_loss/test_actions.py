"""CheckInvalidLossHook(action="stop" or "restore"): checkpoints and averages exclude bad steps."""

from __future__ import annotations

import copy
import logging
import pickle
import threading
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint, OnExceptionCheckpoint
from lightning.pytorch.plugins import MixedPrecision

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    ExpLrUpdaterHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    InvalidLossError,
    OptimizerHook,
)
from lightning_hooks.storage import checkpoints
from support.probes import Recorder
from support.torture.bad_batches import (
    GRADIENTS,
    INPUT,
    LOSS,
    BadModule,
    NormModule,
    batches,
    loader,
    norm_module,
    train_step_module,
)
from support.training import make_trainer as make_trainer_alone

KINDS = pytest.mark.parametrize("kind", [LOSS, GRADIENTS, INPUT], ids=["loss", "grad", "input"])
BOTH = pytest.mark.parametrize("action", ["stop", "restore"])
ADAM = partial(torch.optim.Adam, lr=0.05)


def make_trainer(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    saves = any(isinstance(callback, Checkpoint) for callback in callbacks)
    return make_trainer_alone(tmp_path, *callbacks, enable_checkpointing=saves, **kwargs)


def assert_files_are_good(directory: Path, at_least: int = 1) -> None:
    """Assert that weights, averages and optimizer states of all checkpoints are finite."""
    found = [p for p in directory.rglob("*") if p.suffix in (".ckpt", ".pth") and p.is_file()]
    assert len(found) >= at_least
    for path in found:
        whole = torch.load(path, weights_only=True)
        keys = ("state_dict", "current_model_state", "optimizer_states")
        waiting: list[Any] = [whole.get(key) for key in keys]
        while waiting:
            value = waiting.pop()
            if isinstance(value, torch.Tensor):
                assert value.isfinite().all(), path
            elif isinstance(value, dict):
                waiting += value.values()
            elif isinstance(value, (list, tuple)):
                waiting += value


def state_of(trainer: Any, ema: EMAHook) -> Any:
    optimizer = trainer.optimizers[0].state_dict()["state"]
    found = trainer.lightning_module.state_dict(), optimizer, dict(ema.ema_state_dict())
    return copy.deepcopy(found)


def assert_equal(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=0)


# -- stop ------------------------------------------------------------------------------------


@KINDS
def test_stop_ends_cleanly_and_leaves_no_file_with_a_bad_step(
    kind: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, ema = Recorder(), EMAHook(momentum=0.5)
    trainer = make_trainer(
        tmp_path,
        CheckInvalidLossHook(interval=4, action="stop"),
        ModelCheckpoint(tmp_path / "steps", every_n_train_steps=3, save_top_k=-1),
        ModelCheckpoint(tmp_path / "weights", save_weights_only=True, save_last=True),
        CheckpointHook(interval=1),
        ema,
        recorder,
        max_epochs=5,
        min_epochs=5,
    )
    module = norm_module(ADAM)
    trainer.fit(module, loader(batches(10, {6: kind})))
    assert trainer.state.finished
    assert recorder.points[-1] == "after_run"
    assert module.seen in (8, 9)  # the earlier of the file after 9 batches and the interval of 4
    assert (trainer.fit_loop.min_epochs, trainer.current_epoch) == (5, 1)
    wrong = "at iter 6 " if kind != GRADIENTS else "at iter 7 "  # the first with bad weights
    said = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert any(wrong in text and "training stops" in text for text in said)
    assert_files_are_good(tmp_path, at_least=4)
    for value in (*module.state_dict().values(), *ema.ema_state_dict().values()):
        assert value.isfinite().all()


@pytest.mark.parametrize("owner", [OptimizerHook, GradientCumulativeOptimizerHook])
def test_stop_where_hooks_step(owner: Any, tmp_path: Path) -> None:
    hooks = [CheckInvalidLossHook(interval=2, action="stop"), owner(), CheckpointHook(interval=1)]
    trainer = make_trainer(tmp_path, HookAdapter(hooks), max_epochs=3)
    trainer.fit(train_step_module(), loader(batches(6, {2: INPUT})))
    assert trainer.global_step == 4
    assert_files_are_good(tmp_path)


@BOTH
def test_counted_in_iterations_with_a_validation_by_an_average(action: str, tmp_path: Path) -> None:
    class Validated(NormModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            assert all(value.isfinite().all() for value in self.state_dict().values())

        def __init__(self) -> None:
            super().__init__()
            del self.validation_step

    hooks = [EMAHook(), CheckInvalidLossHook(interval=100, action=action)]
    hooks.append(CheckpointHook(interval=3, by_epoch=False))
    trainer = make_trainer(
        tmp_path,
        HookAdapter(hooks, by_epoch=False),
        max_steps=8,
        val_check_interval=2,
        num_sanity_val_steps=0,
    )
    module = Validated()
    trainer.fit(module, loader(batches(10, {3: INPUT})), loader(batches(1)))
    assert module.seen == (4 if action == "stop" else 8)
    assert_files_are_good(tmp_path)


def test_stop_at_the_very_end_and_in_the_first_step(tmp_path: Path) -> None:
    for bad in (0, 3):
        hook = CheckInvalidLossHook(interval=100, action="stop")
        module = norm_module(ADAM)
        before = {key: value.clone() for key, value in module.state_dict().items()}
        make_trainer(tmp_path, hook, CheckpointHook()).fit(module, loader(batches(4, {bad: LOSS})))
        assert_equal(module.state_dict(), before)  # read once: the state before the run
        assert_files_are_good(tmp_path)


# -- restore ---------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(("interval", "owned"), [(1, False), (3, True)], ids=["lightning", "owned"])
def test_restore_goes_back_to_the_last_reading(
    owned: bool, interval: int, kind: float, tmp_path: Path
) -> None:
    def fit(made: list[Any], *hooks: Any) -> Any:
        ema = EMAHook(momentum=0.5, warm_up=0)
        owners = [OptimizerHook()] if owned else []
        trainer = make_trainer(tmp_path, HookAdapter([*hooks, *owners, ema]))
        module = train_step_module(ADAM) if owned else norm_module(ADAM)
        trainer.fit(module, loader(made))
        return state_of(trainer, ema)

    made, bad = batches(9), 4
    made[bad] = batches(9, {bad: kind})[bad]
    hook = CheckInvalidLossHook(interval=interval, action="restore")
    first = bad // interval * interval  # all batches since the reading before are lost
    assert_equal(fit(made, hook), fit(made[:first] + made[first + interval :]))


def test_restore_goes_on_in_every_epoch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hooks = [CheckInvalidLossHook(interval=7, action="restore"), EMAHook(), CheckpointHook(1)]
    trainer = make_trainer(tmp_path, HookAdapter(hooks), max_epochs=3)
    module = norm_module(ADAM)
    trainer.fit(module, loader(batches(4, {3: INPUT})))  # at the end of each epoch
    assert module.seen == trainer.global_step == 12
    assert "last reading; training goes on (restore 1 of 3)" in caplog.text
    assert "epoch_1.pth; training goes on (restore 2 of 3)" in caplog.text
    assert "epoch_2.pth; training goes on (restore 3 of 3)" in caplog.text
    assert_files_are_good(tmp_path, at_least=3)


def test_restore_from_a_file_has_its_weights_optimizer_and_average(tmp_path: Path) -> None:
    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            if trainer.fit_loop.epoch_loop.total_batch_idx == 6:
                self.state = state_of(trainer, ema)
                self.lr = trainer.optimizers[0].param_groups[0]["lr"]

    ema, look = EMAHook(momentum=0.5, warm_up=0), Look()
    hook = CheckInvalidLossHook(interval=7, action="restore")
    rate = ExpLrUpdaterHook(gamma=0.9, by_epoch=False)
    adapter = HookAdapter([rate, hook, ema, CheckpointHook(1)])
    trainer = make_trainer(tmp_path, adapter, look, max_epochs=2)
    module = norm_module(ADAM)
    module.train_dataloader = None
    data = batches(8, {5: INPUT})
    epochs = [loader(data[:4]), loader(data[4:])]
    module.train_dataloader = lambda: epochs[trainer.current_epoch]
    trainer.reload_dataloaders_every_n_epochs = 1
    trainer.fit(module)
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    weights, optimizer, average = look.state
    assert_equal(weights, saved["current_model_state"])
    assert_equal(optimizer, saved["optimizer_states"][0]["state"])
    # the average has included the restored weights at the end of this batch
    parameters = dict(module.named_parameters())
    for key, value in saved["state_dict"].items():
        mean = torch.lerp(value, weights[key], 0.5) if key in parameters else value
        torch.testing.assert_close(average[key], mean, rtol=1e-6, atol=1e-7)
    assert look.lr == pytest.approx(0.05 * 0.9**6)  # learning rates go on


@pytest.mark.parametrize("limit", [0, 2])
def test_restore_has_a_limit(limit: int, tmp_path: Path) -> None:
    made = batches(12, dict.fromkeys((1, 4, 9), LOSS))
    hook = CheckInvalidLossHook(interval=3, action="restore", max_restores=limit)
    module = BadModule()
    with pytest.raises(InvalidLossError, match=f"max_restores={limit}: .* {limit} times already"):
        make_trainer(tmp_path, hook).fit(module, loader(made))
    assert module.seen == (3 if limit == 0 else 12)
    hook = CheckInvalidLossHook(interval=3, action="restore", max_restores=None)
    make_trainer(tmp_path, hook).fit(BadModule(), loader(made))


def test_restore_forgets_gradients_that_were_accumulated(tmp_path: Path) -> None:
    hook = CheckInvalidLossHook(interval=3, action="restore")
    trainer = make_trainer(tmp_path, hook, accumulate_grad_batches=4)
    module = BadModule()
    trainer.fit(module, loader(batches(8, {2: INPUT})))
    assert module.net.weight.isfinite().all()


def test_restore_puts_a_gradient_scaler_back(tmp_path: Path) -> None:
    class Overflowing(NormModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.seen == 4:
                scaler.update(8.0)
            return super().training_step(batch, batch_idx)

    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    hook = CheckInvalidLossHook(interval=3, action="restore")
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    trainer = make_trainer(tmp_path, hook, plugins=[plugin])
    trainer.fit(Overflowing(), loader(batches(6, {5: LOSS})))
    assert scaler.get_scale() == 1024


@BOTH
def test_a_file_of_an_earlier_fit_is_not_gone_back_to(action: str, tmp_path: Path) -> None:
    hook, saver = CheckInvalidLossHook(interval=2, action=action), CheckpointHook(interval=1)
    make_trainer(tmp_path, hook, saver).fit(norm_module(), loader(batches(4)))
    module = BadModule()  # a module with other parameter names
    trainer = make_trainer(tmp_path / "other", hook, saver)
    trainer.fit(module, loader(batches(4, {1: LOSS})))
    assert trainer.state.finished


def test_restore_in_a_second_fit_begins_the_average_anew(tmp_path: Path) -> None:
    hook, ema = CheckInvalidLossHook(interval=3, action="restore"), EMAHook(momentum=0.5)
    make_trainer(tmp_path, hook, ema).fit(BadModule(), loader(batches(6)))
    module = BadModule()
    with torch.no_grad():
        module.net.weight.fill_(7.0)
    make_trainer(tmp_path, hook, ema).fit(module, loader(batches(3, {0: INPUT})))
    assert_equal(dict(ema.ema_state_dict()), dict(module.state_dict()))
    assert (module.net.weight == 7).all()


def test_restore_in_a_resumed_run_has_the_average_of_the_file(tmp_path: Path) -> None:
    def fit(data: Any, epochs: int, ckpt: Any = None) -> Any:
        hook, ema = CheckInvalidLossHook(interval=4, action="restore"), EMAHook(momentum=0.1)
        saver = CheckpointHook(1, save_last=False)
        trainer = make_trainer(tmp_path, hook, ema, saver, max_epochs=epochs)
        trainer.fit(BadModule(), loader(data), ckpt_path=ckpt)
        return ema

    fit(batches(4), 1)
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    raw, mean = (saved[key]["net.weight"] for key in ("current_model_state", "state_dict"))
    ema = fit(batches(4, {0: INPUT}), 2, tmp_path / "epoch_1.pth")
    average = ema.ema_state_dict()["net.weight"]
    assert (average - mean).abs().max() < 0.2 * (raw - mean).abs().max()


def test_restore_in_a_resumed_run_is_that_of_the_whole_run(tmp_path: Path) -> None:
    weights = []
    for stop in (8, 5):  # the file is from iter 4, the readings from 2, 4 and 6, the bad step is 7
        directory, steps, ckpt = tmp_path / str(stop), stop, None
        while True:
            hook, saver = CheckInvalidLossHook(2, "restore"), CheckpointHook(4, by_epoch=False)
            trainer = make_trainer(directory, hook, saver, max_steps=steps)
            module = BadModule()
            trainer.fit(module, loader(batches(8, {7: LOSS})), ckpt_path=ckpt)
            if steps == 8:
                break
            steps, ckpt = 8, directory / "iter_4.pth"
        weights.append(module.state_dict())
    assert_equal(weights[1], weights[0])


@BOTH
def test_a_file_that_is_still_being_written_is_not_gone_back_to(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(module: Any, data: Any, *hooks: Any) -> None:
        saver = CheckpointHook(2, by_epoch=False, background=True, create_symlink=False)
        make_trainer(tmp_path, *hooks, saver).fit(module, loader(data))

    class Late(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 2:
                assert (tmp_path / "iter_2.pth").exists()  # the earlier run's
                bad_step_is_read.set()

    wanted, other = BadModule(), BadModule()
    with torch.no_grad():
        other.net.weight.fill_(100.0)
    fit(other, batches(2))  # leaves an iter_2.pth
    write, bad_step_is_read = checkpoints.save, threading.Event()

    def wait(*args: Any) -> Any:
        bad_step_is_read.wait(timeout=30)
        return write(*args)

    monkeypatch.setattr(checkpoints, "save", wait)
    hook = CheckInvalidLossHook(interval=3, action=action)
    fit(wanted, batches(3, {2: LOSS}), hook, Late())
    assert wanted.net.weight.abs().max() < 10


# -- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights_only", [False, True])
def test_no_file_of_any_kind_is_written_after_a_bad_step(
    weights_only: bool, tmp_path: Path
) -> None:
    class Save(Callback):
        def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
            path = tmp_path / f"step={trainer.global_step}.ckpt"
            trainer.save_checkpoint(path, weights_only=weights_only)

    trainer = make_trainer(tmp_path, Save(), CheckInvalidLossHook())
    with pytest.raises(InvalidLossError, match="at iter 2 "):
        trainer.fit(BadModule(), loader(batches(4, {2: LOSS})))
    assert sorted(p.name for p in tmp_path.glob("*.ckpt")) == ["step=1.ckpt", "step=2.ckpt"]


def test_what_an_old_hook_saves_is_looked_at_before(tmp_path: Path) -> None:
    class OldSaver:
        def after_train_iter(self, runner: Any) -> None:
            runner.save_checkpoint(runner.work_dir, f"iter_{runner.iter}.pth")

    adapter = HookAdapter([CheckInvalidLossHook(), OldSaver()], work_dir=str(tmp_path))
    with pytest.raises(InvalidLossError, match="at iter 2 "):
        make_trainer(tmp_path, adapter).fit(BadModule(), loader(batches(4, {2: LOSS})))
    assert sorted(p.name for p in tmp_path.glob("iter_*")) == ["iter_0.pth", "iter_1.pth"]


def test_departure_weights_with_bad_gradients_are_found_without_a_bad_loss(
    tmp_path: Path,
) -> None:
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(), CheckpointHook(interval=1))
    with pytest.raises(InvalidLossError, match=r"weights became NaN .*between iter 0 and 2"):
        trainer.fit(BadModule(), loader(batches(3, {2: GRADIENTS})))
    assert not list(tmp_path.glob("*.pth"))


def test_weights_are_looked_at_again_for_a_file_right_after_a_reading(tmp_path: Path) -> None:
    saver = CheckpointHook(interval=3, by_epoch=False)
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(interval=3), saver)
    with pytest.raises(InvalidLossError, match="weights became NaN"):
        trainer.fit(BadModule(), loader(batches(6, {2: GRADIENTS})))
    assert not list(tmp_path.glob("*.pth"))


def test_weights_that_are_infinite_on_purpose_are_no_error(tmp_path: Path) -> None:
    class Masked(BadModule):
        def __init__(self) -> None:
            super().__init__()
            self.mask = torch.nn.Parameter(torch.tensor([0.0, -torch.inf]))

    make_trainer(tmp_path, CheckInvalidLossHook(interval=1)).fit(Masked(), loader(batches(3)))


@BOTH
@pytest.mark.filterwarnings("ignore:.*ckpt_path")  # Lightning's warning
def test_a_file_written_because_of_another_error_is_good(action: str, tmp_path: Path) -> None:
    class Breaking(NormModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if self.seen == 3:
                raise KeyError("mine")
            return super().training_step(batch, batch_idx)

    saver = OnExceptionCheckpoint(tmp_path)
    trainer = make_trainer(tmp_path, CheckInvalidLossHook(action=action), saver)
    with pytest.raises(KeyError, match="mine"):
        trainer.fit(Breaking(), loader(batches(6, {1: INPUT})))
    assert_files_are_good(tmp_path)


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.filterwarnings("ignore:.*ckpt_path")  # Lightning's warning
def test_no_file_is_written_because_of_our_own_error(first: bool, tmp_path: Path) -> None:
    savers = [OnExceptionCheckpoint(tmp_path), ModelCheckpoint(tmp_path, save_on_exception=True)]
    savers[1].save_on_exception = True
    hooks = [CheckInvalidLossHook(interval=2), CheckInvalidLossHook(interval=3)]
    trainer = (
        make_trainer(tmp_path, *savers, *hooks)
        if first
        else make_trainer(tmp_path, *hooks, *savers)
    )
    module = BadModule()
    with pytest.raises(InvalidLossError, match="at iter 1 "):
        trainer.fit(module, loader(batches(6, {1: INPUT})))
    assert not list(tmp_path.rglob("*.ckpt"))
    trainer.save_checkpoint(tmp_path / "mine.ckpt")  # a save after the error is allowed
    assert (tmp_path / "mine.ckpt").exists()
    assert "save_checkpoint" not in vars(trainer)


# -- good runs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "fused"),
    [("raise", False), ("stop", False), ("skip", False), ("skip", True), ("restore", False)],
)
def test_a_good_run_is_as_without_the_hook_also_resumed(
    action: str, fused: bool, tmp_path: Path
) -> None:
    def fit(*hooks: Any, epochs: int = 2, ckpt: Any = None) -> Any:
        ema = EMAHook(momentum=0.5)
        trainer = make_trainer(
            tmp_path, HookAdapter([*hooks, ema, CheckpointHook(1)]), max_epochs=epochs
        )
        trainer.fit(norm_module(partial(ADAM, fused=fused)), loader(batches(5)), ckpt_path=ckpt)
        return state_of(trainer, ema)

    whole = fit()
    hook = CheckInvalidLossHook(interval=2, action=action)
    assert_equal(fit(hook), whole)
    assert_equal(fit(pickle.loads(pickle.dumps(hook)), ckpt=tmp_path / "epoch_1.pth"), whole)
    assert_equal(fit(hook, CheckInvalidLossHook(interval=3, action=action)), whole)  # two hooks


@BOTH
def test_a_validation_in_mid_epoch_never_sees_a_bad_step(action: str, tmp_path: Path) -> None:
    class Validated(NormModule):
        def __init__(self) -> None:
            super().__init__()
            del self.validation_step

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            assert all(value.isfinite().all() for value in self.state_dict().values())

    hooks = CheckInvalidLossHook(100, action, max_restores=4), EMAHook()
    trainer = make_trainer(tmp_path, *hooks, val_check_interval=2, max_epochs=2)
    module = Validated()
    trainer.fit(module, loader(batches(5, {3: INPUT, 4: INPUT})), loader(batches(1)))
    assert module.seen == (4 if action == "stop" else 10)


def test_a_hook_that_another_registers_late(tmp_path: Path) -> None:
    class Registering(Hook):
        priority = "LOW"

        def before_run(self, runner: Any) -> None:
            runner.register_hook(CheckInvalidLossHook(interval=2, action="restore"))

    module = BadModule()
    make_trainer(tmp_path, Registering()).fit(module, loader(batches(6, {1: INPUT})))
    assert module.net.weight.isfinite().all()


# -- arguments -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"action": "ignore"}, "action must be one of .*'restore'"),
        ({"max_skips": -1}, "max_skips must be an int of at least 0 or None, got -1"),
        ({"max_skips": 10**30}, f"max_skips must be at most {2**63 - 1}, got a larger number"),
        ({"max_restores": 1.5}, "max_restores must be .*got 1.5"),
        ({"dump_dir": 3}, "dump_dir must be a path or None, got 3"),
    ],
)
def test_bad_arguments_are_refused(given: dict[str, Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        CheckInvalidLossHook(**given)
