"""Every kind of clipping: the formula, the logged values, and sharded gradients."""

from __future__ import annotations

import copy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import job
import lightning as L
import pytest
import torch
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy
from torch import nn
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

from lightning_hooks import (
    Fp16OptimizerHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    OptimizerHook,
    TrainStepModule,
)
from lightning_hooks.hooks.optimizer.clipping import KINDS, combined, recipes_for
from support.device_reads import NoReads
from support.jobs.clipping import RECIPES, Plain
from support.processes import read_ranks, run_job
from support.training import TinyModule, make_loader, make_trainer

# -- the formulas ------------------------------------------------------------------------------


def with_gradients(scale: float = 1.0) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    parameters = []
    for shape in [(3, 4), (3,), (2, 3, 2, 2), ()]:
        parameter = nn.Parameter(torch.randn(shape, generator=generator))
        parameter.grad = scale * torch.randn(shape, generator=generator)
        parameters.append(parameter)
    return parameters


def the_norm(parameters: list[Any], norm_type: float = 2.0) -> float:
    numbers = torch.cat([parameter.grad.flatten() for parameter in parameters])
    return torch.linalg.vector_norm(numbers, norm_type).item()


@pytest.mark.parametrize("arguments", [{"max_norm": 0.5}, {"max_norm": 99, "norm_type": 1}])
def test_by_norm_is_what_torch_does(arguments: dict[str, Any]) -> None:
    ours, theirs = with_gradients(), with_gradients()
    found = KINDS["norm"](ours, **arguments)
    norm = clip_grad_norm_(theirs, **arguments)
    assert torch.equal(found.norm, norm)
    assert found.exceeded() == float(norm > arguments["max_norm"])
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("limit", [0.5, 99.0])
def test_by_value_is_what_torch_does(limit: float) -> None:
    ours, theirs = with_gradients(), with_gradients()
    found = KINDS["value"](ours, clip_value=limit)
    assert float(found.norm) == pytest.approx(the_norm(theirs))
    assert found.exceeded() == float(the_norm(theirs, float("inf")) > limit)
    clip_grad_value_(theirs, limit)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_adaptively_is_the_papers_formula(scale: float) -> None:
    ours, plain = with_gradients(scale), with_gradients(scale)
    ours[0].data[1] = plain[0].data[1] = 0.0  # without eps, this row would never learn
    found = KINDS["adaptive"](ours, clip_factor=0.02, eps=1e-3)
    clipped = 0
    for parameter, before in zip(ours, plain, strict=True):
        rows = zip(parameter.grad, before.grad, before.data, strict=True) if before.ndim > 1 else ()
        for after, gradient, weight in rows or [(parameter.grad, before.grad, before.data)]:
            limit = 0.02 * max(weight.norm().item(), 1e-3)
            factor = min(1.0, limit / gradient.norm().item())
            clipped += factor < 1
            torch.testing.assert_close(after, gradient * factor)
    assert float(found.norm) == pytest.approx(the_norm(plain))
    assert found.exceeded() == float(clipped > 0)
    assert clipped == {1.0: 7, 1e-4: 1}[scale]


