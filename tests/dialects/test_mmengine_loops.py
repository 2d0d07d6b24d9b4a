"""``train_loop``, ``val_loop`` and ``test_loop`` of MMEngine's hooks in a Trainer."""

from __future__ import annotations

import itertools
import logging
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lightning_hooks import HookAdapter
from lightning_hooks.dialects.mmengine import Hook
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

fit = partial(training.fit, val=2, host=True, batches=3, max_epochs=2)
BY_ITER = dict(by_epoch=False, max_epochs=-1, val_check_interval=2, check_val_every_n_epoch=None)


class Seen(TinyModule):
    """Records the first number of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.seen.append(float(batch[0].flatten()[0]))
        return super().training_step(batch, batch_idx)


def numbers(loader: Any) -> list[float]:
    return [float(x.flatten()[0]) for x, _ in loader]


# -- train_loop.dataloader -------------------------------------------------------------------


class Switch(Hook):
    """A mode switch to another loader for the last epochs, as in mmyolo and mmpose."""

    def __init__(self, loader: Any, point: str = "before_train_epoch") -> None:
        self.loader, self.point = loader, point

    def before_train_epoch(self, runner: Any) -> None:
        self.lengths = [*getattr(self, "lengths", []), len(runner.train_loop.dataloader)]
        assert runner.max_iters == runner.train_loop.max_iters == 9  # as at the start
        if self.point == "before_train_epoch" and runner.epoch == 1:
            self.put(runner)

    def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
        if self.point == "after_train_iter" and (runner.epoch, batch_idx) == (0, 1):
            self.put(runner)

    def put(self, runner: Any) -> None:
        runner.train_loop.dataloader = self.loader
        assert runner.train_loop.dataloader is self.loader
        assert runner.train_dataloader is self.loader


@pytest.mark.parametrize("point", ["before_train_epoch", "after_train_iter"])
def test_an_assigned_loader_is_that_of_the_epochs_that_follow(tmp_path: Path, point: str) -> None:
    old, new, module = make_loader(3, seed=1), make_loader(2, seed=7), Seen()
    hook = Switch(new, point)
    make_trainer(tmp_path, HookAdapter([hook]), max_epochs=3).fit(module, old)
    assert module.seen == numbers(old) + 2 * numbers(new)
    assert hook.lengths == ([3, 3, 2] if point == "before_train_epoch" else [3, 2, 2])


class Endless:
    """A stub of MMEngine's infinite iterator of a loader."""

    def __init__(self, loader: Any) -> None:
        self._dataloader = loader


def test_in_a_run_by_iterations_an_assigned_iterator_gives_the_next_batch(tmp_path: Path) -> None:
    class Fetch(Hook):
        """Replaces the loader and its iterator, as mmagic's PGGANFetchDataHook."""

        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            if runner.iter == 1:
                runner.train_loop.dataloader = new
                runner.train_loop.dataloader_iterator = Endless(new)

    old, new, module = make_loader(3, seed=1), make_loader(2, seed=7), Seen()
    adapter = HookAdapter([Fetch()], by_epoch=False)
    make_trainer(tmp_path, adapter, max_epochs=-1, max_steps=7).fit(module, old)
    assert module.seen == (numbers(old)[:2] + 3 * numbers(new))[:7]


