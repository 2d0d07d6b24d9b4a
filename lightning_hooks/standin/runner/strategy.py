"""Run Lightning in an existing process group, on a model in mmcv's DistributedDataParallel."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed as dist

from lightning_hooks.utils.ranks import is_distributed

__all__ = ["ProcessGroup", "WrappedStrategy", "distributed_arguments", "wait_for_threads"]

PAUSE = 0.05
"""Seconds in which the threads can take Python's lock."""


class ProcessGroup(TorchElasticEnvironment):
    """Describes the initialized process group, whichever launcher started the processes."""

    @staticmethod
    def detect() -> bool:
        """Return whether a process group is initialized."""
        return is_distributed()

    def world_size(self) -> int:
        """Return the number of ranks."""
        return dist.get_world_size()

    def global_rank(self) -> int:
        """Return the rank of this process."""
        return dist.get_rank()

    def local_rank(self) -> int:
        """Return the rank of this process on its machine."""
        return int(os.environ.get("LOCAL_RANK", self.global_rank() % _ranks_here()))

    def node_rank(self) -> int:
        """Return the index of this machine."""
        return self.global_rank() // _ranks_here()


class WrappedStrategy(DDPStrategy):
    """DDPStrategy for a model already wrapped in DistributedDataParallel."""

    def configure_ddp(self) -> None:
        """Do nothing: the model is in DistributedDataParallel already."""


def wait_for_threads() -> None:
    """Wait for the threads of a process group, with a pause of ``PAUSE`` seconds.

    After a collective, gloo's threads return tensors to Python; a process that exits meanwhile is
    aborted. mmcv sleeps for a second at the end of every run.
    """
    if ProcessGroup.detect():
        time.sleep(PAUSE)


def _ranks_here() -> int:
    world = dist.get_world_size()
    default = min(world, torch.cuda.device_count()) or world
    return int(os.environ.get("LOCAL_WORLD_SIZE", default))


def distributed_arguments(device: torch.device) -> dict[str, Any]:
    """Return the Trainer's arguments for the process group; empty without one."""
    if not ProcessGroup.detect():
        return {}
    here = dist.get_world_size() if device.type == "cpu" else _ranks_here()
    return {
        "accelerator": device.type,
        "devices": here,
        "num_nodes": dist.get_world_size() // here,
        "strategy": WrappedStrategy(process_group_backend=dist.get_backend()),
        "plugins": [ProcessGroup()],
    }
