"""Run, redirect and read Lightning's validation loops."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.lightning_api.logged_values import epoch_means, logged_by
from lightning_hooks.engine.lightning_api.private_names import (
    keep_loaders,
    needs,
    set_loader,
)

__all__ = [
    "batches_begun",
    "evaluate_as_before",
    "evaluation_loop",
    "keep_train_flags",
    "replace_val_loader",
    "train_as_before_validation",
    "train_flags",
    "val_metrics",
    "validates_within_epochs",
]

evaluates = needs("validations and tests run by hooks")
switches_mode = needs("after_train_epoch in train mode")


def batches_begun(trainer: L.Trainer) -> int:
    """Return the number of batches begun in the running validation, over all loaders."""
    return int(trainer.fit_loop.epoch_loop.val_loop.batch_progress.current.ready)


@evaluates
def replace_val_loader(trainer: L.Trainer, loader: Any, until: contextlib.ExitStack) -> None:
    """Validate on ``loader`` in the starting pass, and on the Trainer's loaders after ``until``."""
    loop: Any = trainer.fit_loop.epoch_loop.val_loop
    batches = loop._max_batches

    def restore() -> None:
        loop._max_batches = batches

    until.callback(restore)
    until.enter_context(keep_loaders(loop))
    set_loader(loop, loader)
    loop.setup_data()
    loop.reset()


def evaluation_loop(trainer: L.Trainer) -> Any:
    """Return Lightning's loop of the validation, or test, of the Trainer's present work."""
    if trainer.state.fn == TrainerFn.VALIDATING:
        return trainer.validate_loop
    if trainer.state.fn == TrainerFn.TESTING:
        return trainer.test_loop
    return trainer.fit_loop.epoch_loop.val_loop


def _flags_before(trainer: L.Trainer) -> Any:
    """Return Lightning's note of the train flags from before the running validation."""
    return trainer.fit_loop.epoch_loop.val_loop._module_mode


@switches_mode
def train_as_before_validation(trainer: L.Trainer) -> None:
    """Give the module the train flags from before the running validation."""
    _flags_before(trainer).restore(trainer.lightning_module)


@contextlib.contextmanager
def keep_train_flags(*modules: torch.nn.Module) -> Iterator[None]:
    """Restore the train flags of modules and all their parts after the block."""
    flags = [(part, part.training) for module in modules for part in module.modules()]
    try:
        yield
    finally:
        for part, flag in flags:
            part.training = flag


@contextlib.contextmanager
def train_flags(trainer: L.Trainer) -> Iterator[None]:
    """Give the module the train flags of the training in the block, also inside a validation."""
    with keep_train_flags(trainer.lightning_module):
        if trainer.validating:
            train_as_before_validation(trainer)
        yield


@switches_mode
def evaluate_as_before(trainer: L.Trainer) -> None:
    """Keep the current flags for the training after the validation, and switch to evaluation."""
    module = trainer.lightning_module
    _flags_before(trainer).capture(module)
    module.on_validation_model_eval()


def val_metrics(trainer: L.Trainer) -> dict[str, torch.Tensor]:
    """Return the module's logged values of the ending validation or test."""
    return epoch_means(logged_by(evaluation_loop(trainer)))


def why_none(trainer: L.Trainer) -> str:
    """Return why the Trainer does not validate in a fit, with a remedy; empty if it does."""
    if not trainer.enable_validation:
        return "does not validate in this fit; give it a validation loader"
    batches = trainer.num_val_batches
    if batches and not any(batches):
        return "has a validation loader without a batch; give it data"
    every, epochs = trainer.check_val_every_n_epoch, trainer.max_epochs
    if every is not None and epochs is not None and 0 < epochs < every:
        return (
            f"validates every {every} epochs, and the run has {epochs}; give it "
            f"check_val_every_n_epoch={epochs} at most"
        )
    return ""


def validates_within_epochs(trainer: L.Trainer) -> bool:
    """Whether the Trainer validates at other places than the ends of epochs."""
    every = trainer.val_check_batch
    return bool(
        trainer.check_val_every_n_epoch is None
        or every is None  # by time
        or every < trainer.num_training_batches
    )
