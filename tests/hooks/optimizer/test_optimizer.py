"""OptimizerHook and GradientCumulativeOptimizerHook, against training recorded from mmcv."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import lightning as L
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks import (
    HOOKS,
    GradientCumulativeFp16OptimizerHook,
    Hook,
    HookAdapter,
    TrainStepModule,
)
from lightning_hooks.hooks.optimizer.accumulation import GradientCumulativeOptimizerHook
from lightning_hooks.hooks.optimizer.clipping import total_norm
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook, parameters_in_graph
from lightning_hooks.hooks.updaters.decay import StepLrUpdaterHook
from support.golden import recorded
from support.training import TinyModule, make_loader, make_trainer

GOLDEN = recorded("training")
CASES = [
    "optimizer",
    "grad_clip",
    "step",
    "cumulative_2",
    "cumulative_3",
    "cumulative_remainder",
    "together",
]


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Use one thread, which sums in the order of the recording."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Rows(Hook):
    """Records the same values as the recorder of training.json."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        self.weights: list[dict[str, Any]] = []

    def _note(self, runner: Any, point: str) -> None:
        history = runner.log_buffer.val_history
        done = point.startswith("after")
        loss = runner.outputs["log_vars"]["loss"] if done else None
        norm = float(history["grad_norm"][-1]) if done and "grad_norm" in history else None
        self.rows.append([point, runner.epoch, runner.iter, runner.current_lr(), loss, norm])

    def before_run(self, runner: Any) -> None:
        self.weights.append(job.fingerprint(runner.model.module))

    def before_train_iter(self, runner: Any) -> None:
        self._note(runner, "before_train_iter")

    def after_train_iter(self, runner: Any) -> None:
        self._note(runner, "after_train_iter")

    def after_val_iter(self, runner: Any) -> None:
        self._note(runner, "after_val_iter")

    def after_train_epoch(self, runner: Any) -> None:
        self.weights.append(job.fingerprint(runner.model.module))


def close(found: Any, expected: Any) -> None:
    """Compare two fingerprints."""
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        if isinstance(values, dict):
            for key, value in values.items():
                np.testing.assert_allclose(found[name][key], value, rtol=1e-6, atol=1e-6)
        else:
            np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-7)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("kind", ["linear", "conv"])
@pytest.mark.parametrize("name", CASES)
def test_equal_to_mmcv(tmp_path: Path, kind: str, name: str) -> None:
    case = GOLDEN["cases"][f"{kind}/{name}"]
    hooks: list[Any] = [{"type": "OptimizerHook", **case["hooks"]["optimizer_config"]}]
    if case["hooks"]["lr_config"]:
        lr_config = {k: v for k, v in case["hooks"]["lr_config"].items() if k != "policy"}
        hooks.append(StepLrUpdaterHook(**lr_config))
    rows = Rows()
    model = job.make_model(GOLDEN["seed"], kind)
    train, val = job.make_data(GOLDEN["seed"])
    adapter = HookAdapter([*hooks, (rows, "LOWEST")])
    trainer = make_trainer(tmp_path, adapter, max_epochs=GOLDEN["epochs"], num_sanity_val_steps=0)
    trainer.fit(TrainStepModule(model, job.make_optimizer(model)), train, val)

    expected = [[*row[:4], *row[5:]] for row in case["rows"]]
    if name == "together":  # only validation sees the EMA, tested in another file
        expected = [row for row in expected if "train" in row[0]]
        rows.rows = [row for row in rows.rows if "train" in row[0]]
        del rows.weights[:], case["weights"][:]
    assert [row[:4] for row in rows.rows] == [row[:4] for row in expected]
    for column in (4, 5):
        found, wanted = ([row[column] for row in table] for table in (rows.rows, expected))
        assert [value is None for value in found] == [value is None for value in wanted]
        numbers = [[v for v in values if v is not None] for values in (found, wanted)]
        np.testing.assert_allclose(*numbers, rtol=1e-6)
    for found, wanted in zip(rows.weights, case["weights"], strict=True):
        close(found, wanted)


