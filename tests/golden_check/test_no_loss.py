"""A model that steps its optimizers, next to a hook: calls and weights equal real mmcv's."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import oracle
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from lightning_hooks.standin.runner.epoch_based_runner import EpochBasedRunner
from lightning_hooks.standin.runner.iter_based_runner import IterBasedRunner

RUNNERS = {"EpochBasedRunner": EpochBasedRunner, "IterBasedRunner": IterBasedRunner}


class Gan(nn.Module):
    """A model with two optimizers that returns no loss."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = nn.Linear(2, 2), nn.Linear(2, 2)

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        """Step each part's optimizer."""
        losses = {}
        for name, one in optimizer.items():
            loss = getattr(self, name)(data).square().mean()
            one.zero_grad()
            loss.backward()
            one.step()
            losses[name] = loss.item()
        return {"log_vars": losses, "num_samples": len(data)}


def trained(runner_class: Any, limit: dict[str, int], work_dir: Path) -> Any:
    torch.manual_seed(0)
    model = Gan()
    optimizers = {
        name: torch.optim.SGD(part.parameters(), 0.1) for name, part in model.named_children()
    }
    runner = runner_class(
        model,
        optimizer=optimizers,
        work_dir=str(work_dir),
        logger=oracle.silent_logger(),
        **limit,
    )
    seen: list[Any] = []

    class Looks(oracle.Hook):
        def after_train_iter(self, runner: Any) -> None:
            seen.append((runner.iter, dict(runner.outputs), dict(runner.log_buffer.val_history)))

    runner.register_hook(Looks())
    runner.run([DataLoader(torch.ones(6, 2), batch_size=2)], [("train", 1)])
    return seen, model.state_dict()


@pytest.mark.parametrize("name", RUNNERS)
def test_calls_and_weights_are_mmcvs(name: str, tmp_path: Path) -> None:
    limit = {"max_epochs": 2} if name == "EpochBasedRunner" else {"max_iters": 6}
    with mock.patch("time.sleep"):
        theirs, their_weights = trained(getattr(oracle.mmcv_runner, name), limit, tmp_path)
    ours, our_weights = trained(RUNNERS[name], limit, tmp_path)
    assert len(theirs) == 6
    assert ours == theirs
    assert all(torch.equal(our_weights[key], value) for key, value in their_weights.items())
