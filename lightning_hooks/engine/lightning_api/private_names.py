"""The private names of Lightning in use, and the features that need the names."""

from __future__ import annotations

from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

__all__ = ["PRIVATE_NAMES", "check_private_names"]

_VAL_LOOP = "fit_loop.epoch_loop.val_loop"

PRIVATE_NAMES: tuple[tuple[str, str, str], ...] = (
    ("fit_loop", "_combined_loader _data_fetcher _data_source", "training loaders set by hooks"),
    ("fit_loop", "_can_stop_early", "after_train_epoch of a stopped run"),
    ("fit_loop.epoch_loop", "_batches_that_stepped", "Lightning's step in LightningLoggerHook"),
    ("fit_loop.epoch_loop", "_is_training_done", "after_train_epoch before the last validation"),
    ("fit_loop.epoch_loop", "_results", "the module's logged values in loggers"),
    ("fit_loop.epoch_loop", "_should_check_val_fx", "checkpoints written after the validation"),
    (_VAL_LOOP, "_combined_loader _data_source _max_batches", "validation loaders set by hooks"),
    (_VAL_LOOP, "_is_sequential", "evaluation of several loaders by hooks"),
    (_VAL_LOOP, "_module_mode", "after_train_epoch in train mode"),
    (_VAL_LOOP, "_results", "the module's validation values in loggers"),
    ("_checkpoint_connector", "resume_start", 'ckpt_path="last" for hooks in a HookAdapter'),
    ("_logger_connector", "_callback_metrics _progress_bar_metrics", "values in callback_metrics"),
    ("_logger_connector", "_first_loop_iter", "validations run by hooks"),
    ("lightning_module", "_compiler_ctx", "a compiled module's loss in loggers"),
    ("lightning_module", "_current_fx_name _on_before_batch_transfer", "hooks' calls of the model"),
)
"""An attribute path from the Trainer, names of the object there, and a feature."""


def check_private_names(trainer: L.Trainer) -> None:
    """Warn of each private name that this version of Lightning lacks, with the feature.

    Args:
        trainer: A Trainer with a module, in ``setup``.
    """
    for path, names, feature in PRIVATE_NAMES:
        owner: Any = trainer
        for part in path.split("."):
            owner = getattr(owner, part, None)
        known = {*dir(type(owner)), *getattr(owner, "__dict__", ())}
        for name in set(names.split()) - known:
            rank_zero_warn(
                f"Lightning {L.__version__} has no {path}.{name}: {feature} will not work; other "
                "features will"
            )