def norms(trainer: L.Trainer, module: L.LightningModule, loader: Any) -> dict[str, list[Any]]:
    """Fit, and return the log buffer's history."""
    kept: dict[str, list[Any]] = {}

    class Keep(Hook):
        def after_train_iter(self, runner: Any) -> None:
            kept.update({k: list(map(float, v)) for k, v in runner.log_buffer.val_history.items()})

    trainer.callbacks.append(Keep())  # type: ignore[attr-defined]
    trainer.fit(module, loader)
    return kept


class Plain(TinyModule):
    """A module without validation."""

    validation_step = L.LightningModule.validation_step


class Manual(Plain):
    """A module with manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        optimizer.step()


class HalfUsed(Plain):
    """A module with a layer outside the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(1, 1, bias=False)


CLIP = {"max_norm": 0.1}


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_beside_lightning_it_clips_what_lightning_would(tmp_path: Path, accumulate: int) -> None:
    ours, theirs = Plain(), Plain()
    kwargs = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
    history = norms(make_trainer(tmp_path, OptimizerHook(CLIP), **kwargs), ours, make_loader(5))
    make_trainer(tmp_path, gradient_clip_val=0.1, **kwargs).fit(theirs, make_loader(5))
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert len(history["grad_norm"]) == {1: 10, 2: 6, 3: 4}[accumulate]  # one norm per step
    assert min(history["grad_norm"]) > 0.1  # before clipping
    if accumulate == 1:
        assert list(history) == ["loss", "train_loss", "grad_norm"]  # in mmcv's order


def test_beside_lightning_without_clipping_nothing_changes(tmp_path: Path) -> None:
    ours, theirs = Plain(), Plain()
    history = norms(make_trainer(tmp_path, OptimizerHook()), ours, make_loader(3))
    make_trainer(tmp_path).fit(theirs, make_loader(3))
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert "grad_norm" not in history


def test_clipping_that_is_set_within_a_run_holds_from_the_next_step_on(tmp_path: Path) -> None:
    hook, found = OptimizerHook(), []

    class Sets(Hook):
        def after_train_iter(self, runner: Any) -> None:
            found.append("grad_norm" in runner.log_buffer.val_history)
            if runner.iter == 1:
                hook.grad_clip = {"max_norm": 0.1}

    trainer = make_trainer(tmp_path, hook, Sets())
    trainer.fit(Plain(), make_loader(4))
    assert found == [False, False, True, True]


def test_a_module_that_steps_by_itself_is_clipped_and_not_stepped_again(tmp_path: Path) -> None:
    class Clipping(Manual):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            clip_grad_norm_(self.parameters(), **CLIP)

    ours, theirs = Manual(), Clipping()
    history = norms(make_trainer(tmp_path, OptimizerHook(CLIP)), ours, make_loader(3))
    trainer = make_trainer(tmp_path)
    trainer.fit(theirs, make_loader(3))
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert len(history["grad_norm"]) == trainer.global_step == 3


def test_grad_norm_of_an_optimizer_with_several_gradients_in_an_iteration_is_the_last(
    tmp_path: Path,
) -> None:
    class SecondOrder(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[list[float]] = [[]]

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            gradients = [p.grad for p in self.parameters() if p.grad is not None]
            self.found[-1].append(total_norm(gradients).item())

        def on_train_batch_end(self, *args: Any) -> None:
            self.found.append([])

        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), lr=0.1, max_iter=4)

    module, huge = SecondOrder(), {"max_norm": 1e6}
    history = norms(make_trainer(tmp_path, OptimizerHook(huge)), module, make_loader(2))
    assert [len(found) for found in module.found] == [4, 4, 0]
    assert history["grad_norm"] == pytest.approx([found[-1] for found in module.found[:2]])


def test_owns_backward_where_the_adapter_says_so(tmp_path: Path) -> None:
    ours, theirs = Plain(), Plain()
    trainer = make_trainer(tmp_path, HookAdapter(OptimizerHook(CLIP), owns_backward=True))
    trainer.fit(ours, make_loader(3))
    make_trainer(tmp_path, gradient_clip_val=0.1).fit(theirs, make_loader(3))
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert trainer.global_step == 3
    assert ours.automatic_optimization


