"""Changes by old mmcv hooks to the runner take effect, as in mmcv."""

from __future__ import annotations

import copy
import functools
import logging
import pickle
import types
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import GradientAccumulationScheduler, ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torchmetrics import CatMetric, MeanMetric

from lightning_hooks import (
    CheckpointHook,
    EMAHook,
    Hook,
    HookAdapter,
    OptimizerHook,
    StepLrUpdaterHook,
    TrainStepModule,
)
from lightning_hooks.engine.points import STAGES
from lightning_hooks.storage.layout import DamagedCheckpointError
from support import training
from support.foreign_hooks import old
from support.probes import Recorder
from support.training import TinyModule, TinyNormModule, make_loader, make_trainer

fit = partial(training.fit, host=True)


pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:Found .* in eval mode at the start of training"),
]


def test_generic_methods_alone_are_called(tmp_path: Path) -> None:
    calls: list[str] = []
    names = ("before_epoch", "after_epoch", "before_iter", "after_iter")
    fit(tmp_path, old(**{n: lambda r, n=n: calls.append(n) for n in names}), val=1)
    assert calls == [
        "before_epoch",
        *["before_iter", "after_iter"] * 4,
        "after_epoch",
        *["before_epoch", "before_iter", "after_iter", "after_epoch"],
    ]


def test_what_is_wrapped_around_an_inherited_method_is_called(tmp_path: Path) -> None:
    seen = []

    class Wraps(Hook):
        @functools.wraps(Hook.after_train_iter)
        def after_train_iter(self, runner: Any) -> None:
            seen.append(runner.iter)

    make_trainer(tmp_path, Wraps(), max_epochs=1).fit(TinyModule(), make_loader(2))
    assert seen == [0, 1]


# -- the model -----------------------------------------------------------------------------


def test_runner_model_is_a_wrapper(tmp_path: Path) -> None:
    seen: dict[str, Any] = {}

    def look(runner: Any) -> None:
        seen["wrapper"] = isinstance(runner.model, torch.nn.DataParallel)
        seen["inner"] = runner.model.module is runner.module
        seen["keys"] = list(runner.model.state_dict())
        seen["name"] = runner.model_name
        runner.model.module.momentum = 0.5

    trainer = fit(tmp_path, old(before_run=look))
    assert seen == {
        "wrapper": True,
        "inner": True,
        "keys": ["module.net.weight", "module.net.bias"],
        "name": "TinyModule",
    }
    assert trainer.lightning_module.momentum == 0.5


def test_model_argument_picks_the_inner_model(tmp_path: Path) -> None:
    seen = []
    hook = old(before_run=lambda r: seen.append(r.model.module))
    trainer = fit(tmp_path, hook, model=lambda module: module.net)
    assert seen == [trainer.lightning_module.net]


def test_a_deepcopy_of_the_model_in_training_is_a_plain_copy(tmp_path: Path) -> None:
    copies: list[Any] = []

    def take(runner: Any) -> None:
        copies[:] = [copy.deepcopy(runner.model), copy.deepcopy(runner.model.module)]

    trainer = fit(tmp_path, old(after_train_iter=take), max_epochs=1)
    original = trainer.lightning_module
    for one in (copies[0].module, copies[1]):
        assert one is not original
        assert one.training_step.__self__ is one
        assert one._trainer is None
        assert torch.equal(one.net.weight, original.net.weight)
    pickle.dumps(copies[0])


