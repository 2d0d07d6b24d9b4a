"""Unchanged hooks of detectron2 projects in a Trainer."""

from __future__ import annotations

import copy
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
    """Import the projects' hooks with the dialect in place of detectron2."""
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
    """Records the weights after each step."""

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


class Net(TinyModule):
    """A module that returns losses by name, as detectron2's models."""

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        return {"loss_square": self.loss(batch)}

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        losses = self(batch)
        self.losses.append(losses["loss_square"].item())
        return {"loss": sum(losses.values()), **losses}


class Storage(d2.HookBase):
    """Keeps the storage's histories."""

    def after_train(self) -> None:
        self.values = {n: h.values() for n, h in self.trainer.storage.histories().items()}


def test_a_tutorials_validation_loss(project: Any, tmp_path: Path) -> None:
    storage, model, plain = Storage(), Net(), Net()
    fit(tmp_path, module=plain)
    data = make_loader(2, seed=5)
    fit(tmp_path, project.LossEvalHook(4, model, data), storage, module=model)
    assert [at for _, at in storage.values["validation_loss"]] == [3, 5]
    last = sum(model(batch)["loss_square"].item() for batch in data) / 2
    assert storage.values["validation_loss"][-1][0] == pytest.approx(last)
    assert torch.equal(plain.net.weight, model.net.weight)


def test_latest_values_go_to_mlflow_with_their_steps(project: Any, tmp_path: Path) -> None:
    sent: list[Any] = []
    module = Net()
    fit(tmp_path, project.MLflowHook(sent, {"LR": 0.1}), module=module)
    assert sent[0] == ("param", "LR", 0.1)
    losses = [(value, step) for name, value, step in sent if name == "total_loss"]
    assert losses == [(pytest.approx(loss), i) for i, loss in enumerate(module.losses)]
    assert sent[-1] == ("end", 6, 6)


def test_neptunes_namespaces_fill_up(project: Any, tmp_path: Path) -> None:
    run: dict[str, Any] = {}
    fit(tmp_path, project.NeptuneHook(run), module=Net())
    assert run["parameters/optimizer"] == "SGD"
    assert "Linear" in run["model/summary"]
    assert [at for at, _ in run["metrics/loss_square"]] == [0, 2, 4]


def test_curves_are_drawn_from_the_histories(project: Any, tmp_path: Path) -> None:
    plot, module = project.PlotLosses(), Net()
    fit(tmp_path, plot, module=module)
    assert plot.curves["total_loss"] == pytest.approx(module.losses)
    mean = sum(module.losses) / len(module.losses)
    assert plot.curves["total_loss/average"] == pytest.approx(mean)


def test_a_plateau_lowers_the_rate(project: Any, tmp_path: Path) -> None:
    storage = Storage()
    hook = project.ReduceOnPlateau(1, "total_loss", patience=0, factor=0.5, threshold=10.0)
    trainer = fit(tmp_path, hook, storage, module=Net())
    rates = [value for value, _ in storage.values["lr"]]
    assert rates == pytest.approx([0.1 * 0.5**i for i in range(1, 7)])
    assert trainer.optimizers[0].param_groups[0]["lr"] == rates[-1]


def test_a_copied_model_is_swapped_in_for_evaluations(project: Any, tmp_path: Path) -> None:
    module, seen = Net(), []
    hook = project.EMACopyHook(module, 0.9)

    def evaluate() -> dict[str, float]:
        hook.apply()
        seen.append(module.net.weight.detach().clone())
        hook.restore()
        return {"norm": float(seen[-1].norm())}

    plain = Net()
    fit(tmp_path, module=plain)
    fit(tmp_path, hook, d2.EvalHook(3, evaluate), module=module)
    assert torch.equal(module.net.weight, plain.net.weight)
    assert len(seen) == 2
    assert torch.equal(seen[-1], hook.ema.net.weight)


def test_a_teacher_starts_after_the_burn_in(project: Any, tmp_path: Path) -> None:
    teacher, module = TinyModule(seed=1), Net()
    first = copy.deepcopy(teacher.net.weight)
    weights: list[torch.Tensor] = []
    notes = d2.CallbackHook(
        before_step=lambda trainer: weights.append(trainer.model.net.weight.detach().clone())
    )
    fit(tmp_path, notes, project.BurnIn(teacher, 4, 0.5), module=module)
    assert not torch.equal(first, teacher.net.weight)
    assert torch.allclose(teacher.net.weight, weights[4] * 0.5 + weights[5] * 0.5)


def test_gradients_are_clipped_before_the_step(project: Any, tmp_path: Path) -> None:
    storage, module = Storage(), Net(momentum=0.0)
    before = module.net.weight.detach().clone(), module.net.bias.detach().clone()
    fit(tmp_path, project.GradientClip(1e-3), storage, module=module, batches=1, max_epochs=1)
    moved = [
        (a - b.detach()).square().sum()
        for a, b in zip(before, module.net.parameters(), strict=True)
    ]
    assert float(sum(moved)) ** 0.5 == pytest.approx(0.1 * 1e-3, rel=1e-3)
    assert storage.values["grad_norm"][0][0] > 1e-3


def test_rates_are_stored_under_a_scope(project: Any, tmp_path: Path) -> None:
    storage = Storage()
    fit(tmp_path, project.LogLearningRates(), storage)
    assert [value for value, _ in storage.values["rates/lr/0"]] == [0.1] * 6


def test_a_time_budget_ends_the_run_with_its_error(project: Any, tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="1 of 6"):
        fit(tmp_path, project.TimeBudget(0.0))


def test_the_best_by_loss_is_saved_with_its_iteration(project: Any, tmp_path: Path) -> None:
    module = Net()
    checkpointer = d2.DetectionCheckpointer(module, str(tmp_path))
    hook = project.BestByLoss(checkpointer)
    fit(tmp_path, hook, module=module)
    saved = torch.load(tmp_path / "model_best.pth", weights_only=False)
    assert saved["loss"] == hook.best
    assert 0 <= saved["iteration"] < 6


def test_detectron2s_best_checkpointer_follows_the_evaluations(tmp_path: Path) -> None:
    module, scores = Net(), iter([1.0, 3.0, 2.0])
    checkpointer = d2.DetectionCheckpointer(module, str(tmp_path))
    hooks = [
        d2.EvalHook(2, lambda: {"bbox": {"AP": next(scores)}}),
        d2.BestCheckpointer(2, checkpointer, "bbox/AP", file_prefix="best"),
        d2.TorchMemoryStats(period=1),
    ]
    fit(tmp_path, *hooks, module=module)
    assert torch.load(tmp_path / "best.pth", weights_only=False)["iteration"] == 3
