"""``precise_bn``: an average is validated and saved with recomputed BatchNorm statistics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader

from lightning_hooks import (
    CheckpointHook,
    EMAHook,
    ExpMomentumEMAHook,
    StochasticWeightAverageHook,
)
from support.training import TinyNormModule, fit, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
DATA = make_loader(5, 3)
BY_ITER = {"by_epoch": False, "max_steps": 10}


class Module(TinyNormModule):
    """A module with a high learning rate, so the average's statistics differ from the model's."""

    def __init__(self) -> None:
        super().__init__(lr=0.5)
        self.forwards = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.forwards += 1
        return super().training_step(batch, batch_idx)


def is_precise(module: nn.Module) -> bool:
    """Return whether the BatchNorm statistics match all data under the module's current weights."""
    layer = module.net[1]
    with torch.no_grad():
        seen = module.net[0](torch.cat([x for x, _ in DATA]))
    var = seen.var(0, unbiased=False)
    close = torch.allclose(layer.running_mean, seen.mean(0), atol=1e-5)
    return close and torch.allclose(layer.running_var, var, rtol=1e-4)


def loaded(state: dict[str, Any]) -> Module:
    module = Module()
    module.load_state_dict(state)
    return module


class Look(Callback):
    """Checks the statistics in validation and the module's mode during training."""

    def __init__(self) -> None:
        self.validated: list[bool] = []
        self.trained: list[Any] = []

    def on_validation_batch_start(self, trainer: Any, module: Any, *args: Any) -> None:
        assert not any(part.training for part in module.modules())
        if not trainer.sanity_checking:
            self.validated.append(is_precise(module))

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        assert all(part.training for part in module.modules())
        self.trained.append({name: value.clone() for name, value in module.state_dict().items()})


def same(one: Any, other: Any) -> bool:
    return [*map(str, one)] == [*map(str, other)]


@pytest.mark.parametrize(
    ("options", "host"),
    [
        ({}, False),
        ({"buffers": "average"}, True),
        pytest.param({"buffers": "copy"}, False, marks=pytest.mark.slow),
        pytest.param({"swap": "copy"}, True, marks=pytest.mark.slow),
        ({"device": "cpu", "interval": 2}, True),
    ],
    ids=str,
)
def test_the_average_is_validated_and_saved_with_its_own_statistics(
    tmp_path: Path, options: dict[str, Any], host: bool
) -> None:
    average, look, plain = EMAHook(0.01, precise_bn=True, **options), Look(), Look()
    run = {"module": Module, "batches": DATA, "val": 1, "max_epochs": 2}
    fit(tmp_path, average, CheckpointHook(), callbacks=[look], host=host, **run)
    assert look.validated == [True, True]
    saved = torch.load(tmp_path / "epoch_2.pth", weights_only=True)
    assert is_precise(loaded(saved["state_dict"]))
    module = Module()
    average.apply_to(module)
    assert is_precise(module)
    # training and moving averages are the same as without the hook
    fit(tmp_path, EMAHook(0.01), callbacks=[plain], **run)
    assert plain.validated == [False, False]
    assert same(look.trained, plain.trained)
    assert str(saved["current_model_state"]) == str(plain.trained[-1])


@pytest.mark.parametrize(("workers", "host"), [(0, True), (1, False)])
def test_within_an_epoch_and_by_iteration(tmp_path: Path, host: bool, workers: int) -> None:
    options = {"num_workers": workers, "persistent_workers": bool(workers), "shuffle": True}
    trained = []
    for precise in (True, False):
        loader = DataLoader(DATA.dataset, 3, **options)
        average, look = EMAHook(0.01, precise_bn=precise), Look()
        torch.manual_seed(1)
        trainer = fit(
            *(tmp_path, average, CheckpointHook(interval=3, by_epoch=False)),
            **{"callbacks": [look], "module": Module, "batches": loader, "val": 1, "host": host},
            **({} if not host else {"by_epoch": False}),
            **{"max_steps": 8, "val_check_interval": 2},
        )
        assert look.validated == [precise] * 3  # the epoch has 5 batches
        trained.append(look.trained)
        saved = torch.load(tmp_path / "iter_3.pth", weights_only=True)  # before a validation
        assert is_precise(loaded(saved["state_dict"])) is precise
        assert str(saved["current_model_state"]) == str(look.trained[2])
    assert same(*trained)
    assert trainer.global_step == 8