def test_adaptively_leaves_gradients_of_zero() -> None:
    parameters = with_gradients(0.0)
    found = KINDS["adaptive"](parameters)
    assert found.exceeded() == 0
    assert all(not parameter.grad.any() for parameter in parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_read_from_the_device(kind: str) -> None:
    recipe = {key: value for key, value in RECIPES[kind].items() if key != "type"}
    with NoReads():
        parts = [KINDS[kind]([parameter], **recipe) for parameter in with_gradients()]
        found = combined(parts).exceeded()
        with pytest.raises(AssertionError, match="a read of the device"):
            float(found)


# -- in a run ----------------------------------------------------------------------------------


class Keep(Hook):
    """Keeps the log buffer's history."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}

    def after_train_iter(self, runner: Any) -> None:
        history = runner.log_buffer.val_history.items()
        self.history = {key: list(map(float, values)) for key, values in history}


class Quiet(Plain):
    """Two parameter groups, and no validation."""

    validation_step = L.LightningModule.validation_step


class ClipsItself(Quiet):
    """A reference module that clips its gradients manually and records norms and clipped steps."""

    def __init__(self, grad_clip: Any) -> None:
        super().__init__()
        self.grad_clip = grad_clip
        self.norms: list[float] = []
        self.clipped: list[float] = []

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.norms.append(the_norm(list(self.parameters())))
        parts = recipes_for(self.grad_clip, "", optimizer)
        found = [
            KINDS[recipe.get("type", "norm")](
                parameters, **{k: v for k, v in recipe.items() if k != "type"}
            )
            for parameters, recipe in parts
        ]
        self.clipped.append(max(float(one.exceeded()) for one in found))


def weights(module: nn.Module) -> list[list[float]]:
    return [parameter.flatten().tolist() for parameter in module.parameters()]


every = pytest.mark.parametrize("kind", [kind for kind in RECIPES if kind != "mmcv"])


@every
@pytest.mark.parametrize("accumulate", [1, 2])
def test_beside_lightning(kind: str, accumulate: int, tmp_path: Path) -> None:
    ours, theirs, keep = Quiet(), ClipsItself(RECIPES[kind]), Keep()
    kwargs = {"max_epochs": 2, "accumulate_grad_batches": accumulate}
    trainer = make_trainer(tmp_path, OptimizerHook(RECIPES[kind]), keep, **kwargs)
    trainer.fit(ours, make_loader(5))
    make_trainer(tmp_path, **kwargs).fit(theirs, make_loader(5))
    assert weights(ours) == weights(theirs)
    assert keep.history["grad_norm"] == pytest.approx(theirs.norms)
    assert keep.history["clip_fraction"] == theirs.clipped
    assert len(theirs.norms) == trainer.global_step


@every
def test_where_hooks_own_backward(kind: str, tmp_path: Path) -> None:
    ours, theirs, keep = Quiet(), ClipsItself(RECIPES[kind]), Keep()
    adapter = HookAdapter([OptimizerHook(RECIPES[kind]), keep], owns_backward=True)
    make_trainer(tmp_path, adapter).fit(ours, make_loader(5))
    make_trainer(tmp_path).fit(theirs, make_loader(5))
    assert weights(ours) == weights(theirs)
    assert keep.history["clip_fraction"] == theirs.clipped


def test_with_gradients_of_several_batches(tmp_path: Path) -> None:
    ours, theirs, keep = Quiet(), ClipsItself(RECIPES["groups"]), Keep()
    hook = GradientCumulativeOptimizerHook(2, grad_clip=RECIPES["groups"])
    make_trainer(tmp_path, hook, keep).fit(ours, make_loader(6))
    make_trainer(tmp_path, accumulate_grad_batches=2).fit(theirs, make_loader(6))
    assert weights(ours) == weights(theirs)
    assert keep.history["clip_fraction"] == theirs.clipped
    assert len(theirs.clipped) == 3


@every
@pytest.mark.parametrize("own", [False, True], ids=["trainers_scaler", "own_scaler"])
def test_of_unscaled_gradients(kind: str, own: bool, tmp_path: Path) -> None:
    keep, hook = Keep(), Fp16OptimizerHook(RECIPES[kind], loss_scale=2.0**16)
    scaled = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu"))
    kwargs: dict[str, Any] = {} if own else {"plugins": [scaled]}

    class Whole(Quiet):
        def loss(self, batch: Any) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().loss(batch)

    class WholeClipsItself(Whole, ClipsItself):
        pass

    ours, theirs = Whole(), WholeClipsItself(RECIPES[kind])
    adapter = HookAdapter([hook, keep], owns_backward=True if own else "auto")
    make_trainer(tmp_path, adapter, **kwargs).fit(ours, make_loader(3))
    make_trainer(tmp_path).fit(theirs, make_loader(3))
    for a, b in zip(weights(ours), weights(theirs), strict=True):
        assert a == pytest.approx(b, rel=1e-5)
    assert keep.history["grad_norm"] == pytest.approx(theirs.norms, rel=1e-5)
    assert keep.history["clip_fraction"] == theirs.clipped


class Two(Quiet):
    """A module with manual optimization of two optimizers."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(part.parameters(), 0.1) for part in (self.net[0], self.net[2:])]

    def training_step(self, batch: Any, batch_idx: int) -> None:
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            optimizer.step()


def test_several_optimizers_by_name_with_one_norm_in_the_log(tmp_path: Path) -> None:
    class ByHand(Two):
        def __init__(self) -> None:
            super().__init__()
            self.norms: list[float] = []

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            parameters = optimizer.param_groups[0]["params"]
            if optimizer is self.trainer.optimizers[0]:
                self.norms.append(the_norm(list(self.parameters())))
                clip_grad_norm_(parameters, 0.1)
            else:
                clip_grad_value_(parameters, 0.01)

    ours, theirs, keep = Two(), ByHand(), Keep()
    grad_clip = {"0": {"max_norm": 0.1}, "1": [{"type": "value", "clip_value": 0.01}]}
    make_trainer(tmp_path, OptimizerHook(grad_clip), keep).fit(ours, make_loader(4))
    make_trainer(tmp_path).fit(theirs, make_loader(4))
    assert weights(ours) == weights(theirs)
    assert keep.history["grad_norm"] == pytest.approx(theirs.norms)
    assert keep.history["clip_fraction"] == [1.0] * 4


def test_a_recipe_of_none_leaves_a_group_alone(tmp_path: Path) -> None:
    ours, theirs, keep = Quiet(), Quiet(), Keep()
    hook = OptimizerHook([None, {"max_norm": 1e9}])
    make_trainer(tmp_path, hook, keep).fit(ours, make_loader(3))
    make_trainer(tmp_path).fit(theirs, make_loader(3))
    assert weights(ours) == weights(theirs)
    assert keep.history["clip_fraction"] == [0.0] * 3


def test_mmcvs_own_dict_logs_what_mmcv_logs(tmp_path: Path) -> None:
    keep = Keep()
    make_trainer(tmp_path, OptimizerHook({"max_norm": 0.1}), keep).fit(Quiet(), make_loader(2))
    assert list(keep.history) == ["loss", "train_loss", "grad_norm"]


def test_the_optimizers_of_an_old_model_by_name(tmp_path: Path) -> None:
    model = job.make_model(kind="conv")
    plain = copy.deepcopy(model)
    first, last = "network.0", "network.5"
    optimizers = {
        name: torch.optim.SGD(model.get_submodule(name).parameters(), 0.1) for name in (first, last)
    }
    hook = OptimizerHook({first: {"type": "value", "clip_value": 1e-3}, last: None})
    train, val = job.make_data()
    make_trainer(tmp_path, hook).fit(TrainStepModule(model, optimizers), train, val)
    parts = [plain.get_submodule(name) for name in (first, last)]
    stepped = torch.optim.SGD([p for part in parts for p in part.parameters()], 0.1)
    for batch in train:
        stepped.zero_grad()
        plain.train_step(batch, stepped)["loss"].backward()
        clip_grad_value_(plain.get_submodule(first).parameters(), 1e-3)
        stepped.step()
    assert weights(model) == weights(plain)


# -- bad input ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grad_clip", "message"),
    [
        ({"type": "vale", "clip_value": 1}, "did you mean 'value'"),
        ({"type": "value"}, "positive clip_value"),
        ({"type": "value", "clip_value": -1}, "positive clip_value"),
        ({"type": "value", "max_norm": 1}, r"unknown keys \['max_norm'\]"),
        ({"type": "adaptive", "eps": 0}, "positive eps"),
        ({"max_norm": 1, "norm_type": 0}, "positive norm_type"),
        ({"max_norm": True}, "positive max_norm"),
        ([{"max_norm": 1}, {"max_norm": 0}], "positive max_norm"),
        ([{"max_norm": 1}, {"max_norm": 1, "norm_type": 1}], "one norm_type"),
        ([None, None], "clips nothing"),
    ],
)
def test_bad_recipes_are_refused(grad_clip: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimizerHook(grad_clip)


def test_what_is_no_recipe_is_refused() -> None:
    with pytest.raises(TypeError, match="grad_clip must be a dict, a list of dicts"):
        OptimizerHook([{"max_norm": 1}, 2])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("module", "grad_clip", "message"),
    [
        (Quiet, [{"max_norm": 1}], r"1 recipes, one \(or None\) is needed for each of SGD"),
        (Two, {"0": {"max_norm": 1}}, "has no entry for '1': SGD"),
        (Two, {"0": {"max_norm": 1}, "1": None, "two": None}, "no optimizer of this run: known"),
    ],
)
def test_groups_and_names_are_compared_before_training(
    module: Any, grad_clip: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, OptimizerHook(grad_clip)).fit(module(), make_loader(2))


