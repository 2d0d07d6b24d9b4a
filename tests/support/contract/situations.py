"""The situations of the contract's matrix: ways to train with any hook."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import Hook, HookAdapter
from lightning_hooks.engine.points import STAGES
from lightning_hooks.engine.priority import is_family
from support.contract import needs
from support.training import TinyNormModule, make_loader, make_trainer

__all__ = ["SITUATIONS", "Begun", "OnPurposeError", "Raises", "left_behind", "train"]


class Manual(TinyNormModule):
    """A module with manual optimization."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = super().training_step(batch, batch_idx)
        self.manual_backward(loss)
        optimizer.step()
        return loss


class Unvalidated(TinyNormModule):
    """A module without validation."""

    validation_step = None  # type: ignore[assignment]


class Twice(TinyNormModule):
    """A module with two validation loaders."""

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> Any:
        return super().validation_step(batch, batch_idx)


def one() -> Any:
    return make_loader(2)


def two() -> Any:
    return [make_loader(2), make_loader(1, seed=3)]


Situation = tuple[Callable[[], Any], Callable[[], Any] | None, dict[str, Any]]

SITUATIONS: dict[str, Situation] = {
    "plain": (TinyNormModule, one, {}),
    "accumulation": (TinyNormModule, one, {"accumulate_grad_batches": 2}),
    "manual": (Manual, one, {}),
    "limits": (TinyNormModule, one, {"limit_train_batches": 3, "limit_val_batches": 1}),
    "shares": (TinyNormModule, one, {"limit_train_batches": 0.5, "limit_val_batches": 0.5}),
    "no validation": (Unvalidated, None, {}),
    "no batches of it": (TinyNormModule, one, {"limit_val_batches": 0}),
    "two loaders": (Twice, two, {}),
    "in mid-epoch": (TinyNormModule, one, {"val_check_interval": 2}),
    "fast": (TinyNormModule, one, {"fast_dev_run": True}),
}
"""The module, the validation loaders and the Trainer's arguments."""


class OnPurposeError(Exception):
    """A deliberate error of a hook."""


class Raises(Hook):
    """A hook that raises an error at one point."""

    def __init__(self, point: str) -> None:
        setattr(self, point, self._raise)

    def _raise(self, runner: Any) -> None:
        raise OnPurposeError("on purpose")

    def get_triggered_stages(self) -> list[str]:
        return [stage for stage in STAGES if stage in vars(self)]


class Begun(Callback):
    """Counts the started training batches."""

    batches = 0

    def on_train_batch_start(self, *args: Any) -> None:
        self.batches += 1


def train(
    tmp_path: Path, module: Any, situation: str, *hooks: Any, host: bool, **more: Any
) -> tuple[Any, Begun]:
    """Train two epochs of a situation; return the Trainer and the counter of batches."""
    _, loaders, options = SITUATIONS[situation]
    begun = Begun()
    options = {"max_epochs": 2, **needs(*hooks), **options, **more}
    callbacks = [HookAdapter(list(hooks))] if host else list(hooks)
    if not host and any(is_family(hook, "CheckpointHook", "BestCheckpointHook") for hook in hooks):
        options["enable_checkpointing"] = True
    trainer = make_trainer(tmp_path, *callbacks, begun, **options)
    val = [] if loaders is None else [loaders()]
    try:
        trainer.fit(module, make_loader(4, shuffle=True), *val)
    except ValueError as error:
        assert begun.batches == 0, "what is wrong was known before"
        raise error from None
    return trainer, begun


def left_behind(module: Any, before: set[str]) -> set[str]:
    """Return the names of the package's attributes left on a module after a fit."""
    ours = {name for name in vars(module) if name not in before and not name.startswith("_")}
    return ours - {"hook_buffers"}  # the buffers registered by hooks belong to the user