def test_lightning_does_backward_of_an_old_model_where_the_adapter_says_so(tmp_path: Path) -> None:
    weights = []
    for owns in ("auto", False):
        model = job.make_model()
        adapter = HookAdapter(OptimizerHook(CLIP), owns_backward=owns)
        module = TrainStepModule(model, job.make_optimizer(model))
        make_trainer(tmp_path, adapter).fit(module, *job.make_data())
        weights.append(model.network[2].weight)
    assert torch.equal(*weights)


@pytest.mark.parametrize(
    ("cls", "accumulate"),
    [(OptimizerHook, 1), (OptimizerHook, 2), (GradientCumulativeOptimizerHook, 1)],
)
def test_departure_unused_parameters_are_named_under_accumulation_too(
    tmp_path: Path, cls: Any, accumulate: int, caplog: pytest.LogCaptureFixture
) -> None:
    hook = cls(detect_anomalous_params=True)
    trainer = make_trainer(tmp_path, hook, accumulate_grad_batches=accumulate)
    trainer.fit(HalfUsed(), make_loader(2))
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    message = "module.idle.weight with shape torch.Size([1, 1]) is not in the computational graph"
    assert [error.strip() for error in errors] == [message] * 2


def test_unused_parameters_of_an_old_model_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = job.make_model()
    model.idle = nn.Linear(1, 1, bias=False)
    module = TrainStepModule(model, job.make_optimizer(model))
    trainer = make_trainer(tmp_path, OptimizerHook(detect_anomalous_params=True))
    trainer.fit(module, *job.make_data())
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert len(errors) == 4
    assert all(error.startswith("module.idle.weight with shape") for error in errors)


def test_departure_unused_parameters_are_found_in_graphs_of_any_depth() -> None:
    used, unused = nn.Parameter(torch.ones(1)), nn.Parameter(torch.ones(1))
    loss: torch.Tensor = used
    for _ in range(5000):
        loss = loss + 1
    assert parameters_in_graph(loss) == {used}
    assert unused not in parameters_in_graph(loss)


class Losses(Plain):
    """A module with a single weight and a constant gradient of 1."""

    def make_net(self) -> nn.Module:
        return nn.Linear(1, 1, bias=False)

    def loss(self, batch: Any) -> torch.Tensor:
        return self.net.weight.sum()


@pytest.mark.parametrize(
    ("hook", "accumulate", "moved"),
    [
        # 7 iterations: two steps on the mean of 3, one on the rest
        (GradientCumulativeOptimizerHook(cumulative_iters=3), 1, 3.0),
        # Lightning's divides the rest by 3 as well
        (OptimizerHook(), 3, 2 + 1 / 3),
    ],
)
def test_the_rest_is_divided_by_its_own_number(
    tmp_path: Path, hook: Any, accumulate: int, moved: float
) -> None:
    module = Losses(lr=1.0, momentum=0.0)
    before = module.net.weight.item()
    trainer = make_trainer(tmp_path, hook, accumulate_grad_batches=accumulate)
    trainer.fit(module, make_loader(7))
    assert before - module.net.weight.item() == pytest.approx(moved, abs=1e-5)
    assert trainer.global_step == 3


