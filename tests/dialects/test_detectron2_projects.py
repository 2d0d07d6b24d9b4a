"""Hooks of projects on detectron2, as they are, in a Trainer."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.as_library import load_as
from support.training import TinyModule, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

fit = partial(training.fit, host=True, batches=3, max_epochs=2)


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The hooks, whose imports of detectron2 get our classes."""
    for name, attributes in {
        "detectron2": {},
        "detectron2.engine": {"hooks": d2},
        "detectron2.engine.hooks": {"HookBase": d2.HookBase},
        "detectron2.utils": {},
        "detectron2.utils.events": {
            "EventWriter": d2.EventWriter,
            "get_event_storage": d2.get_event_storage,
        },
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    return load_as(monkeypatch, "d2_project", "detectron2_projects")


class Weights(d2.HookBase):
    """Notes the weights after each step."""

    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def after_step(self) -> None:
        self.seen.append(self.trainer.model.net.weight.detach().clone())


def test_d2gos_average_is_the_formula_and_can_be_applied(project: Any, tmp_path: Path) -> None:
    module, notes = TinyModule(), Weights()
    want = module.net.weight.detach().clone()
    hook = project.EMAHook(module, 0.9)
    fit(tmp_path, hook, notes, module=module)
    for weights in notes.seen:
        want = want * 0.9 + weights * (1 - 0.9)
    assert torch.equal(hook.ema.state["net.weight"], want)
    hook.ema.apply_to(module)
    assert torch.equal(module.net.weight, want)


def test_a_validation_loss_is_stored_and_changes_nothing(project: Any, tmp_path: Path) -> None:
    class Net(TinyModule):
        def forward(self, batch: Any) -> dict[str, torch.Tensor]:
            return {"loss_square": self.loss(batch)}

    plain, module, rows = Net(), Net(), []
    fit(tmp_path, module=plain)
    other = itertools.cycle(make_loader(2, seed=5))
    hooks = [project.ValidationLoss(other), d2.PeriodicWriter([project.WAndBWriter(rows)], 2)]
    fit(tmp_path, *hooks, module=module)
    assert torch.equal(plain.net.weight, module.net.weight)
    assert [iteration for iteration, _ in rows] == [1, 3, 5, 6]
    assert all(row["total_val_loss"] == row["val_loss_square"] for _, row in rows)


def test_an_early_stop_ends_the_run(project: Any, tmp_path: Path) -> None:
    ended: list[int] = []
    ends = d2.CallbackHook(after_train=lambda trainer: ended.append(trainer.iter))
    with pytest.raises(project.StopTrainingError):
        fit(tmp_path, project.EarlyStopping(0), ends)
    assert ended == [0]  # as in detectron2, where the loop has raised


def test_a_layer_is_frozen_until_its_iteration(project: Any, tmp_path: Path) -> None:
    module, notes = TinyModule(), Weights()
    before = module.net.weight.detach().clone()

    class Bias(TinyModule):
        def make_net(self) -> Any:
            net = super().make_net()
            self.offset = torch.nn.Parameter(torch.zeros(2))
            return net

        def loss(self, batch: Any) -> torch.Tensor:
            return torch.nn.functional.mse_loss(self.net(batch[0]) + self.offset, batch[1])

    fit(tmp_path, project.FreezeLayer(module := Bias(), ["net"], 3), notes, module=module)
    assert [bool(torch.equal(weights, before)) for weights in notes.seen] == [True] * 3 + [
        False
    ] * 3


def test_the_averaged_weights_are_the_models_after_the_run(project: Any, tmp_path: Path) -> None:
    notes = Weights()
    trainer = fit(tmp_path, project.SWA(2, 2, 0.01), notes)
    mean = (notes.seen[3] + notes.seen[5]) / 2
    torch.testing.assert_close(trainer.lightning_module.net.weight, mean)
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.01


def test_gradients_and_images_reach_the_writer(project: Any, tmp_path: Path) -> None:
    rows: list[Any] = []
    hooks = [project.GradientMonitor(), project.VisualizeInput(2)]
    fit(tmp_path, *hooks, d2.PeriodicWriter([project.WAndBWriter(rows, 1)], 3))
    assert [iteration for iteration, _ in rows] == [2, 5, 6]
    assert all(row["grad/net.weight"] > 0 for _, row in rows)
    images = [[name for name, value in row.items() if value == "image"] for _, row in rows]
    assert images == [["input 0", "input 2"], ["input 4"], []]
