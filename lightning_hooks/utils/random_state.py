"""Read and restore the random state of this process, as plain Python types and tensors."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

__all__ = ["get_rng_state", "isolated", "set_rng_state"]


def get_rng_state() -> dict[str, Any]:
    """Return the states of Python's, numpy's, torch's and CUDA's generators.

    ``torch.load(weights_only=True)`` reads the result: numpy's array is a list of ints in it.
    """
    kind, keys, *rest = np.random.get_state()
    state: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, np.asarray(keys).tolist(), *rest),
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore a state that :func:`get_rng_state` returned."""
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        # there may be fewer or more devices than at the save
        for device, cuda in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(cuda.cpu(), device)


@contextlib.contextmanager
def isolated() -> Iterator[None]:
    """Restore the random state after the block."""
    state = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(state)