def test_files_of_lightnings_checkpoint_and_exports_without_a_validation(tmp_path: Path) -> None:
    average = StochasticWeightAverageHook(precise_bn=15)
    files = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=3, save_top_k=-1)
    fit(tmp_path, average, callbacks=[files], module=Module, batches=DATA, **BY_ITER)
    for step in (3, 6, 9):
        saved = torch.load(tmp_path / f"step={step}.ckpt", weights_only=True)
        assert is_precise(loaded(saved["state_dict"]))
    average.export(str(tmp_path / "average.pth"))
    exported = torch.load(tmp_path / "average.pth", weights_only=True)
    assert is_precise(loaded(exported.get("state_dict", exported)))


def test_nothing_is_estimated_twice_for_one_average(tmp_path: Path) -> None:
    module, average = Module(), ExpMomentumEMAHook(precise_bn=6)
    callbacks = [ModelCheckpoint(tmp_path, save_last=True, every_n_epochs=1)]
    hooks = [average, CheckpointHook()]
    fit(tmp_path, *hooks, callbacks=callbacks, module=module, batches=DATA, val=1, max_epochs=2)
    assert module.forwards == 2 * (5 + 2)  # 6 samples are two batches, after each epoch


def test_before_the_average_begins_the_model_has_its_own(tmp_path: Path) -> None:
    look, module = Look(), Module()
    average = EMAHook(0.01, precise_bn=True, begin_epoch=1)
    fit(tmp_path, average, callbacks=[look], module=module, batches=DATA, val=1, max_epochs=2)
    assert look.validated == [False, True]
    assert module.forwards == 2 * 5 + 5


def test_a_dict_without_arguments_is_a_dict_of_them(tmp_path: Path) -> None:
    averages = [EMAHook(0.01, precise_bn=given) for given in (True, {})]
    for average in averages:
        fit(tmp_path, average, module=Module(), batches=DATA, val=1, max_epochs=1)
    one, other = (average.ema_state_dict()["net.1.running_mean"] for average in averages)
    assert torch.equal(one, other)


def test_a_layer_that_does_not_learn_keeps_the_models_statistics(tmp_path: Path) -> None:
    class Frozen(Module):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            self.net[1].train(self.global_step < 3)

    average, module = EMAHook(0.01, precise_bn=True), Frozen()
    with pytest.warns(UserWarning, match=r"EMAHook\(precise_bn=\.\.\.\): there is no BatchNorm"):
        fit(tmp_path, average, module=module, batches=DATA, val=1, max_epochs=2)
    assert torch.equal(average.ema_state_dict()["net.1.running_mean"], module.net[1].running_mean)


@pytest.mark.parametrize("hosted", [False, True], ids=["bare", "hosted"])
def test_a_module_without_buffers_trains_after_the_warning(hosted: bool, tmp_path: Path) -> None:
    average = EMAHook(0.3, precise_bn=True)
    with pytest.warns(UserWarning, match="there is no BatchNorm layer"):
        fit(tmp_path, average, host=hosted, val=1, max_epochs=1)
    assert average.updates == 4


@pytest.mark.parametrize("other", [{}, {"buffers": "copy", "precise_bn": False}])
def test_a_resumed_run_goes_on(tmp_path: Path, other: dict[str, Any]) -> None:
    whole, first = EMAHook(0.01, precise_bn=True), EMAHook(0.01, precise_bn=True)
    run = {"module": Module, "batches": DATA, "val": 1}
    fit(tmp_path / "whole", whole, **run, max_epochs=2)
    fit(tmp_path / "part", first, CheckpointHook(), **run, max_epochs=1)
    resumed = EMAHook(0.01, **{"precise_bn": True, **other})
    path = tmp_path / "part" / "latest.pth"
    fit(tmp_path / "part", resumed, **run, max_epochs=2, ckpt_path=path)
    ours, theirs = whole.ema_state_dict(), resumed.ema_state_dict()
    keys = [key for key in ours if "running" not in key] if other else [*ours]
    assert all(torch.equal(ours[key], theirs[key]) for key in keys)


