"""The cost per batch of keeping an ordinary ``DataLoader``'s place for checkpoints.

A loader is iterated as in a fit with hooks, and as in a fit without hooks.

    python -m benchmarks loader
"""

from __future__ import annotations

import functools
import time
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.measure import Bench, in_turns
from lightning_hooks.engine.lightning_api.loader_place import WatchedLoader
from lightning_hooks.engine.lightning_api.method_patch import FitChanges

BATCHES = 5000
PLAIN, WATCHED = "a DataLoader", "a DataLoader that keeps its place"


def batch(loader: Any) -> float:
    """Return the microseconds of a batch, without the beginning of the pass."""
    iterator = iter(loader)
    next(iterator)
    start = time.thread_time()
    for _ in iterator:
        pass
    return (time.thread_time() - start) / (BATCHES - 1) * 1e6


def run(rounds: int = 31) -> Bench:
    """Measure in turns."""
    torch.set_num_threads(1)
    data = TensorDataset(torch.rand(2 * BATCHES, 8))
    loaders = {case: DataLoader(data, batch_size=2, shuffle=True) for case in (PLAIN, WATCHED)}
    with FitChanges() as fit:
        kept = WatchedLoader(loaders[WATCHED], fit)
        cases = {case: functools.partial(batch, loader) for case, loader in loaders.items()}
        bench = Bench("A loader's place", "us per batch", in_turns(cases, rounds))
        assert not kept.next_place
    bench.compare_cases(WATCHED, PLAIN, 1.05)
    return bench
