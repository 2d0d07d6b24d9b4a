"""FreezeHook: parts of a model do not train, for good or until an epoch or iteration."""

from __future__ import annotations

import contextlib
import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback
from torch import nn

from lightning_hooks import CheckpointHook, ClosureHook, EMAHook, FreezeHook, OptimizerHook
from support.training import TinyModule, TinyNormModule, fit, make_loader, make_trainer

PARTS = ["net.0", "net.1"]


class Look(Callback):
    """Records after each step whether the frozen layers are unchanged, and the train flag."""

    def __init__(self) -> None:
        self.found: list[tuple[bool, bool]] = []

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.before = copy.deepcopy(module.net[:2].state_dict())

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        assert module.net[3].training
        same = all(torch.equal(v, self.before[k]) for k, v in module.net[:2].state_dict().items())
        self.found.append((same, module.net[1].training))


class Module(TinyNormModule):
    """A module with weight decay, which would change parameters without a gradient."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        self.given = [p for p in self.parameters() if p.requires_grad]
        return torch.optim.SGD(self.given, lr=0.1, momentum=0.9, weight_decay=0.1)


@pytest.mark.parametrize("host", [False, True])
@pytest.mark.parametrize("by_epoch", [False, True])
@pytest.mark.parametrize(
    ("until", "steps"), [({}, 8), ({"until_epoch": 1}, 4), ({"until_iter": 3}, 3)], ids=str
)
def test_parts_do_not_train(
    tmp_path: Path, until: dict[str, int], steps: int, host: bool, by_epoch: bool
) -> None:
    look, module = Look(), Module()
    limits: dict[str, Any] = {"max_epochs": 2} if by_epoch else {"max_steps": 8}
    if host:
        limits["by_epoch"] = by_epoch
    hook = FreezeHook(PARTS, **until)
    fit(tmp_path, hook, callbacks=[look], module=module, val=1, host=host, **limits)
    assert look.found == [(True, False)] * steps + [(False, True)] * (8 - steps)
    assert len(module.given) == (2 if not until else 6)  # includes later trained parameters
    # the run restores all flags
    assert all(parameter.requires_grad for parameter in module.parameters())
    assert all(part.training for part in module.modules())


def test_hooks_that_own_the_backward_pass(tmp_path: Path) -> None:
    look = Look()
    hooks = [FreezeHook(PARTS, until_epoch=1), OptimizerHook(grad_clip={"max_norm": 1.0})]
    fit(tmp_path, *hooks, callbacks=[look], module=Module, val=1, max_epochs=2, host=True)
    assert look.found == [(True, False)] * 4 + [(False, True)] * 4


@pytest.mark.parametrize("until", [{"until_epoch": 2}, {"until_iter": 6}], ids=str)
def test_a_resumed_run_goes_on_as_it_was(tmp_path: Path, until: dict[str, int]) -> None:
    whole, part, rest = Module(), Module(), Module()
    ends = {"val": 1, "max_epochs": 3}
    saves = CheckpointHook(interval=1)
    fit(tmp_path / "whole", FreezeHook(PARTS, **until), saves, module=whole, **ends)
    path = tmp_path / "whole" / "epoch_1.pth"
    fit(tmp_path / "rest", FreezeHook(PARTS, **until), module=rest, ckpt_path=path, **ends)
    ours, theirs = rest.state_dict(), whole.state_dict()
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    first = part.state_dict()
    assert not torch.equal(ours["net.0.weight"], first["net.0.weight"])


def test_names_may_be_of_parameters_and_have_stars(tmp_path: Path) -> None:
    class Frozen(Callback):
        def on_train_start(self, trainer: Any, module: Any) -> None:
            frozen = [name for name, p in module.named_parameters() if not p.requires_grad]
            assert frozen == ["net.0.weight", "net.0.bias", "net.1.bias", "net.3.bias"]
            assert not module.net[0].training
            assert module.net[1].training  # only the bias is frozen

    hook = FreezeHook(["net.0", "net.*.bias"])
    fit(tmp_path, hook, callbacks=[Frozen()], module=Module, val=1)


def test_names_are_those_without_compilation(tmp_path: Path) -> None:
    trains: list[bool] = []
    module = Module()
    first: Any = module.net[0]

    def look(runner: Any) -> None:
        trains.append(first.weight.requires_grad)

    module.net = torch.compile(module.net, backend="eager")  # type: ignore[assignment]
    assert "net._orig_mod.0" in dict(module.named_modules())
    hooks = FreezeHook("net.0", until_epoch=1), ClosureHook("before_train_iter", look)
    fit(tmp_path, *hooks, module=module, max_epochs=2, val=1)
    assert trains == [False] * 4 + [True] * 4


def test_eval_mode_may_be_left_out(tmp_path: Path) -> None:
    look = Look()
    fit(tmp_path, FreezeHook("net.*", eval_mode=False), callbacks=[], module=Loose, val=1)
    fit(tmp_path, FreezeHook(PARTS, eval_mode=False), callbacks=[look], module=Module, val=1)
    assert look.found == [(False, True)] * 4  # BatchNorm's statistics move


class Loose(TinyNormModule):
    """A module with a parameter outside ``net``."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def loss(self, batch: Any) -> torch.Tensor:
        return super().loss(batch) * self.scale


