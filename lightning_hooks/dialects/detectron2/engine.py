"""``run_steps``: a ``lightning.Trainer`` that runs the iterations of detectron2's trainer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api import progress

__all__ = ["run_steps"]


class _StepModule(L.LightningModule):
    """The LightningModule whose training step is an iteration of detectron2's trainer."""

    def __init__(self, owner: Any, iteration: Callable[[int], None]) -> None:
        super().__init__()
        self.automatic_optimization = False  # run_step() does backward and step
        model = getattr(owner, "model", None)
        self.model = model if isinstance(model, torch.nn.Module) else None
        optimizer = getattr(owner, "optimizer", None)
        self._optimizers = [optimizer] if isinstance(optimizer, torch.optim.Optimizer) else []
        self._iteration = iteration

    def configure_optimizers(self) -> Any:
        """Return the trainer's optimizer."""
        return list(self._optimizers)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Run the iteration of this number."""
        self._iteration(int(batch))


def run_steps(
    owner: Any, iterations: Iterable[int], iteration: Callable[[int], None], **options: Any
) -> L.Trainer:
    """Run iterations in Lightning's loop; return its Trainer.

    Args:
        owner: detectron2's trainer: its ``model`` and ``optimizer`` are shown to Lightning.
        iterations: The numbers of the iterations.
        iteration: Function that runs the iteration of a number.
        options: Arguments of the ``lightning.Trainer``.

    Raises:
        ValueError: for ``precision="16-mixed"``, whose gradients must be scaled.
    """
    if options.get("precision") in ("16-mixed", 16, "16"):
        raise ValueError(
            "lightning_options must not have precision='16-mixed': the steps are the trainer's, "
            "and AMPTrainer, or SOLVER.AMP.ENABLED=True, scales the gradients"
        )
    module = _StepModule(owner, iteration)
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    arguments: dict[str, Any] = {
        "accelerator": "gpu" if device.type == "cuda" else device.type,
        "devices": 1 if device.type == "cpu" else [device.index or 0],
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*available but not used")  # the model's device
        warnings.filterwarnings("ignore", ".*does not have many workers")
        warnings.filterwarnings("ignore", ".*have no `val_dataloader`")
        warnings.filterwarnings("ignore", ".*returned `None`")
        trainer = L.Trainer(**{**arguments, **options})
        counts = [
            one.register_step_post_hook(lambda *_: progress.count_step(trainer))
            for one in module.configure_optimizers()
        ]
        try:
            trainer.fit(module, list(iterations))
        finally:
            for count in counts:
                count.remove()
            module.to(device)
    return trainer
