"""mmcv's helpers for distributed training, on ``torch.distributed``."""

from __future__ import annotations

import functools
import os
import subprocess
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from lightning_hooks.utils import foreach
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.ranks import is_distributed

__all__ = ["allreduce_grads", "allreduce_params", "get_dist_info", "init_dist", "master_only"]

F = TypeVar("F", bound=Callable[..., Any])


def get_dist_info() -> tuple[int, int]:
    """Return the rank and the number of processes; (0, 1) without a process group."""
    if is_distributed():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def master_only(func: F) -> F:
    """Decorate a function to run on rank 0 only and return None on other ranks."""

    @functools.wraps(func)
    def on_rank_0(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs) if get_dist_info()[0] == 0 else None

    return on_rank_0  # type: ignore[return-value]


def init_dist(launcher: str, backend: str = "nccl", **kwargs: Any) -> None:
    """Initialize the process group of a job started by a launcher.

    Args:
        launcher: ``"pytorch"`` (torchrun), ``"slurm"`` or ``"mpi"``.
        backend: ``"nccl"`` or ``"gloo"``.
        **kwargs: Arguments of :func:`torch.distributed.init_process_group`; ``port`` for Slurm.

    Note:
        Departure from mmcv: the start method of worker processes is not changed. Spawned workers
        (mmcv's choice) would import the script again, without the stand-in.
    """
    variables = {
        "pytorch": {},
        "mpi": {"RANK": "OMPI_COMM_WORLD_RANK", "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE"},
        "slurm": {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS"},
    }
    if launcher not in variables:
        raise ValueError(f"launcher must be one of {', '.join(variables)}, got {shown(launcher)}")
    for ours, theirs in variables[launcher].items():
        os.environ[ours] = os.environ[theirs]
    if launcher != "pytorch":
        os.environ.setdefault("MASTER_PORT", str(kwargs.pop("port", None) or 29500))
    kwargs.pop("port", None)
    if launcher == "slurm":
        if "MASTER_ADDR" not in os.environ:
            nodes = os.environ["SLURM_NODELIST"]
            command = ["scontrol", "show", "hostname", nodes]
            os.environ["MASTER_ADDR"] = subprocess.check_output(command, text=True).split()[0]
        os.environ.setdefault("LOCAL_RANK", os.environ.get("SLURM_LOCALID", "0"))
    if torch.cuda.is_available():
        local = os.environ.get("LOCAL_RANK", os.environ["RANK"])
        torch.cuda.set_device(int(local) % torch.cuda.device_count())
    dist.init_process_group(backend=backend, **kwargs)


def allreduce_params(
    params: Iterable[torch.Tensor], coalesce: bool = True, bucket_size_mb: int = -1
) -> None:
    """Average parameters or buffers over the ranks, in place.

    Args:
        params: Tensors; only floating-point tensors are averaged.
        coalesce: Whether tensors of the same type are sent together.
        bucket_size_mb: Maximum size of a message in MB; -1 for no limit.
    """
    _average([p.data for p in params if p.is_floating_point()], coalesce, bucket_size_mb)


def allreduce_grads(
    params: Iterable[torch.nn.Parameter], coalesce: bool = True, bucket_size_mb: int = -1
) -> None:
    """Average the gradients of parameters over the ranks, in place."""
    grads = [p.grad.data for p in params if p.requires_grad and p.grad is not None]
    _average(grads, coalesce, bucket_size_mb)


def _average(tensors: list[torch.Tensor], coalesce: bool, bucket_size_mb: int) -> None:
    _, world_size = get_dist_info()
    if world_size == 1:
        return
    for group in foreach.by_type(tensors) if coalesce else [[tensor] for tensor in tensors]:
        flat = foreach.flat(group)
        bucket = bucket_size_mb * 2**20 // flat.itemsize if bucket_size_mb > 0 else flat.numel()
        for part in torch.split(flat, bucket):
            dist.all_reduce(part)
        foreach.copy_flat_(group, flat / world_size)
