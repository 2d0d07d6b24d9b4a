"""Hooks of projects on MMEngine, as they are, in a Trainer."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import mmengine
from support import training
from support.as_library import load_as
from support.training import TinyModule, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

fit = partial(training.fit, host=True, batches=3, max_epochs=2)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hooks, whose imports of mmengine get our classes."""
    for name, attributes in {
        "mmengine": {},
        "mmengine.hooks": {"Hook": mmengine.Hook},
        "mmengine.registry": {"HOOKS": mmengine.HOOKS},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(mmengine.HOOKS, "_module_dict", {**mmengine.HOOKS.module_dict})
    return load_as(monkeypatch, "mm_project", "mmengine_projects")


class Steps(mmengine.Hook):
    """Notes rates and weights after each step."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.weights: list[torch.Tensor] = []

    def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
        self.rates += runner.optim_wrapper.get_lr()["lr"]
        self.weights.append(runner.model.net.weight.detach().clone())


def test_a_warm_up_over_an_epoch_and_a_cosine(project: Any, tmp_path: Path) -> None:
    steps = Steps()
    fit(tmp_path, project.PPYOLOEParamSchedulerHook(), steps)
    warm_up = [0.1 * i / 3 for i in range(3)]
    cosine = [0.05 * (math.cos(i / 3 * math.pi) + 1) for i in range(3)]
    assert steps.rates == pytest.approx(warm_up + cosine)


def test_a_backbone_is_trained_from_its_epoch_on(project: Any, tmp_path: Path) -> None:
    class Frozen(TinyModule):
        def __init__(self) -> None:
            super().__init__()
            self.offset = torch.nn.Parameter(torch.zeros(2))
            self.net.requires_grad_(False)

        def loss(self, batch: Any) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self.net(batch[0]) + self.offset, batch[1])

    module, steps = Frozen(), Steps()
    before = module.net.weight.detach().clone()
    fit(tmp_path, project.UnfreezeBackboneEpochBasedHook(1), steps, module=module)
    is_frozen = [torch.equal(weights, before) for weights in steps.weights]
    assert is_frozen == [True] * 3 + [False] * 3


def test_a_benchmark_reads_the_message_hub(project: Any, tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level("INFO"):
        trainer = fit(tmp_path, project.BenchmarkHook())
    losses = trainer.lightning_module.losses
    for epoch in range(2):
        mean = sum(losses[3 * epoch : 3 * epoch + 3]) / 3
        assert f"Training of epoch {epoch + 1} has the loss {mean:.6f}" in caplog.text


def test_an_invalid_loss_ends_the_run_in_its_interval(project: Any, tmp_path: Path) -> None:
    class Diverges(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return super().training_step(batch, batch_idx) * float("nan")

    trainer = training.make_trainer(tmp_path)
    with pytest.raises(AssertionError):
        trainer = fit(tmp_path, project.CheckInvalidLossHook(2), module=Diverges())
    assert trainer.global_step == 0


@pytest.mark.parametrize("is_compiled", [False, True])
def test_averages_of_a_part_of_the_model(is_compiled: bool, project: Any, tmp_path: Path) -> None:
    class Compiled(TinyModule):
        def make_net(self) -> Any:
            net = super().make_net()
            return torch.compile(net, backend="eager") if is_compiled else net

    module, steps = Compiled(), Steps()
    mean = module.net.weight.detach().clone()
    whole = project.ExponentialMovingAverageHook("net_ema", 0.75)
    part = project.SubmoduleEMAHook("net", 0.25)
    trainer = fit(tmp_path, whole, part, steps, module=module)
    for weights in steps.weights:
        mean = mean.lerp(weights, 0.25)
    torch.testing.assert_close(module.net_ema.weight, mean)  # type: ignore[union-attr]
    torch.testing.assert_close(part.state["weight"], mean)
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    saved = torch.load(tmp_path / "a.ckpt", weights_only=True)
    assert torch.equal(saved["submodule_ema"]["weight"], part.state["weight"])


def test_a_number_of_classes_is_checked_before_training(
    project: Any, tmp_path: Path, caplog: Any
) -> None:
    fit(tmp_path, project.ClassNumCheckHook(), val=1)
    assert caplog.text.count("Please set class information in TensorDataset") == 3
    loader = make_loader(3)
    loader.dataset.CLASSES = ("cat", "dog", "cow")  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="2 outputs for 3 classes"):
        fit(tmp_path, project.ClassNumCheckHook(), batches=loader)