def test_a_deepcopy_in_training_keeps_a_step_set_on_the_instance(tmp_path: Path) -> None:
    def own_step(self: Any, batch: Any, batch_idx: int) -> torch.Tensor:
        return type(self).training_step(self, batch, batch_idx) * 2

    class Module(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.training_step = types.MethodType(own_step, self)

    copies: list[Any] = []
    hook = old(after_train_iter=lambda runner: copies.append(copy.deepcopy(runner.model.module)))
    fit(tmp_path, hook, module=Module, max_epochs=1)
    step = copies[0].training_step
    assert (step.__func__, step.__self__) == (own_step, copies[0])


@pytest.mark.parametrize("direct", [False, True], ids=["runner.model", "the module"])
@pytest.mark.parametrize("native", [False, True], ids=["foreign", "native"])
def test_departure_a_forward_by_a_hook_leaves_no_trace(
    native: bool, direct: bool, tmp_path: Path
) -> None:
    class Module(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.mean = MeanMetric()

        def forward(self, x: Any) -> torch.Tensor:
            return torch.nn.functional.dropout(self.net(x), 0.1)

        def loss(self, batch: Any) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self(batch[0]), batch[1])

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = super().training_step(batch, batch_idx)
            self.mean(loss.detach())
            self.log("mean", self.mean, on_step=True, on_epoch=True)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val", self.loss(batch))

    batch = next(iter(make_loader(1, seed=9)))

    def evaluate(runner: Any) -> None:
        state = torch.get_rng_state()
        module = runner.model.module
        with torch.no_grad():
            if direct:
                module(batch[0])
                module.forward(batch[0])
                module.training_step(batch, 0)
                module.validation_step(batch, 0)
            else:
                runner.model(batch[0])
                runner.model.train_step(batch)
                runner.model.val_step(batch)
        assert torch.equal(torch.get_rng_state(), state)

    calls = dict.fromkeys(STAGES, evaluate)
    hook = type("Evaluate", (Hook,), {k: lambda _, r: evaluate(r) for k in calls})()
    results = []
    for hooks in ([Recorder()], [hook if native else old(**calls)]):
        torch.manual_seed(0)
        trainer = fit(tmp_path, *hooks, module=Module(), val=1, max_epochs=2)
        metrics = {k: float(v) for k, v in trainer.callback_metrics.items()}
        results.append((metrics, trainer.lightning_module.net.weight.tolist()))
    assert results[0] == results[1]


# -- train and eval ------------------------------------------------------------------------


def flags(module: Any) -> list[bool]:
    return [part.training for part in module.modules()]


@pytest.mark.parametrize("val", [0, 1])
@pytest.mark.parametrize("point", ["after_train_epoch", "after_train_iter", "before_train_epoch"])
@pytest.mark.parametrize("through", ["wrapper", "module"])
def test_a_hooks_own_evaluation_does_not_leave_the_module_in_eval(
    through: str, point: str, val: int, tmp_path: Path
) -> None:
    def evaluate(runner: Any) -> None:
        (runner.model if through == "wrapper" else runner.model.module).eval()

    module = TinyNormModule()
    module.net[1].eval()  # frozen by the user before fit
    seen: list[list[bool]] = []
    look = old(before_train_iter=lambda r: seen.append(flags(r.module)))
    fit(tmp_path, old(**{point: evaluate}), look, module=module, val=val, max_epochs=2)
    frozen = [part is not module.net[1] for part in module.modules()]
    assert seen == [frozen] * 8


@pytest.mark.parametrize("val", [0, 1])
def test_flags_that_a_hook_sets_on_purpose_are_trained_with(val: int, tmp_path: Path) -> None:
    """``after_train_epoch`` runs in train mode with gradients, even if a validation has begun."""
    seen: list[Any] = []

    def freeze(runner: Any) -> None:
        seen.append((torch.is_grad_enabled(), all(flags(runner.module))))
        runner.model.module.net[1].eval()

    look = old(before_train_iter=lambda r: seen.append(r.module.net[1].training))
    fit(
        tmp_path,
        old(after_train_epoch=freeze),
        look,
        module=TinyNormModule(),
        val=val,
        max_epochs=2,
    )
    assert seen == [True] * 4 + [(True, True)] + [False] * 4 + [(True, False)]


def test_validation_points_run_in_eval_mode_without_gradients(tmp_path: Path) -> None:
    seen: list[Any] = []
    points = ("before_val_epoch", "before_val_iter", "after_val_iter", "after_val_epoch")
    hook = old(
        **{p: lambda r: seen.append((torch.is_grad_enabled(), r.module.training)) for p in points}
    )
    fit(tmp_path, hook, val=1)
    assert seen == [(False, False)] * 4


@pytest.mark.parametrize("by_epoch", [True, False])
def test_train_step_module_is_put_in_train_mode_as_in_mmcv(by_epoch: bool, tmp_path: Path) -> None:
    import job

    model = job.make_model(kind="conv")
    module = TrainStepModule(model, job.make_optimizer(model))
    seen: list[bool] = []
    hook = old(
        before_train_iter=lambda r: seen.append(r.model.module.training),
        after_train_iter=lambda r: r.model.eval(),
    )
    model.eval()
    adapter = HookAdapter([hook], by_epoch=by_epoch)
    trainer = make_trainer(tmp_path, adapter, max_steps=8, max_epochs=-1)
    trainer.fit(module, job.make_data()[0])
    assert seen == ([True, False, False, False] * 2 if by_epoch else [True] * 8)


# -- writes --------------------------------------------------------------------------------


def test_max_epochs_written_by_a_hook_ends_the_run_after_the_running_epoch(tmp_path: Path) -> None:
    def stop(runner: Any) -> None:
        if runner.epoch == 1:
            runner._max_epochs = runner.epoch + 1

    recorder = Recorder()
    fit(tmp_path, old(after_train_epoch=stop), recorder, max_epochs=5)
    assert recorder.calls[-1][:3] == ("after_run", 2, 8)


def test_max_iters_written_by_a_hook(tmp_path: Path) -> None:
    seen: list[Any] = []

    def write(runner: Any) -> None:
        runner._max_iters = 5

    hook = old(before_run=write, after_run=lambda r: seen.append((r.iter, r.max_iters)))
    adapter = HookAdapter([hook], by_epoch=False)
    make_trainer(tmp_path, adapter, max_steps=9).fit(TinyModule(), make_loader(4))
    assert seen == [(5, 5)]


def test_iter_written_by_a_hook_is_seen_by_iter(tmp_path: Path) -> None:
    seen: list[int] = []

    def write(runner: Any) -> None:
        runner._iter -= 1
        seen.append(runner.iter)
        runner._iter += 1
        seen.append(runner.iter)

    fit(tmp_path, old(after_train_iter=write))
    assert seen == [-1, 0, 0, 1, 1, 2, 2, 3]


def test_hooks_replaced_in_the_list_are_called(tmp_path: Path) -> None:
    calls: list[str] = []
    first = old(before_run=lambda r: None, after_train_iter=lambda r: calls.append("first"))
    other = old(after_train_iter=lambda r: calls.append("other"))

    def swap(runner: Any) -> None:
        if runner.iter == 1:
            runner.hooks[runner.hooks.index(first)] = other

    fit(tmp_path, first, old(before_train_iter=swap))
    assert calls == ["first", "other", "other", "other"]


def test_a_hook_registered_by_a_hook_is_called(tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, old(before_run=lambda r: r.register_hook(recorder, "LOW")))
    assert recorder.points[0] == "before_run"
    assert recorder.points.count("after_train_iter") == 4


def test_call_hook_from_a_hook(tmp_path: Path) -> None:
    recorder = Recorder()
    fit(tmp_path, recorder, old(after_run=lambda r: r.call_hook("after_train_epoch")))
    assert recorder.calls[-1][:3] == ("after_train_epoch", 1, 4)


def test_departure_call_hook_skips_hooks_without_the_method(tmp_path: Path) -> None:
    called: list[int] = []
    caller = old(
        after_run=lambda r: r.call_hook("after_densify"),
        after_densify=lambda r: called.append(r.iter),
    )
    fit(tmp_path, Recorder(), caller)
    assert called == [4]


def test_departure_a_hook_registered_without_a_priority_has_its_familys(tmp_path: Path) -> None:
    found: list[Any] = []

    def register(runner: Any) -> None:
        runner.register_hook(StepLrUpdaterHook(step=1))
        found.extend((type(h).__name__, runner.hooks.priority_of(h)) for h in runner.hooks)

    fit(tmp_path, old(before_run=register))
    assert found == [("StepLrUpdaterHook", 10), ("OldHook", 50)]


def test_any_attribute_is_a_message_and_absent_before(tmp_path: Path) -> None:
    seen: list[bool] = []

    def before(runner: Any) -> None:
        seen.append(hasattr(runner, "ema_model"))
        runner.ema_model = 1

    fit(tmp_path, old(before_run=before, after_run=lambda r: seen.append(hasattr(r, "ema_model"))))
    assert seen == [False, True]


def test_attributes_meta_and_work_dir(tmp_path: Path) -> None:
    seen: list[Any] = []
    meta = {"seed": 1}
    hook = old(before_run=lambda r: seen.append((r.eval_model, r.meta["seed"], r.work_dir)))
    fit(tmp_path, hook, attributes={"eval_model": 7}, meta=meta, work_dir=str(tmp_path / "w"))
    assert seen == [(7, 1, str(tmp_path / "w"))]


def test_the_logger_may_be_replaced(tmp_path: Path, caplog: Any) -> None:
    other = logging.getLogger("other")

    def replace(runner: Any) -> None:
        runner.logger = other

    with caplog.at_level("INFO", "other"):
        fit(tmp_path, old(before_run=replace, after_run=lambda r: r.logger.info("bye")))
    assert ("other", logging.INFO, "bye") in caplog.record_tuples


def test_param_groups_replaced_by_a_hook_are_those_that_train(tmp_path: Path) -> None:
    def only_bias(runner: Any) -> None:
        group = {**runner.optimizer.param_groups[0], "params": [runner.model.module.net.bias]}
        runner.optimizer.param_groups = [group]

    module = TinyModule()
    before = module.net.weight.clone(), module.net.bias.clone()
    fit(tmp_path, old(before_run=only_bias), module=module)
    assert torch.equal(module.net.weight, before[0])
    assert not torch.equal(module.net.bias, before[1])


def test_lr_and_momentum(tmp_path: Path) -> None:
    class Module(TinyModule):
        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(
                [{"params": [self.net.weight]}, {"params": [self.net.bias], "lr": 0.5}], lr=0.1
            )

    seen: list[Any] = []
    look = old(before_run=lambda r: seen.append((r.current_lr(), r.current_momentum())))
    fit(tmp_path, look, module=Module())
    assert seen == [([0.1, 0.5], [0.9, 0.9])]


def test_data_batch_is_there_only_within_an_iteration(tmp_path: Path) -> None:
    seen: list[Any] = []
    hook = old(
        before_train_iter=lambda r: seen.append(len(r.data_batch)),
        after_train_iter=lambda r: seen.append(len(r.data_batch)),
        after_train_epoch=lambda r: seen.append(hasattr(r, "data_batch")),
    )
    fit(tmp_path, hook)
    assert seen == [2] * 8 + [False]


def test_log_buffer_is_fed_with_what_the_module_logs(tmp_path: Path) -> None:
    module = TinyModule()
    histories: list[Any] = []

    def average(runner: Any) -> None:
        histories.append({k: len(v) for k, v in runner.log_buffer.val_history.items()})
        runner.log_buffer.average()
        histories.append(dict(runner.log_buffer.output))

    fit(tmp_path, old(after_train_epoch=average), module=module)
    mean = sum(module.losses) / 4
    assert histories[0] == {"loss": 4, "train_loss": 4}
    assert histories[1] == pytest.approx({"loss": mean, "train_loss": mean})


def test_without_a_logger_hook_the_log_buffer_does_not_grow_for_ever(tmp_path: Path) -> None:
    lengths: list[int] = []

    class Count(Hook):
        def before_run(self, runner: Any) -> None:
            for _ in range(12_000):
                runner.log_buffer.update({"loss": 1.0})

        def after_train_epoch(self, runner: Any) -> None:
            lengths.append(len(runner.log_buffer.val_history["loss"]))

    make_trainer(tmp_path, Count(), max_epochs=2).fit(TinyModule(), make_loader(4))
    assert lengths == [10_004, 10_004]


def test_validation_results_reach_the_log_buffer(tmp_path: Path) -> None:
    seen: list[Any] = []

    def take(runner: Any) -> None:
        seen.append(runner.log_buffer.val_history["val_loss"][-1].item())

    trainer = fit(tmp_path, old(after_val_epoch=take), val=2)
    assert seen == [trainer.callback_metrics["val_loss"].item()]


# -- checkpoints of mmcv's layout ----------------------------------------------------------


ODD_CONTENTS: list[dict[str, Any]] = [
    *({"optimizer": value} for value in ("x", [1], {"state": {}}, {"param_groups": [5]})),
    *({"meta": {"epoch": value, "iter": 4}} for value in ("1", None, -1, 1.5)),
    *({"meta": {"epoch": 1, "iter": value}} for value in (float("nan"), 2**64, True)),
    {"meta": {"epoch": 1}},
    {"meta": "x"},
]


def test_save_checkpoint_writes_mmcvs_layout_and_resume_reads_it(tmp_path: Path) -> None:
    def save(runner: Any) -> None:
        runner.meta["hook_msgs"] = {"last": "x"}
        runner.save_checkpoint(runner.work_dir, save_optimizer=True, meta={"note": 1})

    module = TinyModule()
    fit(tmp_path, old(after_train_epoch=save), module=module, val=1, max_epochs=2)
    assert (tmp_path / "latest.pth").resolve().name == "epoch_2.pth"
    saved = torch.load(tmp_path / "epoch_1.pth", weights_only=True)
    assert sorted(saved) == ["meta", "optimizer", "state_dict"]
    assert list(saved["state_dict"]) == ["net.weight", "net.bias"]
    meta = saved["meta"]
    assert (meta["epoch"], meta["iter"], meta["note"]) == (1, 4, 1)
    assert meta["hook_msgs"] == {"last": "x"}

    recorder, again = Recorder(), TinyModule(seed=5)
    resume = old(before_run=lambda r: r.resume(str(tmp_path / "epoch_1.pth")))
    fit(tmp_path, resume, recorder, module=again, val=1, max_epochs=2)
    assert recorder.calls[1][:3] == ("before_train_epoch", 1, 4)
    assert recorder.calls[-1][:3] == ("after_run", 2, 8)
    assert torch.equal(again.net.weight, module.net.weight)


@pytest.mark.parametrize("nonsense", ODD_CONTENTS, ids=repr)
def test_nonsense_in_a_file_of_mmcvs_is_named_by_file_and_key(
    tmp_path: Path, nonsense: dict[str, Any]
) -> None:
    path, module = tmp_path / "odd.pth", TinyModule()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1).state_dict()
    intact = {"meta": {"epoch": 1, "iter": 4}, "optimizer": optimizer}
    torch.save({**intact, "state_dict": module.state_dict(), **nonsense}, path)
    (key,) = nonsense
    with pytest.raises(DamagedCheckpointError, match=rf"odd\.pth's '{key}' is damaged: .* must "):
        fit(tmp_path, old(before_run=lambda r: r.resume(str(path))))


