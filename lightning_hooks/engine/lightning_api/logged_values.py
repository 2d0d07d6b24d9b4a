"""Read what a module has logged with ``self.log``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from torchmetrics import Metric

__all__ = [
    "hyper_parameters",
    "in_training_step",
    "isolated_logging",
    "step_metrics",
    "step_results",
]


def step_results(trainer: L.Trainer) -> Any:
    """Return Lightning's collection of the values that the module logs in training.

    The object stays the same for the life of the Trainer's loop.
    """
    return trainer.fit_loop.epoch_loop._results


def step_metrics(
    trainer: L.Trainer, seen: dict[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Return the values that the module logged with ``self.log(on_step=True)`` in this step.

    Args:
        trainer: The Trainer.
        seen: The values of the steps before, which Lightning keeps until the next and which are
            left out; updated.
    """
    found: dict[str, torch.Tensor] = {}
    seen = {} if seen is None else seen
    for _, item in step_results(trainer).valid_items():
        value, name = item._forward_cache if item.meta.on_step else None, item.meta.name
        if isinstance(value, torch.Tensor) and value.numel() == 1 and seen.get(name) is not value:
            seen[name] = value
            found[name] = value.detach()
    return found


def hyper_parameters(module: L.LightningModule) -> dict[str, Any]:
    """Return the module's hyper-parameters; empty if they are not to be logged."""
    hparams = module.hparams if getattr(module, "_log_hyperparams", True) else {}
    return dict(hparams) if isinstance(hparams, dict) else dict(vars(hparams))


def _ignore(*args: Any, **kwargs: Any) -> None:
    """Replace ``log`` and ``log_dict`` while a hook runs the model."""


@contextlib.contextmanager
def isolated_logging(module: L.LightningModule) -> Iterator[None]:
    """Ignore the module's ``self.log`` in the block, and restore torchmetrics' states after it."""
    metrics = [m for m in module.modules() if isinstance(m, Metric)]
    states = [
        (m._copy_state_dict(), m._update_count, m._computed, m._forward_cache) for m in metrics
    ]
    names = ("log", "log_dict")
    own: dict[str, Any] = {name: module.__dict__[name] for name in names if name in module.__dict__}
    module.__dict__.update(log=_ignore, log_dict=_ignore)
    try:
        yield
    finally:
        for name in names:
            del module.__dict__[name]
        module.__dict__.update(own)
        for metric, (state, count, computed, cache) in zip(metrics, states, strict=True):
            for name, value in state.items():
                setattr(metric, name, value)
            metric._update_count, metric._computed, metric._forward_cache = count, computed, cache


def in_training_step(module: L.LightningModule) -> bool:
    """Whether Lightning is calling the module's ``training_step``, not a hook."""
    return bool(module._current_fx_name == "training_step")
