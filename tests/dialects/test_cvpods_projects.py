"""Unchanged hooks of cvpods users in a Trainer."""

from __future__ import annotations

import copy
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import cvpods
from support import training
from support.dialect_hooks import cvpods_projects as projects
from support.training import TinyModule, TinyNormModule, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

fit = partial(training.fit, host=True, batches=3, max_epochs=2)
STEP = partial(cvpods.OptimizationHook, accumulate_grad_steps=1)


def by_hand(change: Any, steps: int = 6) -> TinyModule:
    """Return a module trained in a plain loop; ``change`` sets the gradients of each step."""
    module = TinyModule()
    optimizer = module.configure_optimizers()
    batches = [*make_loader(3)] * 2
    for i, batch in enumerate(batches[:steps]):
        optimizer.zero_grad()
        change(i, module, batch)
        optimizer.step()
    return module


def same(a: Any, b: Any) -> bool:
    return all(map(torch.equal, a.parameters(), b.parameters()))


def test_gradients_are_clamped_in_a_subclass_of_the_step(tmp_path: Path) -> None:
    def clamped(i: int, module: TinyModule, batch: Any) -> None:
        module.loss(batch).backward()
        for parameter in module.parameters():
            parameter.grad.clamp_(-0.1, 0.1)  # type: ignore[union-attr]

    module = TinyModule()
    fit(tmp_path, projects.ClippedStep(0.1, accumulate_grad_steps=1), module=module)
    assert same(module, by_hand(clamped))


def test_two_backward_passes_make_a_step(tmp_path: Path) -> None:
    fixed = next(iter(make_loader(1, seed=3)))

    def sharp(i: int, module: TinyModule, batch: Any) -> None:
        module.loss(batch).backward()
        parameters = list(module.parameters())
        grads: list[Any] = [parameter.grad for parameter in parameters]
        norm = torch.stack([grad.norm() for grad in grads]).norm()
        moves = [grad * (0.05 / (norm + 1e-12)) for grad in grads]
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.add_(move)
        module.zero_grad()
        module.loss(fixed).backward()
        with torch.no_grad():
            for parameter, move in zip(parameters, moves, strict=True):
                parameter.sub_(move)

    module = TinyModule()
    hook = projects.SharpnessAware(0.05, lambda model: model.loss(fixed))
    fit(tmp_path, hook, module=module, owns_backward=True)
    assert same(module, by_hand(sharp))


def test_noise_is_added_between_backward_and_step(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)

    def noisy(i: int, module: TinyModule, batch: Any) -> None:
        module.loss(batch).backward()
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.grad.add_(noise, alpha=0.1 / (1 + i))  # type: ignore[union-attr]

    module = TinyModule()
    fit(tmp_path, projects.NoisyGradients(0.1, 1), module=module, owns_backward=True)
    assert same(module, by_hand(noisy))


def test_an_average_follows_the_steps(tmp_path: Path) -> None:
    average: list[torch.Tensor] = [TinyModule().net.weight.detach().clone()]

    def step(i: int, module: TinyModule, batch: Any) -> None:
        module.loss(batch).backward()

    hook, module = projects.ModelEMA(0.9), TinyModule()
    fit(tmp_path, STEP(), hook, module=module)
    for steps in range(1, 7):
        decay = 0.9 * (1 - math.exp(-steps / 2000))
        average.append(average[-1] * decay + (1 - decay) * by_hand(step, steps).net.weight.detach())
    torch.testing.assert_close(hook.ema.net.weight, average[-1])
    assert hook.at_end == 6


def test_statistics_stay_from_an_iteration_on(tmp_path: Path) -> None:
    seen: list[int] = []

    class Module(TinyNormModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            seen.append(int(self.net[1].num_batches_tracked))  # type: ignore[index]
            return loss

    fit(tmp_path, projects.FreezeBatchNorm(2), STEP(), module=Module())
    assert seen == [1, 2, 2, 2, 2, 2]


def test_a_loss_is_scaled_before_the_step(tmp_path: Path) -> None:
    def scaled(i: int, module: TinyModule, batch: Any) -> None:
        (module.loss(batch) * 0.5).backward()

    module, path = TinyModule(), tmp_path / "metrics.json"
    writer = cvpods.PeriodicWriter([cvpods.JSONWriter(str(path))], period=1)
    fit(tmp_path, projects.LossScale(0.5), STEP(), writer, module=module)
    assert same(module, by_hand(scaled))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["scaled"] for row in rows] == pytest.approx([x / 2 for x in module.losses])


def test_an_evaluation_reads_the_features(tmp_path: Path) -> None:
    features, targets = torch.randn(8, 4), torch.tensor([0, 1] * 4)
    path = tmp_path / "metrics.json"
    hooks = [
        projects.KnnEvaluation(3, features, targets),
        cvpods.PeriodicWriter([cvpods.JSONWriter(str(path))], period=3),
    ]
    fit(tmp_path, STEP(), *hooks)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sum("knn/top1" in row for row in rows) >= 2
    assert all(0 <= row.get("knn/top1", 0) <= 1 for row in rows)


def test_terms_of_a_loss_are_weighed(tmp_path: Path) -> None:
    class Terms(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            box, mask = self.loss(batch), self.net.weight.square().mean()
            return {"loss": box + mask, "loss_box": box, "loss_mask": mask}

    def weighed(i: int, module: TinyModule, batch: Any) -> None:
        (module.loss(batch) * 1.0 + module.net.weight.square().mean() * 0.25).backward()

    module = Terms()
    fit(tmp_path, projects.LossWeights(loss_mask=0.25), STEP(), module=module)
    want = by_hand(weighed)
    assert torch.allclose(module.net.weight, want.net.weight)
    assert copy.copy(module.net.bias).allclose(want.net.bias)
