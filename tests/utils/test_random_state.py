"""The random states of a loader's persistent workers, read while the workers go on."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from lightning_hooks.utils.random_state import NUMBERS, WorkerStates


def seeded(samples: list[int]) -> list[int]:
    """Seed all generators of the worker by the batch."""
    random.seed(samples[0])
    np.random.seed(samples[0])
    torch.manual_seed(samples[0])
    return samples


def test_a_state_is_whole_while_the_worker_writes_the_next() -> None:
    states = WorkerStates(seeded, 1)
    batches: Any = range(400)
    loader = DataLoader(batches, 1, num_workers=1, prefetch_factor=8, collate_fn=states)
    for _ in loader:
        (state,) = states.read()
        seed = torch.Generator().set_state(state["torch"]).initial_seed()
        python, numpy = (
            random.Random(seed).getstate()[1],
            np.random.RandomState(seed).get_state()[1],
        )
        assert np.frombuffer(state["python"][1], NUMBERS).tolist() == list(python)
        assert np.frombuffer(state["numpy"][1], NUMBERS).tolist() == list(numpy)