def test_what_was_frozen_before_stays_frozen(tmp_path: Path) -> None:
    module = Module()
    module.net[0].requires_grad_(False)
    fit(tmp_path, FreezeHook(PARTS, until_iter=2), module=module, val=1)
    assert [p.requires_grad for p in module.parameters()] == [False] * 2 + [True] * 4


def test_all_is_as_it_was_after_an_error(tmp_path: Path) -> None:
    class Fails(Module):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            raise RuntimeError("the model fails")

    module = Fails()
    with pytest.raises(RuntimeError, match="the model fails"):
        fit(tmp_path, FreezeHook(PARTS), module=module, val=1)
    assert all(parameter.requires_grad for parameter in module.parameters())


def test_a_module_made_in_configure_model(tmp_path: Path) -> None:
    class Late(TinyModule):
        def make_net(self) -> Any:
            return None

        def configure_model(self) -> None:
            self.net = self.net or TinyNormModule().net

    look = Look()
    fit(tmp_path, FreezeHook(PARTS), callbacks=[look], module=Late, val=1)
    assert look.found == [(True, False)] * 4


def test_a_resumed_run_averages_unfrozen_parts_as_the_whole_one(tmp_path: Path) -> None:
    # the file is from iteration 5, after the parts were unfrozen within the epoch
    averages = []
    for stop in (8, 5):
        for ckpt, ends in ((None, stop), ("last", 8))[: 1 + (stop < 8)]:
            hooks = FreezeHook(PARTS, until_iter=3), EMAHook(momentum=0.2, warm_up=0)
            keep = CheckpointHook(1, by_epoch=False)
            cut = ClosureHook("before_train_iter", partial(raise_at, ends))
            made = make_trainer(tmp_path / str(stop), *hooks, keep, cut, enable_checkpointing=True)
            with contextlib.suppress(InterruptedError):
                made.fit(Module(), make_loader(8), make_loader(1), ckpt_path=ckpt)
        averages.append(dict(hooks[1].ema_state_dict()))
    torch.testing.assert_close(averages[1], averages[0], rtol=0, atol=0)


def raise_at(iteration: int, runner: Any) -> None:
    if runner.iter == iteration:
        raise InterruptedError


@pytest.mark.parametrize("host", [False, True])
def test_an_unknown_name_does_not_start(tmp_path: Path, host: bool) -> None:
    with pytest.raises(ValueError, match=r"'ned\.0' is neither a module nor .*mean 'net\.0'"):
        fit(tmp_path, FreezeHook("ned.0"), val=1, module=Module, host=host)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"names": []}, ValueError),
        ({"names": 3}, TypeError),
        ({"names": [nn.Linear(1, 1)]}, TypeError),
        ({"names": "net", "until_epoch": 0}, ValueError),
        ({"names": "net", "until_epoch": 1, "until_iter": 1}, ValueError),
        ({"names": "net", "eval_mode": 1}, TypeError),
    ],
    ids=str,
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        FreezeHook(**arguments)


def test_a_copy_has_the_arguments_alone(tmp_path: Path) -> None:
    hook = FreezeHook(PARTS, until_iter=3)
    hook._freeze(Module())
    for again in (pickle.loads(pickle.dumps(hook)), copy.deepcopy(hook)):
        assert (again.names, again.until_iter) == (PARTS, 3)
        assert not again._frozen
