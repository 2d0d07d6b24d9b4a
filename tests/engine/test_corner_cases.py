"""Misuse and corner cases of past bugs, as a user meets them."""

from __future__ import annotations

import pickle
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from lightning_hooks import CheckpointHook, Hook, HookAdapter, StepLrUpdaterHook, TrainStepModule
from lightning_hooks.engine.points import STAGES
from support import training
from support.foreign_hooks import OldEMA, old
from support.probes import Numbers, Recorder, SaveAt, Seen, equal, weights
from support.training import NoValidation, TinyModule, TinyNormModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:Found .* in eval mode at the start of training"),
]


fit = partial(training.fit, host=True)


def numbers(start: float = 0.0, **kwargs: Any) -> DataLoader[Any]:
    return DataLoader(Numbers(start), batch_size=2, **kwargs)


# -- data ----------------------------------------------------------------------------------


def test_a_loader_replaced_for_one_epoch_is_not_iterated_in_the_next(tmp_path: Path) -> None:
    def replace(runner: Any) -> None:
        if runner.epoch == 0:
            runner.data_loader = numbers(100.0)

    module = Seen()
    fit(tmp_path, old(before_train_epoch=replace), module=module, batches=numbers(), max_epochs=3)
    assert [epoch[0] for epoch in module.epochs] == [100.0, 0.0, 0.0]


def test_a_loader_wrapped_in_every_epoch_does_not_nest(tmp_path: Path) -> None:
    def repeat(runner: Any) -> None:
        data = runner.data_loader.dataset
        runner.data_loader = DataLoader(torch.utils.data.ConcatDataset([data] * 2), batch_size=2)

    module = Seen()
    fit(tmp_path, old(before_train_epoch=repeat), module=module, batches=numbers(), max_epochs=3)
    assert [len(epoch) for epoch in module.epochs] == [8, 8, 8]


def test_a_validation_loader_set_by_a_hook_is_validated_on_and_not_trained_on(
    tmp_path: Path,
) -> None:
    validated: list[float] = []

    class Module(Seen):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            validated.append(batch[0][0, 0].item())

    def again(runner: Any) -> None:
        data = runner.data_loader.dataset
        runner.data_loader = DataLoader(Numbers(data.start + 7.0), batch_size=2)

    module = Module()
    hook = old(before_val_epoch=again)
    options = {"num_sanity_val_steps": 0, "max_epochs": 2}
    fit(tmp_path, hook, module=module, batches=numbers(), val=numbers(900.0), **options)
    assert [epoch[0] for epoch in module.epochs] == [0.0, 0.0]
    assert validated == [907.0, 909.0] * 2


@pytest.mark.parametrize("point", ["before_train_epoch", "before_run"])
def test_a_changed_data_set_is_seen_by_persistent_workers(point: str, tmp_path: Path) -> None:
    def change(runner: Any) -> None:
        runner.data_loader.dataset.start = 100.0

    module = Seen()
    loader = numbers(num_workers=1, persistent_workers=True)
    fit(tmp_path, old(**{point: change}), module=module, batches=loader)
    assert module.epochs[0][0] == 100.0


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_by_iteration_with_validation_a_run_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def run(module: Any, *hooks: Any, ckpt: Any = None) -> Any:
        adapter = HookAdapter(list(hooks), by_epoch=False)
        trainer = make_trainer(tmp_path, adapter, max_steps=12)
        trainer.fit(module, make_loader(4, shuffle=True), make_loader(1), ckpt_path=ckpt)
        return module

    torch.manual_seed(0)
    whole = run(TinyNormModule(), CheckpointHook(interval=4, by_epoch=False))
    torch.manual_seed(1)
    resumed = run(TinyNormModule(), Recorder(), ckpt=tmp_path / "iter_4.pth")
    assert resumed.losses == whole.losses[4:]
    assert equal(weights(resumed), weights(whole))


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
@pytest.mark.parametrize(
    "validation",
    [
        {"limit_val_batches": 0},
        {"val_check_interval": 3, "check_val_every_n_epoch": None},
        {"check_val_every_n_epoch": 2},
    ],
)
def test_by_iteration_a_file_of_a_passs_end_without_validation_goes_on_bit_for_bit(
    validation: dict[str, Any], tmp_path: Path
) -> None:
    def run(seed: int, ckpt: Any = None) -> list[float]:
        adapter = HookAdapter([CheckpointHook(interval=4, by_epoch=False)], by_epoch=False)
        trainer = make_trainer(tmp_path, adapter, max_steps=14, **validation)
        module = TinyNormModule()
        torch.manual_seed(seed)
        trainer.fit(module, make_loader(4, shuffle=True), make_loader(1), ckpt_path=ckpt)
        return module.losses

    whole = run(0)
    for done in (4, 8, 12):
        assert run(1, tmp_path / f"iter_{done}.pth") == whole[done:]