def test_a_resumed_run_validates_with_the_statistics_of_the_file(tmp_path: Path) -> None:
    class Noted(Module):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            outputs.append(self.net(batch[0]))

    def run(ckpt_path: Path | None = None) -> int:
        hooks, module = [EMAHook(0.1, precise_bn=6), CheckpointHook(2, by_epoch=False)], Noted()
        every = {"accumulate_grad_batches": 2, "val_check_interval": 3}  # no step in between
        options = {"batches": DATA, "val": 1, "max_epochs": 1, "ckpt_path": ckpt_path}
        fit(tmp_path, *hooks, module=module, **options, **every)
        return module.forwards

    outputs: list[torch.Tensor] = []
    assert run() == 5 + 3 * 2  # 6 samples are two batches: for two files, and after the epoch
    assert run(tmp_path / "iter_2.pth") == 3 + 2 * 2
    assert torch.equal(*outputs[-2:])


def test_evaluated_from_a_file_nothing_is_estimated_again(tmp_path: Path) -> None:
    module, average = Module(), EMAHook(0.01, precise_bn=True, after_fit="raw")
    run = {"module": module, "batches": DATA, "val": 1, "max_epochs": 1}
    trainer = fit(tmp_path, average, CheckpointHook(), **run)
    again, look = Module(), Look()
    trainer.callbacks.append(look)
    trainer.validate(again, make_loader(1), str(tmp_path / "latest.pth"), verbose=False)
    assert look.validated == [True]
    assert again.forwards == 0
    assert not is_precise(module)


def test_a_file_written_after_an_error_runs_no_model(tmp_path: Path) -> None:
    class Fails(Module):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if self.forwards == 3:
                raise RuntimeError("the model fails")
            return super().training_step(batch, batch_idx)

    class Saves(Callback):
        def on_exception(self, trainer: Any, *args: Any) -> None:
            trainer.save_checkpoint(tmp_path / "last.ckpt")

    with pytest.raises(RuntimeError, match="the model fails"):
        fit(tmp_path, EMAHook(precise_bn=True), callbacks=[Saves()], module=Fails, batches=DATA)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["global_step"] == 3


def test_a_hook_of_other_arguments(tmp_path: Path) -> None:
    seen: list[Any] = []

    def run(module: Any, batch: Any) -> None:
        seen.append(batch)
        module.net(batch[0])

    estimates = {"num_iters": 2, "dataloader": make_loader(4, 3, seed=5), "forward": run}
    average = EMAHook(precise_bn=estimates)
    fit(tmp_path, average, module=Module, batches=DATA, max_epochs=1)
    assert len(seen) == 2
    layer = nn.BatchNorm1d(8, momentum=None)
    first = average.ema_state_dict()
    net = loaded({**first}).net
    update_bn([net[0](x).detach() for x, _ in seen], layer.train())  # torch's, of equal batches
    torch.testing.assert_close(first["net.1.running_mean"], layer.running_mean)
    spread = torch.stack([net[0](x).mean(0) for x, _ in seen]).var(0, unbiased=False)
    ours = (first["net.1.running_var"] - spread) * 3 / 2  # 3 samples: torch's is unbiased
    torch.testing.assert_close(ours, layer.running_var)


@pytest.mark.parametrize(
    ("bad", "error", "text"),
    [
        (0, ValueError, "precise_bn must be at least 1, got 0"),
        ("yes", TypeError, "precise_bn must be True, False, a number of samples or a dict"),
        (None, TypeError, "precise_bn must be True"),
        ({"interval": 2}, ValueError, "leave interval out"),
        ({"max_norm": 2}, TypeError, r"precise_bn={'max_norm': 2}: .* keyword argument 'max_norm'"),
        ({"num_samples": 0}, ValueError, r"precise_bn={'num_samples': 0}: .* at least 1, got 0"),
    ],
)
def test_a_bad_argument_is_refused(bad: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        EMAHook(precise_bn=bad)


class Manual(Module):
    """A module with manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Batches:
    """An iterable of batches other than a DataLoader."""

    def __iter__(self) -> Any:
        return iter(DATA)


def test_a_run_in_which_it_cannot_work_does_not_start(tmp_path: Path) -> None:
    say = r"EMAHook\(precise_bn=dict\(forward=lambda module, batch: \.\.\.\)\)"
    with pytest.raises(ValueError, match=say):
        fit(tmp_path, EMAHook(precise_bn=True), module=Manual, batches=DATA)
    say = r"size of Batches is not known.*EMAHook\(precise_bn=dict\(num_iters=\.\.\.\)\)"
    with pytest.raises(ValueError, match=say):
        fit(tmp_path, EMAHook(precise_bn=True), module=Module, batches=Batches())