def test_the_callers_recipes_are_not_kept(tmp_path: Path) -> None:
    given: Any = [{"max_norm": 1.0}, None]
    hook = OptimizerHook(given)
    given[0]["max_norm"] = 2.0
    assert hook.grad_clip == [{"max_norm": 1.0}, None]
    assert isinstance(hook, OptimizerHook)


# -- sharded gradients -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return the results of two processes with sharded parameters."""
    out = tmp_path_factory.mktemp("ranks")
    run_job("clipping", out)
    return read_ranks(out)


def by_hand(ranks: list[Any], kind: str) -> ClipsItself:
    """Train in a plain loop on the batches of both ranks with averaged gradients."""
    module = ClipsItself(RECIPES[kind.removeprefix("flattened ")])
    optimizer = module.configure_optimizers()
    for batches in zip(*[rank[kind]["batches"] for rank in ranks], strict=True):
        optimizer.zero_grad()
        for batch in batches:
            (TinyModule.loss(module, [torch.tensor(part) for part in batch]) / 2).backward()
        module.on_before_optimizer_step(optimizer)
        optimizer.step()
    return module


@pytest.mark.parametrize("kind", [*RECIPES, "flattened norm", "flattened value"])
def test_departure_sharded_gradients_are_clipped_by_their_whole_norm(
    kind: str, ranks: list[Any]
) -> None:
    module = by_hand(ranks, kind)
    assert len(module.norms) == 2
    assert max(module.clipped) == 1
    for found in (rank[kind] for rank in ranks):
        assert found["kinds"] == ["Tensor"]
        assert found["grad_norm"] == pytest.approx(module.norms, rel=1e-5)
        assert found["clip_fraction"] == ([] if kind == "mmcv" else module.clipped)
        for weight, wanted in zip(found["weights"], module.parameters(), strict=True):
            torch.testing.assert_close(torch.tensor(weight), wanted.detach())


