"""Every hook is called for a model that steps its optimizers and returns no loss."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from support.standin import make


class Gan(nn.Module):
    """A model with two optimizers, both stepped in ``train_step``."""

    def __init__(self) -> None:
        super().__init__()
        self.generator, self.discriminator = nn.Linear(2, 2), nn.Linear(2, 2)

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        losses = {}
        for name, one in optimizer.items():
            loss = getattr(self, name)(data).square().mean()
            one.zero_grad()
            loss.backward()
            one.step()
            losses[name] = loss.item()
        return {"log_vars": losses, "num_samples": len(data)}


def make_gan(kind: str, work_dir: Path) -> Any:
    model = Gan()
    optimizers = {
        name: torch.optim.SGD(part.parameters(), 0.1) for name, part in model.named_children()
    }
    limit = 2 if kind == "EpochBasedRunner" else 6
    return make(kind, limit, work_dir, model, optimizer=optimizers)


KINDS = pytest.mark.parametrize("kind", ["EpochBasedRunner", "IterBasedRunner"])


@KINDS
def test_each_hook_is_called_in_each_iteration(kind: str, tmp_path: Path) -> None:
    from mmcv.runner import Hook

    class Looks(Hook):
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def after_train_iter(self, runner: Any) -> None:
            losses = {name: values[-1] for name, values in runner.log_buffer.val_history.items()}
            assert losses == runner.outputs["log_vars"]
            self.seen.append((runner.iter, losses["generator"]))

    runner = make_gan(kind, tmp_path)
    hooks = [Looks(), Looks(), Looks()]
    for hook, priority in zip(hooks, ["HIGHEST", "NORMAL", "LOWEST"], strict=True):
        runner.register_hook(hook, priority)
    runner.run([[torch.ones(2, 2)] * 3], [("train", 1)])
    for hook in hooks:
        assert [number for number, _ in hook.seen] == list(range(6))
        assert all(a > b for (_, a), (_, b) in itertools.pairwise(hook.seen))


@KINDS
@pytest.mark.parametrize("name", ["OptimizerHook", "GradientCumulativeOptimizerHook"])
def test_a_hook_that_needs_the_loss_raises_an_error(kind: str, name: str, tmp_path: Path) -> None:
    runner = make_gan(kind, tmp_path)
    cumulative = {"cumulative_iters": 2} if "Cumulative" in name else {}
    runner.register_optimizer_hook({"type": name, **cumulative})
    with pytest.raises(KeyError, match="returned no 'loss', only: log_vars, num_samples"):
        runner.run([[torch.ones(2, 2)] * 3], [("train", 1)])
