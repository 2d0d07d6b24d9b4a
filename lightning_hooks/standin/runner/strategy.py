"""Run Lightning in a process group, on a model in mmcv's DistributedDataParallel, that exist."""

from __future__ import annotations

import os
import time
from typing import Any

import torch
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import distributed as dist

__all__ = ["ProcessGroup", "WrappedStrategy", "distributed_arguments", "wait_for_threads"]

PAUSE = 0.05
"""Seconds; the threads need a moment of Python's lock."""


class ProcessGroup(ClusterEnvironment):
    """The ranks of a process group that is there already."""

    @property
    def creates_processes_externally(self) -> bool:
        """Return True: the processes exist."""
        return True

    @property
    def main_address(self) -> str:
        """The address of rank 0."""
        return os.environ.get("MASTER_ADDR", "127.0.0.1")

    @property
    def main_port(self) -> int:
        """Its port."""
        return int(os.environ.get("MASTER_PORT", "29500"))

    @staticmethod
    def detect() -> bool:
        """Whether there is a process group."""
        return dist.is_available() and dist.is_initialized()

    def world_size(self) -> int:
        """The number of ranks."""
        return dist.get_world_size()

    def set_world_size(self, size: int) -> None:
        """Nothing to set."""

    def global_rank(self) -> int:
        """This rank."""
        return dist.get_rank()

    def set_global_rank(self, rank: int) -> None:
        """Nothing to set."""

    def local_rank(self) -> int:
        """This rank on its machine."""
        return int(os.environ.get("LOCAL_RANK", self.global_rank() % _ranks_here()))

    def node_rank(self) -> int:
        """The machine's number."""
        return self.global_rank() // _ranks_here()


class WrappedStrategy(DDPStrategy):
    """Lightning's collectives, without its DistributedDataParallel: the model has its own."""

    def configure_ddp(self) -> None:
        """Leave the model as it is."""


def wait_for_threads() -> None:
    """Let the threads of the process group be done, if there is one, before the program may end.

    gloo's give the tensors of a collective back to Python after it, and a process that ends just
    then is aborted. In mmcv every run waits a second at its end.
    """
    if ProcessGroup.detect():
        time.sleep(PAUSE)


def _ranks_here() -> int:
    world = dist.get_world_size()
    default = min(world, torch.cuda.device_count()) or world
    return int(os.environ.get("LOCAL_WORLD_SIZE", default))


def distributed_arguments(device: torch.device) -> dict[str, Any]:
    """Return the Trainer's arguments for the process group that is there; empty without one."""
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