class Moves(Losses):
    """Records how far each step has moved the weight."""

    def __init__(self) -> None:
        super().__init__(lr=1.0, momentum=0.0)
        self.moved: list[float] = []
        self.last = self.net.weight.item()

    def on_train_batch_end(self, *args: Any) -> None:
        now = self.net.weight.item()
        if now != self.last:
            self.moved.append(self.last - now)
        self.last = now


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_by_epoch_the_rest_of_each_is_divided_by_its_own_number_unlike_lightnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, fp16, lightnings, whole = Moves(), Moves(), Moves(), Plain()
    hook = GradientCumulativeOptimizerHook(3, by_epoch=True)
    make_trainer(tmp_path, hook, max_epochs=2).fit(ours, make_loader(5))
    assert sum("last 2 iterations of an epoch" in r.getMessage() for r in caplog.records) == 1
    half = GradientCumulativeFp16OptimizerHook(3, by_epoch=True, loss_scale=8)
    adapter = HookAdapter(half, owns_backward=True)
    make_trainer(tmp_path, adapter, max_epochs=2).fit(fp16, make_loader(5))
    make_trainer(tmp_path, accumulate_grad_batches=3, max_epochs=2).fit(lightnings, make_loader(5))
    # steps on 3 and on 2 iterations of each epoch, with gradients of 1
    assert ours.moved == fp16.moved == pytest.approx([1, 1, 1, 1])
    assert lightnings.moved == pytest.approx([1, 2 / 3, 1, 2 / 3])
    # equals training on larger batches
    parts = Plain()
    hook = GradientCumulativeOptimizerHook(3, by_epoch=True)
    make_trainer(tmp_path, hook, max_epochs=2).fit(parts, make_loader(5, 2))
    data = make_loader(5, 2).dataset
    make_trainer(tmp_path, max_epochs=2).fit(whole, DataLoader(data, batch_size=6))
    torch.testing.assert_close(parts.net.weight, whole.net.weight)


