"""Unchanged hooks of MMEngine projects in a Trainer."""

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
    """Import the projects' hooks with the dialect in place of MMEngine."""
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
    """Records rates and weights after each step."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.weights: list[torch.Tensor] = []

    def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
        self.rates += runner.optim_wrapper.get_lr()["lr"]
        self.weights.append(runner.model.net.weight.detach().clone())


class Clock(mmengine.Hook):
    """Writes a time, as mmengine's ``IterTimerHook`` does."""

    def after_train_iter(self, runner: Any, batch_idx: int, **kwargs: Any) -> None:
        runner.message_hub.update_scalar("train/time", 0.5)


class Hub(mmengine.Hook):
    """Hands out the run's message hub."""

    def before_train(self, runner: Any) -> None:
        runner.model.hub = runner.message_hub


def hub_of(trainer: Any) -> Any:
    """Return the message hub of a run with a :class:`Hub`."""
    return trainer.lightning_module.hub


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


def test_a_throughput_is_derived_from_the_time(project: Any, tmp_path: Path) -> None:
    trainer = fit(tmp_path, Clock(), project.ThroughputHook(), Hub())
    hub = hub_of(trainer)
    assert hub.get_scalar("train/tokens_per_sec").current() == 2 * 4 / 0.5
    assert hub.get_scalar("train/flops").mean() == 2 * 2 * 4 * 4


def test_a_batch_is_in_the_hub_before_its_step(project: Any, tmp_path: Path) -> None:
    class Reads(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            assert hub_of(self.trainer).get_info("samples") == batch[0].tolist()
            return super().training_step(batch, batch_idx)

    fit(tmp_path, project.PushDataInfoToMessageHubHook(), Hub(), module=Reads())


def test_a_model_is_switched_to_deployment_for_a_test(project: Any, tmp_path: Path) -> None:
    class Switches(torch.nn.Linear):
        deployed = 0

        def switch_to_deploy(self) -> None:
            self.deployed += 1

    class Net(TinyModule):
        def make_net(self) -> Any:
            return Switches(4, 2)

        def test_step(self, batch: Any, batch_idx: int) -> None:
            assert self.net.deployed == 1

    module = Net()
    trainer = fit(tmp_path, project.SwitchToDeployHook(), module=module, val=1)
    assert module.net.deployed == 0
    trainer.test(module, make_loader(1), verbose=False)
    assert module.net.deployed == 1


@pytest.mark.parametrize("save_ckpt", [False, True])
def test_a_quick_exit_ends_the_run(save_ckpt: bool, project: Any, tmp_path: Path) -> None:
    hook = project.FastStopTrainingHook(True, save_ckpt, stop_iter_or_epoch=1)
    module = TinyModule()
    with pytest.raises(RuntimeError, match="quit normally"):
        fit(tmp_path, hook, module=module)
    assert len(module.losses) == (6 if save_ckpt else 2)


def test_outputs_of_a_layer_are_kept_in_the_validation(project: Any, tmp_path: Path) -> None:
    hook, module = project.OutputHook(["net"]), TinyModule()
    fit(tmp_path, hook, module=module, val=1)
    want = module.net(next(iter(make_loader(1, seed=1)))[0])
    assert hook.layer_outputs["net"].shape == want.shape
    assert not module.net._forward_hooks


def test_the_best_score_is_drawn(project: Any, tmp_path: Path) -> None:
    class Names(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.log("error", loss := self.loss(batch))
            return loss

    hook = project.BestScoreHook("error")
    trainer = fit(tmp_path, hook, Hub(), module=Names(), val=1)
    assert [epoch for epoch, _ in hook.seen] == [1, 2]
    assert hub_of(trainer).get_info("best") == min(score for _, score in hook.seen)


def test_margins_follow_the_counts_of_the_labels(project: Any, tmp_path: Path) -> None:
    class Head(torch.nn.Linear):
        def set_margins(self, margins: list[float]) -> None:
            self.margins = margins

    class Net(TinyModule):
        def make_net(self) -> Any:
            self.head = Head(4, 2)
            return self.head

    loader = make_loader(3)
    loader.dataset.labels = torch.tensor([0, 0, 0, 1, 1, 2])  # type: ignore[attr-defined]
    module = Net()
    fit(tmp_path, project.SetAdaptiveMarginsHook(), module=module, batches=loader)
    assert module.head.margins == pytest.approx([0.05, 0.2019, 0.5], abs=1e-3)
    with pytest.raises((ValueError, AttributeError), match="head"):
        fit(tmp_path, project.SetAdaptiveMarginsHook(), batches=loader)


def test_a_norm_is_in_the_hub_at_its_interval(project: Any, tmp_path: Path) -> None:
    trainer = fit(tmp_path, project.WeightNormHook(2), Hub())
    values, _ = hub_of(trainer).get_scalar("train/weight_norm").data
    assert len(values) == 3  # of iterations 2, 5, and 6, the last
    parameters = trainer.lightning_module.parameters()
    norm = torch.stack([p.norm() for p in parameters]).norm()
    assert values[-1] == pytest.approx(norm.item())


def test_a_data_set_changes_from_epoch_to_epoch(project: Any, tmp_path: Path) -> None:
    loader, sizes = make_loader(3), []

    class Reads(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            sizes.append(loader.dataset.size)  # type: ignore[attr-defined]
            return super().training_step(batch, batch_idx)

    hook = project.ProgressiveResizeHook([16, 32])
    fit(tmp_path, hook, module=Reads(), batches=loader, max_epochs=3)
    assert sizes == [16] * 3 + [32] * 6


def test_rates_and_momenta_are_read_from_the_wrapper(
    project: Any, tmp_path: Path, caplog: Any
) -> None:
    hook = project.GradientAccumulationInfoHook()
    with caplog.at_level("INFO"):
        fit(tmp_path, hook)
    assert hook.seen == [([0.1], [0.9])] * 6
    assert "SGD is used" in caplog.text


def test_a_projects_entry_comes_back_at_a_resume(project: Any, tmp_path: Path) -> None:
    first = fit(tmp_path, project.ResumeInfoHook(), max_epochs=1)
    first.save_checkpoint(tmp_path / "one.ckpt")
    hook = project.ResumeInfoHook()
    fit(tmp_path, hook, ckpt_path=str(tmp_path / "one.ckpt"))
    assert hook.resumed_at == {"epoch": 1, "iter": 3}
