"""``SyncBuffersHook``: make buffers, such as BatchNorm's statistics, equal on all ranks."""

from __future__ import annotations

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils import foreach
from lightning_hooks.utils.arguments import check_bool
from lightning_hooks.utils.dtensors import is_sharded

__all__ = ["SyncBuffersHook", "sync_buffers"]


def sync_buffers(module: nn.Module, *, means_only: bool = False) -> None:
    """Make the buffers equal on all ranks: floats become the mean, other types rank 0's value.

    All ranks must call this function. Buffers of a type are sent together.

    Args:
        module: The module.
        means_only: Whether buffers of other types than floats stay as they are.
    """
    # a sharded buffer is a part of a value, or equal on all ranks
    whole = [buffer for buffer in module.buffers() if not is_sharded(buffer)]
    with torch.no_grad():
        for buffers in foreach.by_type(whole):
            flat = foreach.flat(buffers)
            if flat.is_floating_point() or flat.is_complex():
                torch.distributed.all_reduce(flat)
                flat /= torch.distributed.get_world_size()
            elif means_only:
                continue
            else:
                torch.distributed.broadcast(flat, 0)
            foreach.copy_flat_(buffers, flat)


@HOOKS.register_module()
class SyncBuffersHook(Hook):
    """Makes the buffers equal on all ranks after epochs, and before a validation within an epoch.

    Args:
        distributed: Whether to sync if several ranks train.

    Raises:
        TypeError: if ``distributed`` is not a bool.

    Source: mmcv's ``SyncBuffersHook``.

    Note:
        Departures from mmcv: integer buffers take rank 0's value (mmcv would average them too, and
        fails on every model with BatchNorm). A validation within an epoch, and in a run counted in
        iterations, finds equal buffers (mmcv syncs after epochs only).
    """

    _reads_step = False

    def __init__(self, distributed: bool = True) -> None:
        super().__init__()
        check_bool(distributed=distributed)
        self.distributed = distributed

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Make the buffers equal, unless the end of the epoch has made the buffers equal."""
        if trainer.state.fn != TrainerFn.FITTING:
            return
        runner = Driver.of(trainer).runner
        if runner.in_epoch:
            self.after_epoch(runner)

    def after_epoch(self, runner: Runner) -> None:
        """Make the buffers equal on all ranks."""
        if self.distributed and runner.world_size > 1:
            sync_buffers(runner.module)