# -- the model -----------------------------------------------------------------------------


def test_what_a_hook_runs_is_transferred_and_converted_as_a_batch_is(tmp_path: Path) -> None:
    transfers: list[Any] = []

    class Module(NoValidation):
        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
            transfers.append(dataloader_idx)
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def precise(runner: Any) -> None:
        for batch in runner.data_loader:
            runner.model.train_step(batch)

    fit(tmp_path, old(after_train_epoch=precise), module=Module(), precision="bf16-true")
    assert len(transfers) == 8


def test_eval_of_the_model_inside_is_undone_too(tmp_path: Path) -> None:
    seen: list[bool] = []
    hooks = [
        old(after_train_iter=lambda r: r.model.eval()),
        old(before_train_iter=lambda r: seen.append(r.model.training)),
    ]
    fit(tmp_path, *hooks, module=TinyNormModule(), model=lambda module: module.net)
    assert seen == [True] * 4


def test_a_foreign_hook_may_call_the_module_itself_at_an_epochs_end(tmp_path: Path) -> None:
    batch = next(iter(make_loader(1, seed=9)))
    hook = old(after_train_epoch=lambda r: r.model.module.training_step(batch, 0))
    trainer = fit(tmp_path, hook, val=make_loader(1))
    assert trainer.state.finished


class PickleHook(Hook):
    def after_train_iter(self, runner: Any) -> None:
        self.copy = pickle.loads(pickle.dumps(runner.module))


def test_the_module_can_be_pickled_during_a_fit(tmp_path: Path) -> None:
    hook = PickleHook()
    trainer = fit(tmp_path, hook, module=TinyModule())
    assert hook.copy.training_step.__self__ is hook.copy
    assert torch.equal(hook.copy.net.weight, trainer.lightning_module.net.weight)


# -- hooks ---------------------------------------------------------------------------------


def test_a_setup_of_ones_own_without_super_does_no_harm(tmp_path: Path) -> None:
    class Mine(Recorder):
        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            self.stage = stage

    hook = Mine()
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(1))
    assert hook.stage == "fit"
    assert hook.points[0] == "before_run"


def test_an_old_subclass_of_a_hook_that_reads_no_step_may_read_it(tmp_path: Path) -> None:
    class Plateau(StepLrUpdaterHook):
        def after_train_iter(self, runner: Any) -> None:
            self.last = float(runner.outputs["loss"])

    hook = Plateau(step=1)
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(2))
    assert hook.last > 0


def test_hooks_that_come_late_are_called_at_every_point(tmp_path: Path) -> None:
    late = Recorder()

    def register(runner: Any) -> None:
        if runner.epoch == 1 and late not in runner.hooks:
            runner.register_hook(late)

    fit(tmp_path, old(before_train_epoch=register), max_epochs=2)
    assert late.points.count("before_train_iter") == 4


@pytest.mark.parametrize("way", ["iadd", "assign", "sort"])
def test_the_list_of_hooks_may_be_rewritten_in_any_way(way: str, tmp_path: Path) -> None:
    extra = Recorder()

    def rewrite(runner: Any) -> None:
        if way == "iadd":
            hooks = runner.hooks
            hooks += [extra]
        elif way == "assign":
            runner._hooks = [*runner.hooks, extra]
        else:
            runner.hooks.append(extra)
            runner.hooks.sort(key=lambda hook: hook is not extra)
        runner.get_hook_info()

    fit(tmp_path, old(before_run=rewrite, after_train_iter=lambda r: None))
    assert extra.points.count("after_train_iter") == 4


@pytest.mark.parametrize("point", STAGES)
def test_departure_a_hook_that_removes_itself_takes_no_point_from_the_next(
    point: str, tmp_path: Path
) -> None:
    first, last = Recorder(), Recorder()
    leaving = old(**{point: lambda runner: runner.hooks.remove(leaving)})
    fit(tmp_path, first, leaving, last, val=1, max_epochs=2)
    assert point in last.points
    assert last.points == first.points