def test_flattened_gradients_are_not_clipped_by_group(ranks: list[Any]) -> None:
    for rank in ranks:
        assert "does not work with FSDPOnCPU" in rank["refused"]


def test_gradients_of_deepspeed_are_left_to_it() -> None:
    strategy = DeepSpeedStrategy.__new__(DeepSpeedStrategy)  # no DeepSpeed package needed
    trainer: Any = SimpleNamespace(strategy=strategy, gradient_clip_val=None, precision_plugin=None)
    with pytest.raises(ValueError, match="does not reach the gradients of DeepSpeed"):
        OptimizerHook({"max_norm": 1.0}).on_fit_start(trainer, TinyModule())


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_some_of_which_are_sharded(kind: str, ranks: list[Any]) -> None:
    parameters = [nn.Parameter(torch.full((3, 2), value)) for value in (1.0, 2.0, 3.0)]
    for parameter in parameters:
        parameter.grad = parameter.detach() ** 2
    recipe = {key: value for key, value in RECIPES[kind].items() if key != "type"}
    wanted = KINDS[kind](parameters, **recipe)
    for found in (rank["mixed"][kind] for rank in ranks):
        assert found["norm"] == pytest.approx(float(wanted.norm))
        assert found["exceeded"] == 1
        for gradient, parameter in zip(found["gradients"], parameters, strict=True):
            torch.testing.assert_close(torch.tensor(gradient), parameter.grad)
