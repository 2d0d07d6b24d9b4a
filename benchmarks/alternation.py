"""Run jobs in turns, each up to its next mark: a slow moment of the machine slows all jobs."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

__all__ = ["alternately"]

T = TypeVar("T")


def alternately(jobs: Mapping[str, Callable[[Callable[[], None]], T]]) -> dict[str, T]:
    """Run jobs in threads, one thread at a time; return the results of the jobs.

    Args:
        jobs: Functions by name. A job gets a function ``pass_on``; a call of ``pass_on`` runs the
            other jobs and returns when the calling job's turn comes.
    """
    turns = {name: threading.Semaphore(0) for name in jobs}
    ring = list(jobs)

    def pass_on(name: str) -> None:
        turns[ring[(ring.index(name) + 1) % len(ring)]].release()
        turns[name].acquire()

    def run(name: str) -> T:
        turns[name].acquire()
        torch.set_num_threads(1)  # each thread has a number of its own
        try:
            return jobs[name](functools.partial(pass_on, name))
        finally:
            following = ring[(ring.index(name) + 1) % len(ring)]
            ring.remove(name)
            turns[following].release()

    with ThreadPoolExecutor(len(jobs)) as pool:
        running = {name: pool.submit(run, name) for name in jobs}
        turns[ring[0]].release()
        return {name: one.result() for name, one in running.items()}