def test_the_numbers_of_a_resumed_file_take_no_time(tmp_path: Path) -> None:
    meta = {"epoch": 1, "iter": 10**12}
    path, seen = tmp_path / "odd.pth", []
    torch.save({"meta": meta, "state_dict": TinyModule().state_dict()}, path)
    fit(
        tmp_path,
        old(
            before_run=lambda r: r.resume(str(path)),
            after_run=lambda r: seen.append(r.optimizer_steps),
        ),
        callbacks=[GradientAccumulationScheduler({1: 4, 3: 2})],
        max_epochs=2,
    )
    # of 4 batches: 4 steps in the first epoch, 1 in each of two, 2 in each of the others
    assert seen == [4 + 2 + 2 * (10**12 // 4 - 3) + 1]


def test_a_file_of_another_number_of_optimizers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.ckpt"
    fit(tmp_path, old(after_run=lambda r: r.trainer.save_checkpoint(path)))
    saved = torch.load(path, weights_only=True)
    torch.save({**saved, "optimizer_states": saved["optimizer_states"] * 2}, path)
    with pytest.raises(ValueError, match=r"two\.ckpt's .* of 2 optimizers, and the run has 1"):
        fit(tmp_path, old(before_run=lambda r: r.resume(str(path))))


def test_a_file_of_two_gpus_is_resumed_at_the_iteration_of_one(tmp_path: Path) -> None:
    meta = {"epoch": 1, "iter": 2, "config": "gpu_ids = range(0, 2)\n"}
    torch.save({"meta": meta, "state_dict": TinyModule().state_dict()}, tmp_path / "epoch_1.pth")
    recorder = Recorder()
    resume = old(before_run=lambda r: r.resume(str(tmp_path / "epoch_1.pth")))
    fit(tmp_path, resume, recorder, max_epochs=2)
    assert recorder.calls[1][:3] == ("before_train_epoch", 1, 4)
    assert recorder.calls[-1][:3] == ("after_run", 2, 8)


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
@pytest.mark.parametrize("hook", [EMAHook, CheckpointHook])
def test_ckpt_path_of_a_file_of_mmcvs_layout_says_what_to_write(
    tmp_path: Path, hook: Any, host: bool
) -> None:
    save = old(after_run=lambda runner: runner.save_checkpoint(runner.work_dir))
    module = fit(tmp_path, save, batches=1).lightning_module
    path = str(next(tmp_path.glob("epoch_*.pth")))
    with pytest.raises(KeyError, match=r"of mmcv's layout.*ClosureHook\('before_run', lambda"):
        fit(tmp_path, hook(), host=host, ckpt_path=path)
    trainer = make_trainer(tmp_path, HookAdapter([hook()]))
    with pytest.raises(KeyError, match=r"no checkpoint of Lightning's.*\['state_dict'\]\); of"):
        trainer.validate(TinyModule(), make_loader(), ckpt_path=path)
    assert type(trainer.strategy.checkpoint_io) is TorchCheckpointIO
    again = TinyModule(seed=5)
    again.load_state_dict(torch.load(path)["state_dict"])  # as the message suggests
    assert torch.equal(again.net.weight, module.net.weight)
    torch.save(module.net.state_dict(), path)
    with pytest.raises(KeyError, match=r"load_state_dict\(torch.load\('.*'\)\);"):
        fit(tmp_path, hook(), host=host, ckpt_path=path)


def test_resume_from_a_checkpoint_of_lightnings(tmp_path: Path) -> None:
    class Save(Hook):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            trainer.save_checkpoint(tmp_path / "one.ckpt")

    whole = fit(tmp_path, Recorder(), max_epochs=2).lightning_module
    fit(tmp_path, Save(), max_epochs=1)
    recorder = Recorder()
    resume = old(before_run=lambda r: r.resume(str(tmp_path / "one.ckpt")))
    again = fit(tmp_path, resume, recorder, module=TinyModule(seed=5), max_epochs=2)
    assert recorder.calls[1][:3] == ("before_train_epoch", 1, 4)
    assert torch.equal(again.lightning_module.net.weight, whole.net.weight)


def test_a_training_step_called_by_a_hook_is_not_the_runs(tmp_path: Path) -> None:
    seen: list[Any] = []

    def step(runner: Any) -> None:
        before = runner.outputs["loss"]
        runner.model.train_step(runner.data_batch)
        runner.module.training_step(runner.data_batch, 0)
        seen.append(runner.outputs["loss"] is before)

    trainer = fit(tmp_path, old(after_train_iter=step))
    assert seen == [True] * 4
    assert trainer.global_step == 4


def test_save_checkpoint_of_another_model(tmp_path: Path) -> None:
    def save(runner: Any) -> None:
        kept, runner.model = runner.model, torch.nn.Linear(1, 1)
        runner.save_checkpoint(str(tmp_path / "out"), "fixed.pth", create_symlink=False)
        runner.model = kept

    fit(tmp_path, old(after_train_epoch=save))
    saved = torch.load(tmp_path / "out" / "fixed.pth", weights_only=True)
    assert saved["state_dict"]["weight"].shape == (1, 1)


class Net(torch.nn.Module):
    """A model of mmcv's protocol."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.net = torch.nn.Linear(4, 2)
        self.steps = 0

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        self.steps += 1
        return {"loss": torch.nn.functional.mse_loss(self.net(data[0]), data[1])}

    val_step = train_step


@pytest.mark.parametrize("owned", [False, True])
def test_a_model_that_a_hook_assigns_is_the_one_that_trains(owned: bool, tmp_path: Path) -> None:
    """As in mmcv, the old optimizer steps until the hook assigns a new optimizer."""
    first, second = Net(0), Net(1)
    before = second.net.weight.detach().clone()
    seen: list[Any] = []

    def replace(runner: Any) -> None:
        if runner.iter == 2:
            kept, runner.model = runner.model, torch.nn.Module()  # for a moment: no harm
            runner.model = kept
        if runner.iter == 3:
            runner.model = second
            runner.optimizer = torch.optim.SGD(second.parameters(), lr=0.1)
        seen.append(type(runner.model.module).__name__ if runner.iter != 3 else None)

    hooks = [old(after_train_iter=replace), *([OptimizerHook()] if owned else [])]
    module = TrainStepModule(first, torch.optim.SGD(first.parameters(), lr=0.1))
    trainer = fit(tmp_path, *hooks, module=module, val=1, max_epochs=2)
    assert (first.steps, second.steps) == (4 + 1, 4 + 2)  # one more step by the sanity check
    assert trainer.global_step == 8
    assert not torch.equal(second.net.weight, before)
    assert seen[-1] == "Net"
    assert module.model is second
    assert torch.equal(module.state_dict()["net.weight"], second.net.weight)


def test_a_lightning_module_that_a_hook_assigns_lends_its_weights(tmp_path: Path) -> None:
    other, seen = TinyModule(seed=7), []

    def replace(runner: Any) -> None:
        runner.model = other
        runner.optimizer = torch.optim.SGD(other.parameters(), lr=0.0)

    look = old(before_train_iter=lambda r: seen.append(r.module.net.weight is other.net.weight))
    module = fit(tmp_path, old(before_train_epoch=replace), look).lightning_module
    assert seen == [True] * 4
    assert torch.equal(module.net.weight, TinyModule(seed=7).net.weight)


@pytest.mark.parametrize("owned", [False, True])
def test_a_model_assigned_before_the_run_is_the_one_of_which_hooks_keep_an_average(
    owned: bool, tmp_path: Path
) -> None:
    first, second = Net(0), Net(1)
    start = second.net.weight.detach().clone()

    def replace(runner: Any) -> None:
        kept, runner.model = runner.model, torch.nn.Module()  # for a moment: no harm
        runner.model = kept
        runner.model = second
        runner.optimizer = torch.optim.SGD(second.parameters(), lr=0.1)

    ema = EMAHook(momentum=0.25, warm_up=0, after_fit="raw")
    hooks = [(old(before_run=replace), "VERY_HIGH"), ema, *([OptimizerHook()] if owned else [])]
    module = TrainStepModule(first, torch.optim.SGD(first.parameters(), lr=0.1))
    fit(tmp_path, *hooks, module=module, limit_train_batches=1)
    want = torch.lerp(start, second.net.weight.detach(), 0.25)
    assert not torch.equal(start, second.net.weight)
    torch.testing.assert_close(ema.ema_state_dict()["net.weight"], want)


@pytest.mark.parametrize("module", [TinyModule(), TrainStepModule(Net(0))])
def test_a_model_that_cannot_be_trained_is_refused(module: Any, tmp_path: Path) -> None:
    def replace(runner: Any) -> None:
        runner.model = torch.nn.Linear(1, 1)

    if isinstance(module, TrainStepModule):
        module = TrainStepModule(Net(0), torch.optim.SGD(module.model.parameters(), lr=0.1))
    with pytest.raises(TypeError, match=r"runner\.model was replaced by a Linear.*train_step"):
        fit(tmp_path, old(before_train_epoch=replace), module=module)


@pytest.mark.parametrize("prefix", ["", "module.", "model."])
def test_load_checkpoint_with_any_prefix(prefix: str, tmp_path: Path) -> None:
    other = TinyModule(seed=3)
    file = tmp_path / "weights.pth"
    torch.save({"state_dict": {prefix + k: v for k, v in other.state_dict().items()}}, file)
    loaded: list[bool] = []

    def load(runner: Any) -> None:
        runner.load_checkpoint(str(file), strict=True)
        loaded.append(torch.equal(runner.model.module.net.weight, other.net.weight))

    fit(tmp_path, old(before_run=load))
    assert loaded == [True]


def test_load_checkpoint_says_what_does_not_fit(tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "weights.pth"
    torch.save({"state_dict": {"net.weight": torch.zeros(9, 9), "old.bias": torch.zeros(1)}}, file)
    with caplog.at_level("WARNING", "lightning_hooks"):
        fit(tmp_path, old(before_run=lambda r: r.load_checkpoint(str(file))))
    text = caplog.text
    assert "unexpected keys: old.bias" in text
    assert "missing keys: net.bias" in text
    assert "size mismatch keys: net.weight" in text


def test_resume_by_iteration(tmp_path: Path) -> None:
    def save(runner: Any) -> None:
        if runner.iter == 4:
            runner.save_checkpoint(runner.work_dir)

    adapter = HookAdapter([old(after_train_iter=save)], by_epoch=False)
    make_trainer(tmp_path, adapter, max_steps=6).fit(TinyModule(), make_loader(4))
    saved = torch.load(tmp_path / "iter_5.pth", weights_only=True)
    assert saved["meta"]["iter"] == 4
    seen: list[int] = []
    hook = old(
        before_run=lambda r: r.resume(str(tmp_path / "iter_5.pth")),
        before_train_iter=lambda r: seen.append(r.iter),
    )
    trainer = make_trainer(tmp_path, HookAdapter([hook], by_epoch=False), max_steps=2)
    trainer.fit(TinyModule(), make_loader(4))
    assert seen == [4, 5]


def test_departure_by_iteration_the_epoch_goes_on_after_a_resume(tmp_path: Path) -> None:
    def epochs(ckpt: Path | None = None) -> list[int]:
        seen: list[int] = []
        look = old(before_train_iter=lambda r: seen.append(r.epoch))
        hooks = [look, CheckpointHook(interval=4, by_epoch=False)]
        adapter = HookAdapter(hooks, by_epoch=False)
        trainer = make_trainer(tmp_path, adapter, max_steps=7)
        trainer.fit(TinyModule(), make_loader(2), ckpt_path=ckpt)
        return seen

    assert epochs() == [0, 0, 0, 1, 1, 2, 2]
    assert epochs(tmp_path / "iter_4.pth") == [1, 2, 2]


# -- native hooks written in mmcv's way ----------------------------------------------------


class Mine(Hook):
    def __init__(self, n: int) -> None:
        self.n = n
        self.lines: list[int] = []

    def log(self, runner: Any) -> None:
        self.lines.append(runner.iter)

    def after_train_iter(self, runner: Any) -> None:
        if self.every_n_iters(runner, self.n):
            self.log(runner)


def test_a_subclass_that_never_calls_super_init_and_has_its_own_log(tmp_path: Path) -> None:
    hook = pickle.loads(pickle.dumps(copy.deepcopy(Mine(2))))
    trainer = make_trainer(tmp_path, hook)
    trainer.fit(TinyModule(), make_loader(4))
    assert hook.lines == [1, 3]
    assert pickle.loads(pickle.dumps(hook)).lines == [1, 3]


def test_a_call_of_the_model_needs_no_private_method_of_torchmetrics(tmp_path: Path) -> None:
    class Old(CatMetric):
        """A metric of torchmetrics before 1.4, which cannot copy its state."""

        _copy_state_dict = None  # type: ignore[assignment]

    class Measures(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.seen = Old()

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.seen.update(batch[0][0, 0])

    def call(runner: Any) -> None:
        runner.model.val_step(runner.data_batch)

    module, hooks = Measures(), [EMAHook(), old(before_val_iter=call)]
    fit(tmp_path, *hooks, module=module, val=3, num_sanity_val_steps=0)
    assert module.seen.compute().tolist() == [x[0, 0] for x, _ in make_loader(3)]


def test_a_plain_hook_has_no_state_and_many_may_be_given(tmp_path: Path) -> None:
    checkpoint = ModelCheckpoint(dirpath=tmp_path)
    trainer = make_trainer(tmp_path, Recorder(), Recorder(), checkpoint, enable_checkpointing=True)
    trainer.fit(TinyModule(), make_loader(1))
    saved = torch.load(checkpoint.best_model_path, weights_only=True)
    assert not [key for key in saved["callbacks"] if "Recorder" in key]
