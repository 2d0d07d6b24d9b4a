"""GradientCumulativeOptimizerHook equals Lightning's accumulation for batches without a loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import GradientCumulativeOptimizerHook
from support.training import NoValidation, make_loader, make_trainer


class Gradients(Callback):
    """Records the gradients of each optimizer step."""

    def __init__(self) -> None:
        self.found: list[torch.Tensor] = []

    def on_before_optimizer_step(self, trainer: L.Trainer, module: Any, optimizer: Any) -> None:
        self.found.append(module.net.weight.grad.clone())


@pytest.mark.filterwarnings("ignore:.*adds no gradients to its group")
@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
@pytest.mark.parametrize("without_loss", [0, 1, 2, 7])
def test_a_group_with_a_batch_without_loss_steps_as_lightnings(
    without_loss: int, tmp_path: Path
) -> None:
    class Skips(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == without_loss else self.loss(batch)

    def train(*callbacks: Any, **options: Any) -> tuple[list[torch.Tensor], Any, int]:
        gradients, module = Gradients(), Skips(momentum=0)
        trainer = make_trainer(tmp_path, gradients, *callbacks, **options)
        trainer.fit(module, make_loader(8))
        return gradients.found, module, trainer.global_step

    theirs, their_module, their_steps = train(accumulate_grad_batches=2)
    ours, module, steps = train(GradientCumulativeOptimizerHook(cumulative_iters=2))
    assert (len(ours), steps) == (len(theirs), their_steps) == (4, 4)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(module.net.weight, their_module.net.weight)


def test_a_batch_without_loss_is_named_once(tmp_path: Path) -> None:
    class Skips(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx % 2 else self.loss(batch)

    hook = GradientCumulativeOptimizerHook(cumulative_iters=4)
    trainer = make_trainer(tmp_path, hook)
    with pytest.warns(UserWarning, match="adds no gradients to its group") as noted:
        trainer.fit(Skips(), make_loader(8))
    assert sum("adds no gradients" in str(one.message) for one in noted) == 1
