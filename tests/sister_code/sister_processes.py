"""Run a function in two processes with torch.distributed, as torchrun starts them."""

from __future__ import annotations

import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import Any

import torch


def in_two(function: Callable[[int], Any]) -> list[Any]:
    """Call a function with the rank in each of two forks; return what each has returned."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    results: Any = context.SimpleQueue()
    forks = [context.Process(target=_run, args=(function, n, port, results)) for n in (0, 1)]
    for fork in forks:
        fork.start()
    for fork in forks:
        fork.join(120)
        if fork.exitcode != 0:
            for other in forks:
                other.kill()
            raise RuntimeError(f"a rank has ended with {fork.exitcode}")
    return [result for _, result in sorted(results.get() for _ in forks)]


def _run(function: Callable[[int], Any], rank: int, port: int, results: Any) -> None:
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE="2",
        LOCAL_WORLD_SIZE="2",
        MASTER_ADDR="localhost",
        MASTER_PORT=str(port),
        TORCHELASTIC_RUN_ID="none",
    )
    torch.distributed.init_process_group("gloo")
    results.put((rank, function(rank)))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
