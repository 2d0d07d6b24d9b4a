"""Hooks and writers of pointrix-style trainers, importable without pointrix.

The loop, with the points of a hook, called with the trainer alone::

    hook.before_run(trainner)
    hook.before_train(trainner)
    for global_step in 1, 2, ...:
        hook.before_train_iter(trainner)
        # forward, backward, the optimizer's step: loss_dict
        hook.after_train_iter(trainner)
        # if validation is due:
        hook.before_val(trainner)
        for _ in range(val_dataset_size):
            hook.before_val_iter(trainner)
            hook.after_val_iter(trainner)
        hook.after_val(trainner)  # metric_dict
    hook.after_train(trainner)
    hook.after_run(trainner)

``before_save_checkpoint(trainner)`` and ``after_load_checkpoint(trainner, checkpoint)`` are called
for Lightning's checkpoints, ``exception()`` when training raises, and any other point by
``trainner.call_hook(name)`` or ``HookAdapter.call_hook(name)``. Hooks without a point are skipped.
A TypeError in a hook is raised again with the hook's name.

pointrix defines ``after_run`` and the points of checkpoints, but never calls these points.
"""

from __future__ import annotations

from typing import Any

from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.pointrix.hooks import HOOK_REGISTRY as HOOK_REGISTRY
from lightning_hooks.dialects.pointrix.hooks import CheckPointHook as CheckPointHook
from lightning_hooks.dialects.pointrix.hooks import Hook as Hook
from lightning_hooks.dialects.pointrix.hooks import HookRegistry as HookRegistry
from lightning_hooks.dialects.pointrix.hooks import LogHook as LogHook
from lightning_hooks.dialects.pointrix.hooks import ProgressHook as ProgressHook
from lightning_hooks.dialects.pointrix.hooks import parse_hooks as parse_hooks
from lightning_hooks.dialects.pointrix.trainer_facade import TrainerFacade
from lightning_hooks.dialects.pointrix.writers import WRITER_REGISTRY as WRITER_REGISTRY
from lightning_hooks.dialects.pointrix.writers import BackendWriter as BackendWriter
from lightning_hooks.dialects.pointrix.writers import TensorboardWriter as TensorboardWriter
from lightning_hooks.dialects.pointrix.writers import Writer as Writer
from lightning_hooks.dialects.pointrix.writers import parse_writer as parse_writer

__all__ = [
    "DIALECT",
    "HOOK_REGISTRY",
    "WRITER_REGISTRY",
    "BackendWriter",
    "CheckPointHook",
    "Hook",
    "HookRegistry",
    "LogHook",
    "ProgressHook",
    "TensorboardWriter",
    "Writer",
    "parse_hooks",
    "parse_writer",
]


def _arguments(facade: Facade, point: str, method: Any) -> Arguments:
    return ((), {}) if point == "exception" else ((facade,), {})


DIALECT = Dialect(
    name="pointrix",
    points={
        "before_run": ("before_run", "before_train"),
        "before_train_iter": ("before_train_iter",),
        "after_train_iter": ("after_train_iter",),
        "before_val_epoch": ("before_val",),
        "before_val_iter": ("before_val_iter",),
        "after_val_iter": ("after_val_iter",),
        "after_val_epoch": ("after_val",),
        "after_run": ("after_train", "after_run"),
    },
    facade=TrainerFacade,
    arguments=_arguments,
    base="Hook",
    facade_points=("after_train_iter", "after_val_epoch"),
    on_error=("exception",),
    further=("before_save_checkpoint", "after_load_checkpoint", "exception"),
    renames_type_errors=True,
)
