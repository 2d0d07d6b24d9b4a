"""The stand-in's runners: mmcv's order of calls and interface, a Trainer underneath."""

from __future__ import annotations

import copy
import signal
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import distributed, nn
from torch.distributed import HashStore
from torch.utils.data import DataLoader, TensorDataset

import lightning_hooks
from lightning_hooks import HookAdapter, schedules
from lightning_hooks.standin.runner import strategy
from support.golden import recorded
from support.standin import Idle, make, silent_logger

GOLDEN = recorded("traces")
GENERIC = ("before_epoch", "after_epoch", "before_iter", "after_iter")


def loaders(*lengths: int) -> list[Any]:
    return [DataLoader(range(length)) for length in lengths]


def recorder(points: Any, calls: list[Any]) -> Any:
    from mmcv.runner import Hook

    columns = GOLDEN["columns"][1:]

    def note(point: str) -> Any:
        def method(self: Any, runner: Any) -> None:
            calls.append([point, *(getattr(runner, column) for column in columns)])

        return method

    return type("Recorder", (Hook,), {point: note(point) for point in points})()


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_the_calls_are_mmcvs_for_every_workflow(case: str, tmp_path: Path) -> None:
    from mmcv.runner import HOOKS, Hook

    want = GOLDEN["cases"][case]
    workflow = [tuple(part) for part in want["workflow"]]
    runner = make(want["runner"], want["limit"], tmp_path)
    end = want["resumed_after_epoch"]
    if end:
        first = make(want["runner"], end, tmp_path)
        first.register_hook(HOOKS.build({"type": "CheckpointHook", "interval": end}))
        first.run(loaders(*want["loaders"]), workflow)
        runner.resume(f"{tmp_path}/epoch_{end}.pth")
    points: list[Any] = []
    generic: list[Any] = []
    runner.register_hook(recorder(Hook.stages, points))
    runner.register_hook(recorder(GENERIC, generic))
    runner.run(loaders(*want["loaders"]), workflow)
    assert points == want["points"]
    assert generic == want["generic"]