@pytest.mark.parametrize("point", ["before_run", "after_train_iter"])
def test_departure_stop_iteration_in_a_hook_is_an_error_and_does_not_end_the_epoch(
    point: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match="a hook raised StopIteration") as caught:
        fit(tmp_path, old(**{point: lambda r: next(iter([]))}))
    assert f"OldHook.{point} (epoch 0, iter 0)" in caught.value.__notes__[0]


def test_priorities_of_other_enums_and_of_hooks_that_cannot_hold_one(tmp_path: Path) -> None:
    class Theirs(Enum):
        LOW = 70

    class Slots:
        __slots__ = ()

        def before_run(self, runner: Any) -> None: ...

    adapter = HookAdapter([(Slots(), Theirs.LOW), (Slots(), 3)])
    assert [adapter.hooks.priority_of(hook) for hook in adapter.hooks] == [3, 70]
    fit(tmp_path, *[(Slots(), 5), Recorder()])


def test_a_config_with_a_priority_beside_it_and_a_generator_of_hooks() -> None:
    adapter = HookAdapter(hook for hook in [({"type": "IterTimerHook"}, "LOWEST"), Recorder()])
    assert [type(hook).__name__ for hook in adapter.hooks] == ["Recorder", "IterTimerHook"]


class Stateful(Hook):
    def __init__(self, factor: float, name: str = "a") -> None:
        self.factor, self.total = factor, 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total}


def test_stateful_hooks_key_themselves_by_class_and_arguments(tmp_path: Path) -> None:
    make_trainer(tmp_path, Stateful(1.0), Stateful(2.0))
    make_trainer(tmp_path, Stateful(1.0), Stateful(1.0, name="b"))
    with pytest.raises(RuntimeError, match="more than one stateful callback"):
        make_trainer(tmp_path, Stateful(1.0), Stateful(1.0))
    assert "factor" in Stateful(1.0).state_key


def test_two_adapters_with_the_same_tensors_in_attributes(tmp_path: Path) -> None:
    attributes = {"weights": torch.ones(3)}
    adapters = [HookAdapter([Recorder()], attributes=attributes) for _ in range(2)]
    make_trainer(tmp_path, *adapters).fit(TinyModule(), make_loader(1))


def test_configure_callbacks_that_makes_new_hooks_for_each_fit(tmp_path: Path) -> None:
    class Module(NoValidation):
        def configure_callbacks(self) -> Any:
            return [HookAdapter([Stateful(1.0)])]

    trainer = make_trainer(tmp_path, max_epochs=1)
    module = Module()
    trainer.fit(module, make_loader(1))
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_loader(1))
    assert sum(isinstance(callback, Stateful) for callback in trainer.callbacks) == 1


# -- backward ------------------------------------------------------------------------------


def test_owns_backward_without_a_hook_that_could_is_refused(tmp_path: Path) -> None:
    from lightning_hooks import IterTimerHook

    with pytest.raises(ValueError, match="no hook can call loss"):
        fit(tmp_path, IterTimerHook(), owns_backward=True)


def test_backward_on_any_loss_without_ownership_names_owns_backward(tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.loss(batch)
            return {"loss": loss, "loss_cls": loss * 2}

    hook = old(after_train_iter=lambda r: r.outputs["loss_cls"].backward())
    with pytest.raises(RuntimeError, match="owns_backward=True"):
        fit(tmp_path, hook, module=Module())


def test_a_scheduler_beside_hooks_that_own_backward_is_warned_of(tmp_path: Path) -> None:
    class Module(NoValidation):
        def configure_optimizers(self) -> Any:
            optimizer = super().configure_optimizers()
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]

    with pytest.warns(UserWarning, match="StepLR is never stepped where hooks own backward"):
        fit(tmp_path, {"type": "OptimizerHook"}, module=Module(), owns_backward=True)


@pytest.mark.parametrize(
    ("options", "total"),
    [
        ({"max_steps": 4, "max_epochs": -1, "accumulate_grad_batches": 3}, 8),
        ({"max_steps": 3, "max_epochs": -1, "accumulate_grad_batches": 3}, 7),
        ({"max_epochs": 2, "max_steps": 6}, 6),
    ],
)
def test_max_iters_counts_the_steps_at_every_epochs_end(
    options: dict[str, Any], total: int, tmp_path: Path
) -> None:
    lasts: list[int] = []

    class Last(Hook):
        def after_train_iter(self, runner: Any) -> None:
            if self.is_last_iter(runner):
                lasts.append(runner.iter + 1)

    recorder = Recorder()
    fit(tmp_path, Last(), recorder, **options)
    assert lasts == [total] == [recorder.calls[-1][2]]


