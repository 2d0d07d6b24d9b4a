"""Read and restore the random state of the process and of a loader's persistent workers.

Persistent workers live as long as the loader and continue their random sequence from epoch to
epoch; in a new process the sequence would start again from the seed.
"""

from __future__ import annotations

import array
import contextlib
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

__all__ = [
    "GENERATORS",
    "WorkerStates",
    "are_equal",
    "get_rng_state",
    "isolated",
    "random_state",
    "restore_worker",
    "set_rng_state",
]

GENERATORS = (
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
)
"""How to read and restore the generators of Python, numpy and torch, one by one."""


def get_rng_state() -> dict[str, Any]:
    """Return the states of Python's, numpy's, torch's and CUDA's generators.

    ``torch.load(weights_only=True)`` reads the result: numpy's array becomes a list of ints.
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
    """Restore a state of :func:`get_rng_state`."""
    _set(state, random, np.random)
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        # there may be fewer or more devices than at the save
        for device, cuda in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
            torch.cuda.set_rng_state(cuda.cpu(), device)


def are_equal(state: Any, other: Any) -> bool:
    """Whether two states of a generator are equal, of any kind in ``GENERATORS``."""
    if isinstance(state, torch.Tensor):
        return state.equal(other)
    return all(np.array_equal(a, b) for a, b in zip(state, other, strict=True))


def random_state(value: Any) -> bool:
    """Return whether a value is a state of :func:`get_rng_state`, read on any device."""
    try:
        _set(value, random.Random(), np.random.RandomState())
        states = [value["torch"], *value.get("cuda", ())]
        return all(state.dtype is torch.uint8 and state.ndim == 1 for state in states)
    except Exception:  # each library has errors of its own
        return False


def _set(state: dict[str, Any], of_python: Any, of_numpy: Any) -> None:
    """Restore the states of two generators, or of the modules' own."""
    version, internal, gauss = state["python"]
    of_python.setstate((version, tuple(internal), gauss))
    kind, keys, *rest = state["numpy"]
    of_numpy.set_state((kind, np.array(keys, dtype=np.uint32), *rest))


@contextlib.contextmanager
def isolated(*generators: torch.Generator) -> Iterator[None]:
    """Restore the random state, and the states of further generators, after the block."""
    state, own = get_rng_state(), [(generator, generator.get_state()) for generator in generators]
    try:
        yield
    finally:
        set_rng_state(state)
        for generator, before in own:
            generator.set_state(before)


# -- persistent workers ----------------------------------------------------------------------


_WORKER = np.dtype(
    [
        ("torch", np.uint8, torch.get_rng_state().numel()),
        ("numpy", np.uint32, 624),
        ("numpy_place", np.int64, 2),  # the position; whether the next normal number is known
        ("numpy_gauss", np.float64),
        ("python", np.uint32, 625),
        ("python_gauss", np.float64),  # NaN for none
    ]
)
"""The random state of a worker as bytes: a pickle takes several times as long."""


class WorkerStates:
    """The collate function of persistent workers that copy their random states to shared memory.

    A worker copies its state after each batch, in turn to one of two places, and counts the copy.

    Args:
        collate: The loader's own collate function.
        workers: The number of workers.
    """

    def __init__(self, collate: Callable[[Any], Any], workers: int) -> None:
        self._collate = collate
        self._shared = torch.zeros(workers, 2, _WORKER.itemsize, dtype=torch.uint8)
        self._copies = torch.zeros(workers, dtype=torch.int64)
        for shared in (self._shared, self._copies):
            shared.share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, samples: Any) -> Any:
        """Collate a batch, and record the worker's state."""
        batch = self._collate(samples)
        worker = get_worker_info()
        if worker is not None:
            copies = self._copies.numpy()
            place = (copies[worker.id] + 1) % 2
            _write_state(self._shared.numpy()[worker.id].view(_WORKER)[place])
            copies[worker.id] += 1
        return batch

    def read(self) -> list[Any]:
        """Return the state of each worker; None for a worker without a batch."""
        return [self._read(worker) for worker in range(len(self._copies))]

    def _read(self, worker: int) -> Any:
        while copies := int(self._copies[worker]):
            state = self._shared.numpy()[worker].copy().view(_WORKER)[copies % 2]
            if copies == int(self._copies[worker]):  # else the worker may have written here
                return _state_in(state[0])
        return None


def _write_state(row: Any) -> None:
    """Write the process's random state as bytes."""
    place = row[0]
    place["torch"] = torch.get_rng_state().numpy()
    _, place["numpy"], *place["numpy_place"], place["numpy_gauss"] = np.random.get_state()
    _, internal, gauss = random.getstate()
    place["python"] = array.array("I", internal)
    place["python_gauss"] = math.nan if gauss is None else gauss


def _state_in(place: Any) -> dict[str, Any]:
    """Return the written state in the form of :func:`get_rng_state`."""
    gauss = float(place["python_gauss"])
    version, *_ = random.getstate()
    numpy = [place[name].tolist() for name in ("numpy", "numpy_place", "numpy_gauss")]
    return {
        "python": (version, tuple(place["python"].tolist()), None if math.isnan(gauss) else gauss),
        "numpy": ("MT19937", numpy[0], *numpy[1], numpy[2]),
        "torch": torch.from_numpy(place["torch"].copy()),
    }


def restore_worker(own: Callable[[int], Any] | None, states: list[Any], worker: int) -> None:
    """Call the user's own init function of workers, then restore the worker's state, if any."""
    if own is not None:
        own(worker)
    if states[worker] is not None:
        set_rng_state(states[worker])