@pytest.mark.parametrize(
    ("by_epoch", "limits", "iterations", "steps"),
    [
        (False, {"max_steps": 4}, 12, 4),
        (True, {"max_steps": 4}, 10, 4),  # 3 and 2 of each epoch
        (True, {"max_steps": 3}, 8, 3),
        (False, {"max_steps": 9, "max_epochs": 2}, 10, 4),
    ],
)
def test_a_run_may_be_limited_in_steps(
    by_epoch: bool, limits: dict[str, int], iterations: int, steps: int, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append((runner.iter + 1, runner.max_iters))

    module = Moves()
    trainer = make_trainer(
        tmp_path, GradientCumulativeOptimizerHook(3, by_epoch=by_epoch), Look(), **limits
    )
    trainer.fit(module, make_loader(5))
    assert seen[-1] == (iterations, iterations)
    assert {number for _, number in seen} == {iterations}
    assert trainer.global_step == steps
    assert module.moved == pytest.approx([1.0] * steps)


def test_departure_groups_go_on_across_epochs_and_the_rest_is_announced_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    module = Losses(lr=1.0, momentum=0.0)
    hook = GradientCumulativeOptimizerHook(cumulative_iters=3)
    trainer = make_trainer(tmp_path, hook, max_epochs=2)
    trainer.fit(module, make_loader(4))  # 8 iterations: 3, 3 and 2
    assert trainer.global_step == 3
    assert (hook.divisible_iters, hook.remainder_iters) == (6, 2)
    assert sum("the last 2 iterations" in r.getMessage() for r in caplog.records) == 1


def test_departure_the_rest_follows_a_change_of_max_epochs(tmp_path: Path) -> None:
    class Shorten(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                runner._max_epochs = 2

    module = Moves()
    hook = GradientCumulativeOptimizerHook(3)
    make_trainer(tmp_path, hook, Shorten(), max_epochs=3).fit(module, make_loader(5))
    assert (hook.divisible_iters, hook.remainder_iters) == (9, 1)  # of 10, not of 15
    assert module.moved == pytest.approx([1, 1, 1, 1])


def test_departure_grad_norm_stays_on_its_device_until_it_is_logged(tmp_path: Path) -> None:
    kinds: list[type] = []

    class Look(Hook):
        def after_train_iter(self, runner: Any) -> None:
            kinds.append(type(runner.log_buffer.val_history["grad_norm"][-1]))
            runner.log_buffer.average(1)
            kinds.append(type(runner.log_buffer.output["grad_norm"]))

    make_trainer(tmp_path, OptimizerHook(CLIP), Look()).fit(Plain(), make_loader(1))
    assert kinds == [torch.Tensor, float]


def test_an_old_subclass_owns_its_backward(tmp_path: Path) -> None:
    class Old(OptimizerHook):
        def __init__(self) -> None:  # without super().__init__()
            self.grad_clip = CLIP

        def after_train_iter(self, runner: Any) -> None:
            runner.optimizer.zero_grad()
            runner.outputs["loss"].backward()
            norm = self.clip_grads(runner.model.parameters())
            runner.log_buffer.update({"grad_norm": float(norm)}, 1)
            runner.optimizer.step()

    ours, theirs = Plain(), Plain()
    history = norms(make_trainer(tmp_path, Old()), ours, make_loader(3))
    make_trainer(tmp_path, gradient_clip_val=0.1).fit(theirs, make_loader(3))
    assert torch.equal(ours.net.weight, theirs.net.weight)
    assert len(history["grad_norm"]) == 3


@pytest.mark.parametrize("module", [Plain(), HalfUsed()])
@pytest.mark.parametrize("cls", [OptimizerHook, GradientCumulativeOptimizerHook])
def test_clipping_twice_is_refused(tmp_path: Path, module: Any, cls: Any) -> None:
    trainer = make_trainer(tmp_path, cls(grad_clip=CLIP), gradient_clip_val=1.0)
    with pytest.raises(ValueError, match=r"Trainer\(gradient_clip_val=1.0\) beside"):
        trainer.fit(module, make_loader(2))


def test_accumulation_without_an_end_is_refused(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, GradientCumulativeOptimizerHook(2), max_epochs=-1)
    with pytest.raises(ValueError, match="needs the length of the run"):
        trainer.fit(Plain(), make_loader(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"grad_clip": {}}, "positive max_norm"),
        ({"grad_clip": {"max_norm": 0}}, "positive max_norm"),
        ({"grad_clip": {"max_norm": "1"}}, "positive max_norm"),
        ({"grad_clip": {"max_norm": 1, "norm": 2}}, r"unknown keys \['norm'\]"),
        ({"cumulative_iters": 0}, "cumulative_iters must be an int"),
        ({"cumulative_iters": 1.5}, "cumulative_iters must be an int"),
        ({"grad_clip": {"type": "size", "max_norm": 1}}, "unknown type 'size'"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GradientCumulativeOptimizerHook(**arguments)


def test_by_epoch_needs_the_length_of_an_epoch(tmp_path: Path) -> None:
    class Endless(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(make_loader(4).dataset)

    hook = GradientCumulativeOptimizerHook(2, by_epoch=True)
    with pytest.raises(ValueError, match="needs the length of an epoch"):
        make_trainer(tmp_path, hook).fit(Plain(), DataLoader(Endless(), batch_size=2))
    with pytest.raises(TypeError, match="by_epoch must be a bool, got 1"):
        GradientCumulativeOptimizerHook(2, by_epoch=1)  # type: ignore[arg-type]


def test_a_clip_that_is_no_dict_is_refused() -> None:
    with pytest.raises(TypeError, match="grad_clip must be a dict"):
        OptimizerHook(grad_clip=35)  # type: ignore[arg-type]


def test_registered() -> None:
    assert HOOKS.get("OptimizerHook") is OptimizerHook
    assert HOOKS.get("GradientCumulativeOptimizerHook") is GradientCumulativeOptimizerHook
    given = {"max_norm": 35}
    assert OptimizerHook(given).grad_clip == given


@pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
def test_departure_several_optimizers_take_their_steps_after_one_backward(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 3), nn.Linear(3, 2)

        def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
            return {"loss": self.b(self.a(data[0])).square().mean(), "log_vars": {}}

    torch.manual_seed(0)
    model = Two()
    plain = copy.deepcopy(model)
    optimizers = {n: torch.optim.SGD(getattr(model, n).parameters(), 0.1) for n in "ab"}
    trainer = make_trainer(tmp_path, OptimizerHook(CLIP))
    trainer.fit(TrainStepModule(model, optimizers), make_loader(3))
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for batch in make_loader(3):
        optimizer.zero_grad()
        plain.train_step(batch)["loss"].backward()
        clip_grad_norm_(plain.parameters(), **CLIP)
        optimizer.step()
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)