def test_a_value_that_is_not_logged_in_a_step_is_not_averaged_again(tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 0:
                self.log("first", torch.tensor(3.0))
            return super().training_step(batch, batch_idx)

    lengths: list[int] = []
    hook = old(after_train_epoch=lambda r: lengths.append(len(r.log_buffer.val_history["first"])))
    fit(tmp_path, hook, module=Module())
    assert lengths == [1]


# -- files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("weights_only", [False, True])
def test_buffers_of_hooks_stay_out_of_every_files_state_dict(
    weights_only: bool, tmp_path: Path
) -> None:
    """The second fit has another Trainer and a module of an earlier fit."""
    module = TinyModule()
    for run in range(2):
        saving = ModelCheckpoint(tmp_path / str(run), save_weights_only=weights_only)
        adapter = HookAdapter([OldEMA()])
        trainer = make_trainer(tmp_path, adapter, saving, enable_checkpointing=True)
        trainer.fit(module, make_loader(2))
        saved = torch.load(saving.best_model_path, weights_only=True)
        TinyModule().load_state_dict(saved["state_dict"])
        assert "ema_net_weight" in saved["lightning_hooks"]["buffers"]
        trainer.save_checkpoint(tmp_path / "after_the_fit.ckpt")
        saved = torch.load(tmp_path / "after_the_fit.ckpt", weights_only=True)
        TinyModule().load_state_dict(saved["state_dict"])
        assert "ema_net_weight" in saved["lightning_hooks"]["buffers"]


def test_meta_has_the_classes_of_the_model(tmp_path: Path) -> None:
    import job

    model = job.make_model()
    model.CLASSES = ("zero", "one")
    module = TrainStepModule(model, job.make_optimizer(model))
    save = SaveAt("on_train_epoch_end", tmp_path / "a.ckpt")
    write = old(after_train_epoch=lambda r: r.save_checkpoint(r.work_dir, create_symlink=False))
    fit(tmp_path, write, save, module=module, batches=job.make_data()[0])
    for name in ("a.ckpt", "epoch_1.pth"):
        meta = torch.load(tmp_path / name, weights_only=True)["meta"]
        assert meta["CLASSES"] == ("zero", "one")
        assert meta["mmcv_version"] == "1.7.2"
        assert meta["epoch"] == 1


def test_an_old_file_with_a_numpy_score_in_its_meta_is_read(tmp_path: Path) -> None:
    meta = {"epoch": 1, "iter": 4, "hook_msgs": {"best_score": np.float64(0.5)}}
    state = TinyModule(seed=4).state_dict()
    torch.save({"meta": meta, "state_dict": state}, tmp_path / "old.pth")
    seen: list[Any] = []

    def resume(runner: Any) -> None:
        runner.resume(str(tmp_path / "old.pth"), resume_optimizer=False)
        seen.append((runner.epoch, runner.iter, runner.meta["hook_msgs"]["best_score"]))

    fit(tmp_path, old(before_run=resume), max_epochs=2)
    assert seen == [(1, 4, 0.5)]


# -- events on the instance, and a stop before the step -------------------------------------


def test_an_event_that_is_set_on_a_hook_itself_is_called(tmp_path: Path) -> None:
    seen: list[int] = []
    hook = Recorder()
    hook.on_train_batch_start = lambda t, m, batch, batch_idx: seen.append(batch_idx)  # type: ignore[method-assign]
    make_trainer(tmp_path, hook, max_epochs=1).fit(NoValidation(), make_loader(3))
    assert seen == [0, 1, 2]
    make_trainer(tmp_path, HookAdapter([hook])).fit(NoValidation(), make_loader(2))
    assert seen == [0, 1, 2, 0, 1]


class StopsBefore(Hook):
    _reads_step = False

    def before_train_iter(self, runner: Any) -> None:
        runner.should_stop = runner.iter == 1


def test_a_stop_before_the_step_ends_training_after_it(tmp_path: Path) -> None:
    module = NoValidation()
    make_trainer(tmp_path, StopsBefore(), max_epochs=3).fit(module, make_loader(4))
    assert len(module.losses) == 2