def test_an_iterator_of_another_kind_is_refused(tmp_path: Path) -> None:
    class Bad(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            runner.train_loop.dataloader_iterator = iter([])

    with pytest.raises(TypeError, match="dataloader_iterator must be mmengine's iterator"):
        fit(tmp_path, Bad(), by_epoch=False, max_epochs=-1, max_steps=2)


# -- val_loop.run_iter, run, total_length ----------------------------------------------------


class Again(Hook):
    """Validates a second time with the initial weights, as mmpretrain's EMAHook."""

    def __init__(self, point: str, whole: bool) -> None:
        self.point, self.whole = point, whole
        self.calls: list[Any] = []
        self.metrics: list[float] = []
        self.means: list[float] = []

    def before_run(self, runner: Any) -> None:
        self.start = {k: v.clone() for k, v in runner.model.state_dict().items()}

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self.calls.append(("before_val_iter", batch_idx, len(data_batch[0])))

    def after_val_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
        self.calls.append(("after_val_iter", batch_idx, runner.model.training))

    def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
        self.metrics.append(metrics["val_loss"])
        if self.point == "after_val_epoch" and len(self.metrics) == 1:
            self.again(runner)

    def after_train_epoch(self, runner: Any) -> None:
        if self.point == "after_train_epoch":
            training = runner.model.training
            self.again(runner)
            assert runner.model.training == training

    def again(self, runner: Any) -> None:
        loop, training = runner.val_loop, runner.model.training
        assert loop.total_length == len(loop.dataloader) == 2
        now = {k: v.clone() for k, v in runner.model.state_dict().items()}
        runner.model.load_state_dict(self.start)
        if self.whole:
            found = loop.run()
        else:
            runner.model.eval()
            for idx, data_batch in enumerate(loop.dataloader):
                loop.run_iter(idx, data_batch)
            found = loop.evaluator.evaluate(len(loop.dataloader.dataset))
            runner.model.train(training)
        self.means.append(found["val_loss"])
        runner.model.load_state_dict(now)


@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize(
    ("point", "whole"),
    [("after_val_epoch", False), ("after_train_epoch", False), ("after_train_epoch", True)],
)
def test_a_second_pass_over_the_validation_data(
    tmp_path: Path, point: str, whole: bool, by_epoch: bool
) -> None:
    length = {"max_epochs": 1} if by_epoch else {**BY_ITER, "max_steps": 2}
    plain = fit(tmp_path, **length)
    hook = Again(point, whole)
    trainer = fit(tmp_path, hook, **length)
    for one, other in zip(trainer.model.parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert trainer.callback_metrics["val_loss"] == plain.callback_metrics["val_loss"]
    assert hook.metrics[-1 if by_epoch else 0] == pytest.approx(
        float(plain.callback_metrics["val_loss"])
    )
    assert hook.means == [pytest.approx(loss_at(hook.start, trainer.val_dataloaders))]
    steps = [(f"{when}_val_iter", i, x) for i in range(2) for when, x in STEP]
    assert hook.calls == 2 * steps


STEP = (("before", 2), ("after", False))


def loss_at(weights: dict[str, torch.Tensor], loader: Any) -> float:
    """Return the mean loss of given weights on the validation data."""
    module = TinyModule()
    module.load_state_dict(weights)
    losses = [module.loss(batch).item() for batch in loader]
    return sum(losses) / len(losses)


def test_a_second_pass_of_a_test(tmp_path: Path) -> None:
    class Own(TinyModule):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("test_loss", self.loss(batch), batch_size=len(batch[0]))

    class Twice(Hook):
        def after_test_epoch(self, runner: Any, metrics: Any = None) -> None:
            loop = runner.test_loop
            assert loop.total_length == 2
            for idx, data_batch in enumerate(loop.dataloader):
                loop.run_iter(idx, data_batch)
            self.found = metrics, loop.evaluator.evaluate(8)

    hook = Twice()
    make_trainer(tmp_path, HookAdapter([hook])).test(Own(), make_loader(2), verbose=False)
    assert hook.found[0] == hook.found[1] != {}


@pytest.mark.parametrize("val", [0, 2])
@pytest.mark.parametrize("length", [dict(max_epochs=1), {**BY_ITER, "max_steps": 2}])
def test_a_run_without_validation_has_no_val_loop(tmp_path: Path, val: int, length: Any) -> None:
    class Asks(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
            self.has_loop = runner.val_loop is not None

    hook = Asks()
    fit(tmp_path, hook, val=val, **length)
    assert hook.has_loop == (val > 0)


def test_what_a_hook_assigns_without_effect_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    loops = ("train_loop", "val_loop")
    names = ("_epoch", "_iter", "val_begin", "dynamic_intervals", "fp16")

    class Sets(Hook):
        def before_train(self, runner: Any) -> None:
            for loop, name in itertools.product(loops, names):
                setattr(getattr(runner, loop), name, 3)

    with caplog.at_level(logging.WARNING):
        fit(tmp_path, Sets())
    for loop, name in itertools.product(loops, names):
        assert [m for m in caplog.messages if f"{loop}.{name} = 3" in m]


@pytest.mark.parametrize("name", ["max_epochs", "max_iters", "iter", "val_loop", "_train_loop"])
def test_what_the_runner_computes_cannot_be_assigned_as_in_mmengine(
    tmp_path: Path, name: str
) -> None:
    class Sets(Hook):
        def before_train_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
            setattr(runner, name, 1)

    with pytest.raises(AttributeError, match=name) as caught:
        fit(tmp_path, Sets())
    assert caught.value.__notes__ == ["in hook Sets.before_train_iter (epoch 0, iter 0)"]


@pytest.mark.parametrize("by_epoch", [True, False])
def test_a_private_length_of_the_loop_ends_the_run(tmp_path: Path, by_epoch: bool) -> None:
    class Sets(Hook):
        def before_train(self, runner: Any) -> None:
            name = "_max_epochs" if by_epoch else "_max_iters"
            setattr(runner.train_loop, name, 1)

    trainer = fit(tmp_path, Sets(), **({} if by_epoch else {**BY_ITER, "max_steps": 2}))
    assert trainer.global_step == (3 if by_epoch else 1)


def test_what_mmengines_runner_stores_can_be_assigned(tmp_path: Path) -> None:
    class Sets(Hook):
        def before_run(self, runner: Any) -> None:
            runner.visualizer, runner.cfg = "board", {"lr": 1}
            runner.best = 0.5

        def after_run(self, runner: Any) -> None:
            self.seen = runner.visualizer, runner.cfg, runner.best

    hook = Sets()
    fit(tmp_path, hook, max_epochs=1)
    assert hook.seen == ("board", {"lr": 1}, 0.5)


@pytest.mark.parametrize(
    ("loop", "name"),
    [("train_loop", "max_epochs"), ("train_loop", "max_iters"), ("val_loop", "dataloader")],
)
def test_what_a_loop_has_from_lightning_cannot_be_assigned(
    tmp_path: Path, loop: str, name: str
) -> None:
    class Sets(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            setattr(getattr(runner, loop), name, 1)

    with pytest.raises(AttributeError, match=name):
        fit(tmp_path, Sets())


@pytest.mark.parametrize("point", ["before_train_epoch", "after_train_iter", "after_train_epoch"])
def test_training_stopped_in_an_epoch_ends_with_the_epoch(tmp_path: Path, point: str) -> None:
    calls: list[tuple[str, int]] = []

    def note(self: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        calls.append(("epoch", runner.iter))

    def stop(self: Any, runner: Any, *args: Any, **kwargs: Any) -> None:
        runner.train_loop.stop_training = True
        assert runner.train_loop.stop_training

    points = {"after_train_epoch": note, "after_val_epoch": note}
    notes, stops = type("Notes", (Hook,), points)(), type("Stops", (Hook,), {point: stop})()
    trainer = fit(tmp_path, stops, notes)
    assert trainer.global_step == 3
    assert calls == [("epoch", 3), ("epoch", 3)]


def test_a_stop_may_be_taken_back_in_the_epoch(tmp_path: Path) -> None:
    class Wavers(Hook):
        def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
            runner.train_loop.stop_training = batch_idx == 0

    assert fit(tmp_path, Wavers()).global_step == 6


def test_the_validation_data_are_there_from_the_start(tmp_path: Path) -> None:
    class Reads(Hook):
        def before_run(self, runner: Any) -> None:
            self.loaders = runner.val_dataloader, runner.val_loop.dataloader
            self.begins = runner.val_begin, runner.train_loop.val_begin

    hook = Reads()
    trainer = fit(tmp_path, hook, check_val_every_n_epoch=2)
    assert hook.loaders == (trainer.val_dataloaders,) * 2
    assert hook.begins == (1, 1)


def test_a_validation_by_a_hook_leaves_the_outputs_of_the_step(tmp_path: Path) -> None:
    modes: list[bool] = []

    class Validates(Hook):
        priority = "HIGH"

        def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
            if batch_idx == 1:
                runner.val_loop.run()
                runner.model.train()

        def before_val(self, runner: Any) -> None:
            assert runner.message_hub.get_info("loop_stage") == "val"

        def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
            modes.append(runner.model.training)

    class Reads(Hook):
        losses: tuple[float, ...] = ()

        def after_train_iter(self, runner: Any, batch_idx: int, outputs: Any, **kw: Any) -> None:
            self.losses += (outputs["loss"].item(),)
            assert runner.message_hub.get_info("loop_stage") == "train"

    hook = Reads()
    trainer = fit(tmp_path, Validates(), hook, max_epochs=1)
    assert list(hook.losses) == trainer.lightning_module.losses
    assert modes == [False, False]


# -- several loaders, with limited batches ---------------------------------------------------


class ByLoader(TinyModule):
    """Logs a loss for each loader."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.log("val_loss", self.loss(batch), batch_size=len(batch[0]))


class RunsAgain(Hook):
    """Runs the validation again at one of its points; records the batches and metrics."""

    def __init__(self, point: str) -> None:
        self.point = point
        self.batches: list[int] = []
        self.again: dict[str, float] = {}

    def before_val_iter(self, runner: Any, batch_idx: int, data_batch: Any = None) -> None:
        self.batches.append(batch_idx)

    def after_val_iter(self, runner: Any, **kwargs: Any) -> None:
        self.run("after_val_iter", runner)

    def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
        self.run("after_val_epoch", runner)
        self.metrics = metrics

    def run(self, point: str, runner: Any) -> None:
        if point == self.point:
            self.point = ""
            self.again = runner.val_loop.run()


@pytest.mark.parametrize(
    ("val", "limit", "count", "point", "by_epoch"),
    [
        (3, 1.0, 3, "after_val_iter", True),
        (3, 2, 2, "after_val_epoch", False),
        ([3, 2], 1.0, 5, "after_val_epoch", True),
        ([3, 2], 1, 2, "after_val_iter", False),
    ],
)
def test_a_second_pass_has_the_batches_and_metrics_of_the_first(
    tmp_path: Path, point: str, val: Any, limit: Any, count: int, by_epoch: bool
) -> None:
    hook = RunsAgain(point)
    length = {"max_epochs": 1} if by_epoch else {**BY_ITER, "max_steps": 2}
    fit(tmp_path, hook, module=ByLoader, val=val, limit_val_batches=limit, **length)
    assert len(hook.batches) == 2 * count
    assert sorted(hook.again) == sorted(hook.metrics)
    assert len(hook.again) == (2 if isinstance(val, list) else 1)
    assert hook.again == pytest.approx(hook.metrics)


def test_one_of_several_loaders_must_be_named(tmp_path: Path) -> None:
    class One(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            loop = runner.val_loop
            for idx, batch in enumerate(loop.dataloader[1]):
                loop.run_iter(idx, batch, dataloader_idx=1)
            self.metrics = loop.evaluator.evaluate(2)
            loop.run_iter(0, batch)

    hook = One()
    with pytest.raises(ValueError, match=r"the Trainer has 2 loaders, mmengine has one loader"):
        fit(tmp_path, hook, module=ByLoader, val=[1, 2], max_epochs=1)
    assert list(hook.metrics) == ["val_loss/dataloader_idx_1"]


# -- a model assigned in testing -------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def test_step(self, x: torch.Tensor) -> Any:
        return self.layer(x).abs().mean()


class Doubled(nn.Module):
    """A model wrapped around the tested model, as MMEngine's BaseTTAModel."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def test_step(self, x: torch.Tensor) -> Any:
        assert not self.training
        return 2 * self.module.test_step(x)  # type: ignore[operator]


class Holder(TinyModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = Net()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("size", self.model.test_step(batch[0]), batch_size=len(batch[0]))


class PrepareTTA(Hook):
    def before_test(self, runner: Any) -> None:
        runner.model = Doubled(runner.model)


def test_a_model_assigned_in_testing_is_tested(tmp_path: Path) -> None:
    module = Holder()
    adapter = HookAdapter([PrepareTTA()], model=lambda one: one.model)
    plain = make_trainer(tmp_path).test(module, make_loader(2), verbose=False)
    trainer = make_trainer(tmp_path, adapter)
    for _ in range(2):
        found = trainer.test(module, make_loader(2), verbose=False)
        assert found[0]["size"] == pytest.approx(2 * plain[0]["size"])
        assert isinstance(module.model, Net)


def test_a_model_that_cannot_be_tested_in_its_place_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, HookAdapter([PrepareTTA()]))
    with pytest.raises(TypeError, match=r"replaced by a Doubled, .* Holder: .*HookAdapter\(model="):
        trainer.test(Holder(), make_loader(2), verbose=False)


# -- the last validation ---------------------------------------------------------------------


class Reads(Hook):
    def after_val_epoch(self, runner: Any, metrics: Any = None) -> None:
        """Read nothing."""


@pytest.mark.parametrize(
    ("length", "message"),
    [
        (dict(max_epochs=3, check_val_every_n_epoch=2), "epoch 3, unvalidated, .* every 2"),
        (dict(max_epochs=4, check_val_every_n_epoch=2), None),
        ({**BY_ITER, "max_steps": 3}, "iteration 3, unvalidated, .* every 2"),
        ({**BY_ITER, "max_steps": 4}, None),
    ],
)
def test_a_last_validation_that_is_left_out_is_announced(
    tmp_path: Path, length: Any, message: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        fit(tmp_path, Reads(), **length)
    lines = [line for line in caplog.messages if "unvalidated" in line]
    assert len(lines) == (message is not None)
    if message:
        assert lines[0].startswith("mmengine validates after the last")
        assert re.search(message, lines[0])


# -- model.training --------------------------------------------------------------------------


class Flags(Hook):
    def __init__(self) -> None:
        self.flags: list[tuple[str, bool]] = []


def _noting(point: str) -> Any:
    def note(self: Flags, runner: Any, **kwargs: Any) -> None:
        self.flags.append((point, runner.model.training))

    return note


for _point in (*Hook.stages,):
    setattr(Flags, _point, _noting(_point))


def expected(by_epoch: bool) -> list[tuple[str, bool]]:
    """Return the calls of MMEngine 0.10.7, which tests/sister_code compares with real MMEngine."""
    val = [("before_val", True), ("before_val_epoch", True)]
    val += 2 * [("before_val_iter", False), ("after_val_iter", False)]
    val += [("after_val_epoch", False), ("after_val", False)]
    steps = 2 * [("before_train_iter", True), ("after_train_iter", True)]
    begin, end = [("before_run", True), ("before_train", True)], [("after_train", False)]
    end += [("after_run", False)]
    if not by_epoch:
        passes = [("before_train_epoch", True), *steps, *val, *steps, *val]
        return [*begin, *passes, ("after_train_epoch", False), *end]
    first = [("before_train_epoch", True), *steps, ("after_train_epoch", True), *val]
    return [*begin, *first, ("before_train_epoch", False), *first[1:], *end]


@pytest.mark.parametrize("by_epoch", [True, False])
def test_the_model_is_in_mmengines_mode_at_every_point(tmp_path: Path, by_epoch: bool) -> None:
    hook = Flags()
    length = {} if by_epoch else {**BY_ITER, "max_steps": 4}
    trainer = fit(tmp_path, hook, batches=2, **length)
    assert hook.flags == expected(by_epoch)
    assert trainer.model.training


def test_a_mode_set_before_an_epoch_does_not_last_as_in_mmengine(tmp_path: Path) -> None:
    class Freezes(Flags):
        def before_train_epoch(self, runner: Any) -> None:
            runner.model.eval()

    hook = Freezes()
    fit(tmp_path, hook, val=0, max_epochs=1)
    assert ("before_train_iter", True) in hook.flags
    assert ("before_train_iter", False) not in hook.flags