def test_validation_alone_is_one_pass(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    calls: list[Any] = []
    runner = make("EpochBasedRunner", 3, tmp_path, optimizer=None)
    runner.register_hook(recorder(Hook.stages, calls))
    runner.run(loaders(2), [("val", 1)])
    assert [call[0] for call in calls] == [
        "before_run",
        "before_val_epoch",
        *["before_val_iter", "after_val_iter"] * 2,
        "after_val_epoch",
        "after_run",
    ]
    assert (runner.epoch, runner.iter) == (0, 0)


def test_a_finished_run_calls_only_before_run_and_after_run(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    runner = make("EpochBasedRunner", 2, tmp_path)
    runner.run(loaders(2), [("train", 1)])
    calls: list[Any] = []
    runner.register_hook(recorder(Hook.stages, calls))
    runner.run(loaders(2), [("train", 1)])
    assert [call[0] for call in calls] == ["before_run", "after_run"]
    runner._max_epochs = 3
    runner.run(loaders(2), [("train", 1)])
    assert (runner.epoch, runner.iter) == (3, 6)


def test_runners_of_mmcv_and_of_a_trainer_are_instances_of_mmcvs_classes(tmp_path: Path) -> None:
    from mmcv.runner import BaseRunner, EpochBasedRunner, Hook, IterBasedRunner

    seen: list[Any] = []

    class Look(Hook):
        def before_run(self, runner: Any) -> None:
            seen.append(
                [isinstance(runner, c) for c in (BaseRunner, EpochBasedRunner, IterBasedRunner)]
            )

    epoch = make("EpochBasedRunner", 1, tmp_path)
    epoch.register_hook(Look())
    epoch.run(loaders(1), [("train", 1)])
    iteration = make("IterBasedRunner", 1, tmp_path)
    iteration.register_hook(Look())
    iteration.run(loaders(1), [("train", 1)])
    model = Idle()
    module = lightning_hooks.TrainStepModule(model, torch.optim.SGD(model.parameters(), lr=0.1))
    trainer = L.Trainer(
        max_epochs=1,
        callbacks=[HookAdapter([Look()])],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, DataLoader(range(1)), DataLoader(range(1)))
    assert seen == [[True, True, False], [True, False, True], [True, True, False]]

    class Own(EpochBasedRunner):
        pass

    assert not isinstance(epoch, Own)


@pytest.mark.parametrize("has_group", [True, False])
def test_a_process_groups_threads_are_done_when_a_run_ends(
    has_group: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program is aborted if it exits while gloo returns a tensor to Python."""
    waited: list[float] = []
    monkeypatch.setattr(strategy.time, "sleep", waited.append)
    if has_group:
        distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        runner = make("EpochBasedRunner", 1, tmp_path)
        runner.register_optimizer_hook(dict(grad_clip=None))
        runner.run([DataLoader(list(range(2)))], [("train", 1)])
    finally:
        if has_group:
            distributed.destroy_process_group()
    assert waited == [strategy.PAUSE] * has_group


def test_lightning_is_the_engine_and_takes_arguments(tmp_path: Path) -> None:
    seen: list[str] = []

    class Callback(L.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.append("train")

        def on_validation_batch_end(self, *args: Any) -> None:
            seen.append("val")

    runner = make(
        "EpochBasedRunner", 1, tmp_path, trainer_kwargs=dict(callbacks=[Callback()], devices=1)
    )
    assert isinstance(runner.trainer, L.Trainer)
    runner.register_optimizer_hook(dict(grad_clip=None))
    runner.run(loaders(2, 1), [("train", 1), ("val", 1)])
    assert seen == ["train", "train", "val"]
    assert runner.trainer.global_step == 2
    with pytest.raises(ValueError, match="trainer_kwargs must not have logger, max_epochs"):
        make("EpochBasedRunner", 1, tmp_path, trainer_kwargs=dict(max_epochs=3, logger=True))


def test_callbacks_and_native_hooks_start_before_the_loop(tmp_path: Path) -> None:
    seen: list[str] = []

    class Callback(L.Callback):
        def on_train_start(self, *args: Any) -> None:
            seen.append("start")

        def on_train_batch_start(self, *args: Any) -> None:
            seen.append("batch")

    runner = make("EpochBasedRunner", 1, tmp_path, trainer_kwargs=dict(callbacks=[Callback()]))
    runner.register_optimizer_hook(dict(grad_clip=None))
    runner.register_lr_hook(dict(policy="step", step=[1]))
    runner.register_lr_hook(dict(policy="exp", gamma=0.1))
    with pytest.warns(UserWarning, match="Step.* and Exp.* set the learning rate .* all but one$"):
        runner.run(loaders(2), [("train", 1)])
    assert seen == ["start", "batch", "batch"]


def test_a_step_calls_no_event_of_lightning_without_a_listener(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    calls: list[str] = []

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.endswith("trainer/call.py"):
            calls.append(frame.f_code.co_name)

    class Watch(Hook):
        def before_train_iter(self, runner: Any) -> None:
            sys.setprofile(note if runner.iter == 1 else None)

    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_optimizer_hook(dict(grad_clip=None))
    runner.register_hook(Watch(), "VERY_HIGH")
    runner.run(loaders(3), [("train", 1)])
    assert calls == []
    assert runner.trainer.global_step == 3


def test_a_native_hook_puts_back_the_weights_of_the_start(tmp_path: Path) -> None:
    class Fails(Idle):
        def train_step(self, data: Any, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
            outputs = super().train_step(data, optimizer, **kwargs)
            return {**outputs, "loss": outputs["loss"] * (float("nan") if runner.iter else 1)}

    runner = make("EpochBasedRunner", 1, tmp_path, model=Fails())
    runner.register_optimizer_hook(dict(grad_clip=None))
    runner.register_hook(lightning_hooks.CheckInvalidLossHook(interval=2, action="restore"))
    first = runner.model.weight.detach().clone()
    runner.run(loaders(2), [("train", 1)])
    assert torch.equal(runner.model.weight, first)


def test_native_hooks_get_the_events_of_the_loop(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    weights: list[float] = []

    class Look(Hook):
        def before_val_iter(self, runner: Any) -> None:
            weights.append(runner.model.weight.item())

        after_run = before_val_iter

    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_optimizer_hook(dict(grad_clip=None))
    runner.register_hook(lightning_hooks.ExpMomentumEMAHook(momentum=0.5))
    runner.register_hook(Look(), "LOWEST")
    runner.run(loaders(3, 1), [("train", 1), ("val", 1)])
    averaged, raw = weights
    assert raw == pytest.approx(0.7)
    assert averaged > raw + 1e-4


@pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])
def test_a_hook_may_end_the_run_after_an_iteration(kind: str, tmp_path: Path) -> None:
    from mmcv.runner import Hook

    class Stop(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = runner.iter == 1

    runner = make(kind, 5, tmp_path)
    runner.register_hook(Stop())
    runner.run(loaders(3), [("train", 1)])
    assert runner.iter == 2


def test_a_workflow_may_name_a_method_of_a_subclass(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    class Own(EpochBasedRunner):
        def twice(self, data_loader: Any, **kwargs: Any) -> None:
            self.train([*data_loader] * 2, **kwargs)

    runner = Own(Idle(), work_dir=str(tmp_path), logger=silent_logger(), max_epochs=2)
    runner.run(loaders(3), [("twice", 1)])
    assert (runner.epoch, runner.iter, runner.max_iters) == (2, 12, 12)


def test_a_subclass_that_trains_in_its_own_way_knows_its_length_at_once(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner, Hook

    lengths = []

    class Own(EpochBasedRunner):
        def train(self, data_loader: Any, **kwargs: Any) -> None:
            super().train(data_loader, **kwargs)

    class Look(Hook):
        def before_run(self, runner: Any) -> None:
            lengths.append(runner.max_iters)

    runner = Own(Idle(), work_dir=str(tmp_path), logger=silent_logger(), max_epochs=2)
    runner.register_hook(Look())
    runner.run(loaders(3), [("train", 1)])
    assert lengths == [6]


def test_hooks_see_the_very_model_and_what_is_set_on_the_runner(tmp_path: Path) -> None:
    from mmcv.parallel import MMDataParallel, is_module_wrapper
    from mmcv.runner import Hook

    seen: list[Any] = []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append((runner.model, runner.flag, copy.deepcopy(runner.model)))

    for model in (Idle(), MMDataParallel(Idle(), device_ids=[])):
        runner = make("EpochBasedRunner", 1, tmp_path, model)
        runner.flag = "set"
        runner.register_hook(Look())
        runner.run(loaders(1), [("train", 1)])
        [(found, flag, copied)] = seen
        assert found is model
        assert flag == "set"
        assert type(copied) is type(model)
        assert is_module_wrapper(found) == isinstance(model, MMDataParallel)
        seen.clear()


def test_hooks_of_an_old_project_step_themselves(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    class Step(Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.optimizer.zero_grad()
            runner.outputs["loss"].backward()
            runner.optimizer.step()

    runner = make("EpochBasedRunner", 2, tmp_path)
    runner.register_hook(Step())
    runner.run(loaders(3), [("train", 1)])
    assert runner.model.weight.item() == pytest.approx(1 - 0.1 * 2 * (0 + 1 + 2))
    assert runner.trainer.global_step == 6


def test_a_hook_ends_the_run_early_and_changes_the_data(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    lengths: list[int] = []

    class Change(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner.data_loader = DataLoader(range(5))

        def after_train_epoch(self, runner: Any) -> None:
            lengths.append(runner.inner_iter + 1)
            if runner.epoch == 2:
                runner._max_epochs = runner.epoch + 1

    runner = make("EpochBasedRunner", 10, tmp_path)
    runner.register_hook(Change())
    runner.run(loaders(3), [("train", 1)])
    assert lengths == [3, 5, 3]
    assert runner.epoch == 3


def test_before_run_sees_the_loaders_that_a_script_has_set(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    class Seen(Hook):
        def before_run(self, runner: Any) -> None:
            self.steps = len(runner.data_loader[0])

        def before_train_epoch(self, runner: Any) -> None:
            assert runner.data_loader is data[0]

    for kind in ("EpochBasedRunner", "IterBasedRunner"):
        data, hook = loaders(3), Seen()
        runner = make(kind, 2, tmp_path)
        runner.register_hook(hook)
        runner.data_loader = data  # as in easycv's runner
        runner.run(data, [("train", 1)])
        assert hook.steps == 3
        assert runner.iter == (6 if kind == "EpochBasedRunner" else 2)


def test_run_iter_may_be_overridden(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    class Doubling(EpochBasedRunner):
        def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
            super().run_iter(data_batch * 2, train_mode, **kwargs)

    model = Idle()
    arguments = dict(work_dir=str(tmp_path), logger=silent_logger(), max_epochs=1)
    runner = Doubling(model, **arguments)
    runner.run(loaders(3), [("train", 1)])
    assert runner.log_buffer.val_history["loss"] == [0, 2, 4]
    with pytest.raises(NotImplementedError, match=r"run\(data_loaders, workflow\)"):
        runner.train(loaders(1)[0])


def test_run_may_be_overridden_with_a_call_of_super(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    class Twice(EpochBasedRunner):
        def run(self, data_loaders: Any, workflow: Any, **kwargs: Any) -> None:
            self.call_hook("before_all")
            super().run([*data_loaders] * 2, workflow * 2, **kwargs)

    model = Idle()
    arguments = dict(work_dir=str(tmp_path), logger=silent_logger(), max_epochs=2)
    runner = Twice(model, **arguments)
    runner.run(loaders(3), [("train", 1)])
    assert runner.iter == 6


def test_a_batch_processor_runs_the_model(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    def process(model: Any, data: Any, train_mode: bool) -> dict[str, Any]:
        loss = model(data.float()).sum()
        return {"loss": loss, "log_vars": {"loss": float(train_mode)}, "num_samples": 1}

    with pytest.warns(DeprecationWarning, match="batch_processor is deprecated"):
        runner = EpochBasedRunner(
            nn.Linear(1, 1), process, work_dir=str(tmp_path), logger=silent_logger(), max_epochs=1
        )
    runner.run(loaders(2, 1), [("train", 1), ("val", 1)])
    assert runner.log_buffer.val_history["loss"] == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (dict(logger=None), TypeError, "logger must be a logging.Logger"),
        (dict(optimizer="SGD"), TypeError, "optimizer must be a torch.optim.Optimizer"),
        (dict(optimizer={"a": 1}), TypeError, r"optimizer\['a'\]"),
        (dict(meta=[]), TypeError, "meta must be a dict"),
        (dict(max_iters=1), ValueError, "Only one of"),
        (dict(work_dir=1), TypeError, "work_dir"),
        (dict(model=nn.Linear(1, 1)), AssertionError, "Linear has no train_step"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], error: Any, message: str, tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    given = dict(model=Idle(), logger=silent_logger(), work_dir=str(tmp_path), max_epochs=1)
    with pytest.raises(error, match=message):
        EpochBasedRunner(**{**given, **arguments})


@pytest.mark.parametrize(
    ("data", "workflow", "error", "message"),
    [
        (1, [("train", 1)], TypeError, "data_loaders must be a list"),
        ([1], ("train", 1), TypeError, "workflow must be a list of tuples"),
        ([1], [("train", 1), ("val", 1)], ValueError, "a data loader for each part"),
        ([[1]], [("test", 1)], ValueError, 'no method named "test"'),
        ([[1]], [(1, 1)], TypeError, "must be a str"),
    ],
)
def test_bad_workflows(data: Any, workflow: Any, error: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        make("EpochBasedRunner", 1, tmp_path).run(data, workflow)


@pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])
def test_meta_of_checkpoint_config_is_in_each_file(kind: str, tmp_path: Path) -> None:
    by_epoch = kind == "EpochBasedRunner"
    runner = make(kind, 2, tmp_path)
    config = dict(interval=1, by_epoch=by_epoch, meta=dict(CLASSES=("cat", "dog")))
    runner.register_checkpoint_hook(config)
    runner.run(loaders(1), [("train", 1)])
    for number in (1, 2):
        path = tmp_path / f"{'epoch' if by_epoch else 'iter'}_{number}.pth"
        assert torch.load(path, weights_only=False)["meta"]["CLASSES"] == ("cat", "dog")


def test_configs_are_not_changed_and_hooks_come_in_mmcvs_order(tmp_path: Path) -> None:
    configs: dict[str, Any] = dict(
        lr_config=dict(policy="step", step=[1]),
        optimizer_config=dict(grad_clip=None),
        checkpoint_config=dict(interval=1),
        log_config=dict(interval=5, hooks=[dict(type="TextLoggerHook")]),
        momentum_config=dict(policy="cyclic"),
        custom_hooks_config=[dict(type="EMAHook", priority=49)],
    )
    before = copy.deepcopy(configs)
    for kind in ("EpochBasedRunner", "IterBasedRunner"):
        runner = make(kind, 3, tmp_path)
        runner.register_training_hooks(**configs)
        assert configs == before
        assert [type(hook).__name__ for hook in runner.hooks] == [
            "StepLrUpdaterHook",
            "CyclicMomentumUpdaterHook",
            "OptimizerHook",
            "EMAHook",
            "CheckpointHook",
            "IterTimerHook",
            "TextLoggerHook",
        ]
        by_epoch = kind == "EpochBasedRunner"
        assert {runner.hooks[i].by_epoch for i in (0, 4, 6)} == {by_epoch}
        assert runner.hooks[6].interval == 5


def test_an_ema_subclass_finds_mmcvs_attributes(tmp_path: Path) -> None:
    from mmcv.runner.hooks.ema import EMAHook

    class Reader(EMAHook):
        def after_train_iter(self, runner: Any) -> None:
            super().after_train_iter(runner)
            self.seen = dict(runner.model.named_buffers())[self.param_ema_buffer["weight"]].clone()

    hook = Reader(momentum=0.5, warm_up=1)
    runner = make("EpochBasedRunner", 2, tmp_path)
    runner.register_optimizer_hook({})
    runner.register_hook(hook)
    runner.run(loaders(2), [("train", 1)])
    assert hook.momentum == 0.5
    assert list(hook.model_parameters) == ["weight"]
    assert "ema_weight" in runner.model.state_dict()
    # swapped at the end of the last epoch: the model has the average
    assert torch.equal(runner.model.weight.data, hook.seen)


def test_several_optimizers_by_name(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))

        def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
            for name, parameter in (("a", self.a), ("b", self.b)):
                optimizer[name].zero_grad()
                parameter.sum().backward()
                optimizer[name].step()
            return {"log_vars": {"x": 1.0}, "num_samples": 1}

    model = Two()
    optimizers = {n: torch.optim.SGD([getattr(model, n)], lr=r) for n, r in (("a", 0.1), ("b", 1))}
    runner = make("IterBasedRunner", 3, tmp_path, model, optimizer=optimizers)
    runner.register_checkpoint_hook(dict(interval=3, by_epoch=False))
    runner.run(loaders(2), [("train", 1)])
    assert model.a.item() == pytest.approx(0.7)
    assert model.b.item() == pytest.approx(-2)
    again = make("IterBasedRunner", 5, tmp_path, model, optimizer=optimizers)
    again.resume(f"{tmp_path}/iter_3.pth")
    again.run(loaders(2), [("train", 1)])
    assert again.iter == 5
    assert again.current_lr() == {"a": [0.1], "b": [1]}


def test_an_error_in_a_hook_comes_out_and_the_runner_can_run_again(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    class Fail(Hook):
        fails = True

        def after_train_iter(self, runner: Any) -> None:
            if self.fails and runner.iter == 1:
                raise RuntimeError("enough")

    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_hook(Fail())
    with pytest.raises(RuntimeError, match="enough"):
        runner.run(loaders(3), [("train", 1)])
    Fail.fails = False
    fresh = make("EpochBasedRunner", 1, tmp_path)
    fresh.register_hook(Fail())
    fresh.run(loaders(3), [("train", 1)])
    assert fresh.iter == 3


def test_a_part_without_iterations_begins_at_0_too(tmp_path: Path) -> None:
    runner = make("IterBasedRunner", 2, tmp_path)
    runner.run(loaders(3, 3), [("train", 2), ("train", 1)])
    assert (runner.iter, runner.inner_iter) == (2, 0)


def test_an_interrupt_comes_out_as_it_is_and_the_next_counts_too(tmp_path: Path) -> None:
    """Old scripts save and go on after a ``KeyboardInterrupt``; Lightning exits the program."""
    from mmcv.runner import Hook

    class Press(Hook):
        def after_train_iter(self, runner: Any) -> None:
            raise KeyboardInterrupt

    runner = make("IterBasedRunner", 3, tmp_path)
    runner.register_hook(Press())
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        runner.run(loaders(3), [("train", 1)])
    assert signal.getsignal(signal.SIGINT) is handler
    runner.save_checkpoint(str(tmp_path))
    assert (tmp_path / "iter_1.pth").exists()


@pytest.mark.parametrize("loaders", [1, 2])
def test_a_loaders_own_generator_draws_as_in_a_for_loop(loaders: int, tmp_path: Path) -> None:
    """torch's sampler draws once more at its end, but not if the iterator is abandoned before."""

    class Order(Idle):
        def __init__(self) -> None:
            super().__init__()
            self.order: list[int] = []

        def train_step(self, data: Any, optimizer: Any = None, **kwargs: Any) -> dict[str, Any]:
            self.order += data.tolist()
            return super().train_step(data, optimizer)

        val_step = train_step

    def make_loaders() -> list[Any]:
        seeds = [torch.Generator().manual_seed(seed) for seed in range(loaders)]
        return [DataLoader(range(6), 2, shuffle=True, generator=g) for g in seeds]

    model, expected = Order(), []
    ours, plain = make_loaders(), make_loaders()
    workflow = [("train", 1), ("val", 1)][:loaders]
    make("EpochBasedRunner", 3, tmp_path, model).run(ours, workflow)
    for _ in range(3):
        for loader in plain:
            expected += [int(i) for batch in loader for i in batch]
    assert model.order == expected


@pytest.mark.parametrize("name", ["TextLoggerHook", "TensorboardLoggerHook", "Mine"])
def test_the_values_of_a_validation_stay_until_the_next_epoch(name: str, tmp_path: Path) -> None:
    from mmcv import runner as mmcv_runner

    class Mine(mmcv_runner.LoggerHook):
        def log(self, runner: Any) -> None: ...

    class Later(mmcv_runner.Hook):
        def after_val_epoch(self, runner: Any) -> None:
            self.seen = [*runner.log_buffer.val_history], dict(runner.log_buffer.output)

        def before_train_epoch(self, runner: Any) -> None:
            assert not runner.log_buffer.val_history

    later = Later()
    runner = make("EpochBasedRunner", 2, tmp_path)
    runner.register_hook(getattr(mmcv_runner, name, Mine)(), "VERY_LOW")
    runner.register_hook(later, "LOWEST")
    runner.run(loaders(3, 2), [("train", 1), ("val", 1)])
    assert later.seen == (["loss"], {})


def test_a_checkpoint_is_saved_below_a_path_object(tmp_path: Path) -> None:
    from mmcv.runner import EpochBasedRunner

    runner = EpochBasedRunner(
        Idle(), work_dir=str(tmp_path), logger=silent_logger(), max_epochs=1, meta={}
    )
    runner.save_checkpoint(tmp_path / "below", save_optimizer=False)
    assert (tmp_path / "below" / "epoch_1.pth").is_file()
    assert (tmp_path / "below" / "latest.pth").exists()


class Scored(TensorDataset):
    """A data set with given scores, one for each evaluation."""

    def __init__(self, *scores: float) -> None:
        super().__init__(torch.zeros(1, 1))
        self.scores = iter(scores)

    def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
        return {"acc": next(self.scores)}


@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_score_of_exactly_0_is_never_the_best(by_epoch: bool, tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    runner = make("EpochBasedRunner" if by_epoch else "IterBasedRunner", 3, tmp_path, meta={})
    loader = DataLoader(Scored(0.0, -2.0, 0.0))
    hook = EvalHook(loader, by_epoch=by_epoch, save_best="acc", test_fn=lambda model, data: [])
    runner.register_hook(hook)
    runner.run(loaders(1), [("train", 1)])
    unit = "epoch" if by_epoch else "iter"
    assert [path.name for path in tmp_path.glob("best_*")] == [f"best_acc_{unit}_2.pth"]
    assert runner.meta["hook_msgs"]["best_score"] == -2.0


@pytest.mark.parametrize(
    ("name", "is_deleted"),
    [
        ("thesis.pth", False),
        ("best_acc_epoch_1.pth", False),
        ("work/notes.pth", False),
        ("work/best_acc_epoch_7.pth", True),
        ("same/best_acc_epoch_7.pth", True),
    ],
)
def test_departure_no_checkpoint_names_a_file_to_delete(
    name: str, is_deleted: bool, tmp_path: Path
) -> None:
    from mmcv.runner import EvalHook

    (tmp_path / "work").mkdir()
    (tmp_path / "same").symlink_to("work")
    mine = tmp_path / name
    mine.write_text("mine")
    meta = {"hook_msgs": {"best_score": 0.1, "best_ckpt": str(mine)}}
    make("EpochBasedRunner", 1, tmp_path / "work", meta=meta).save_checkpoint(str(tmp_path), "x{}")
    runner = make("EpochBasedRunner", 1, tmp_path / "work", meta={})
    runner.resume(f"{tmp_path}/x1")
    runner._epoch = runner._iter = 0
    loader = DataLoader(Scored(0.5))
    runner.register_hook(EvalHook(loader, save_best="acc", test_fn=lambda model, data: []))
    runner.run(loaders(1), [("train", 1)])
    assert (tmp_path / "work" / "best_acc_epoch_1.pth").is_file()
    assert mine.exists() is not is_deleted


def test_a_finished_run_with_a_best_score_ends_in_tensorboard_too(tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    runner = make("EpochBasedRunner", 1, tmp_path, meta={})
    data = DataLoader(Scored(0.5))
    runner.register_hook(EvalHook(data, save_best="acc", test_fn=lambda *_: []))
    logs = [{"type": "TensorboardLoggerHook"}]
    runner.register_logger_hooks({"interval": 1, "hooks": logs})
    for _ in range(2):
        runner.run(loaders(1), [("train", 1)])
    assert runner.epoch == 1


def test_departure_a_further_run_keeps_the_directory_of_the_files(tmp_path: Path) -> None:
    from mmcv.runner import EvalHook

    runner = make("EpochBasedRunner", 1, tmp_path / "work", meta={})
    runner.register_checkpoint_hook({"interval": 1, "out_dir": str(tmp_path / "files")})
    data = DataLoader(Scored(0.5, 0.5))
    runner.register_hook(
        EvalHook(data, save_best="acc", test_fn=lambda *_: [], out_dir=str(tmp_path / "best"))
    )
    for epochs in (1, 2):
        runner._max_epochs = epochs
        runner.run(loaders(1), [("train", 1)])
    names = {path.name for path in (tmp_path / "files" / "work").iterdir()}
    assert names == {"epoch_1.pth", "epoch_2.pth", "latest.pth"}
    assert [path.name for path in (tmp_path / "best" / "work").iterdir()] == [
        "best_acc_epoch_1.pth"
    ]


def test_departure_a_closures_point_is_in_the_table_of_hooks(tmp_path: Path) -> None:
    runner = make("EpochBasedRunner", 1, tmp_path)
    runner.register_hook(lightning_hooks.ClosureHook("after_run", print))
    assert runner.get_hook_info().splitlines()[:2] == [
        *("after_run:", f"(NORMAL      ) {'ClosureHook':<35}")
    ]


def test_departure_cycles_have_the_present_length_of_the_run(tmp_path: Path) -> None:
    rates: list[float] = []

    class Note(lightning_hooks.Hook):
        def after_train_iter(self, runner: Any) -> None:
            rates.append(runner.current_lr()[0])

    runner = make("EpochBasedRunner", 2, tmp_path)
    runner.register_lr_hook({"policy": "cyclic", "target_ratio": (10, 0.1), "by_epoch": False})
    runner.register_hook(Note())
    runner.run(loaders(2, 3), [("train", 1), ("train", 1)])
    ratios = {"target_ratio": (10, 0.1)}
    first = [schedules.cyclic(0.1, step, 4, **ratios) for step in (0, 1)]
    assert rates == first + [schedules.cyclic(0.1, step, 6, **ratios) for step in (2, 3, 4)]


def test_wrong_hooks_and_configs_fail_as_in_mmcv_with_what_to_write(tmp_path: Path) -> None:
    from mmcv.runner import Hook

    runner = make("EpochBasedRunner", 1, tmp_path)
    with pytest.raises(TypeError, match=r"register_hook_from_cfg\({'type': 'EMAHook'}\)"):
        runner.register_hook(dict(type="EMAHook"))
    with pytest.raises(KeyError, match=r"write log_config = dict\(interval=50, hooks="):
        runner.register_logger_hooks(dict(hooks=[dict(type="TextLoggerHook")]))
    with pytest.raises(KeyError, match="unknown policy 'stepp'; did you mean 'Step'"):
        runner.register_lr_hook(dict(policy="stepp"))
    with pytest.raises(KeyError, match="unknown policy 'cycle'"):
        runner.register_momentum_hook(dict(policy="cycle"))
    with pytest.raises(AssertionError, match='needs the key "policy"'):
        runner.register_lr_hook(dict(step=1))
    runner.register_hook(
        lightning_hooks.CheckInvalidLossHook()
    )  # a native hook declares a priority
    with pytest.raises(ValueError, match='"priority" is a reserved attribute for hooks'):
        runner.register_hook(type("Early", (Hook,), {"priority": "LOW"})())
