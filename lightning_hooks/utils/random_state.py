"""Read and restore the random state of the process and of a loader's persistent workers.

Persistent workers live as long as the loader and continue their random sequence from epoch to
epoch; in a new process the sequence would start again from the seed.
"""

from __future__ import annotations

import contextlib
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import get_worker_info

__all__ = [
    "GENERATORS",
    "Generators",
    "WorkerStates",
    "are_equal",
    "get_rng_state",
    "isolated",
    "noted",
    "random_state",
    "restore_worker",
    "set_rng_state",
]

GENERATORS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (random.getstate, random.setstate),
    (np.random.get_state, np.random.set_state),
    (torch.get_rng_state, torch.set_rng_state),
)
"""How to read and restore the generators of Python, numpy and torch, one by one."""

NUMBERS = np.dtype("<u4")
"""The numbers of a state of Python or numpy, as bytes in a file."""

WORKER_STATE_SIZE = 16384
"""Bytes reserved for a state; a state takes less than 12,000."""


def get_rng_state() -> dict[str, Any]:
    """Return the states of Python's, numpy's, torch's and CUDA's generators.

    ``torch.load(weights_only=True)`` reads the result: the numbers of Python and numpy are bytes,
    which a file takes in a fourth of the time.
    """
    state = _plain(*(get() for get, _ in GENERATORS))
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def _plain(of_python: Any, of_numpy: Any, of_torch: torch.Tensor) -> dict[str, Any]:
    version, internal, gauss = of_python
    kind, keys, *rest = of_numpy
    internal, keys = (np.array(numbers, NUMBERS).tobytes() for numbers in (internal, keys))
    return {"python": (version, internal, gauss), "numpy": (kind, keys, *rest), "torch": of_torch}


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
    if not isinstance(state[1], np.ndarray):  # Python's: arrays of its numbers would be made first
        return bool(state == other)
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
    of_python.setstate((version, tuple(np.frombuffer(internal, NUMBERS).tolist()), gauss))
    kind, keys, *rest = state["numpy"]
    of_numpy.set_state((kind, np.frombuffer(keys, NUMBERS), *rest))


def noted(*generators: torch.Generator) -> Callable[[], None]:
    """Return a function that restores the present random state, and that of further generators."""
    state, own = get_rng_state(), [(generator, generator.get_state()) for generator in generators]

    def restore() -> None:
        set_rng_state(state)
        for generator, before in own:
            generator.set_state(before)

    return restore


@contextlib.contextmanager
def isolated(*generators: torch.Generator) -> Iterator[None]:
    """Restore the random state, and the states of further generators, after the block."""
    restore = noted(*generators)
    try:
        yield
    finally:
        restore()


class Generators:
    """Python's, numpy's and torch's generators, and further ones of torch's.

    Args:
        *own: The further generators.
    """

    def __init__(self, *own: torch.Generator) -> None:
        self._all: list[tuple[Callable[[], Any], Callable[[Any], Any]]]
        self._all = [
            *GENERATORS,
            *((generator.get_state, generator.set_state) for generator in own),
        ]

    def states(self) -> list[Any]:
        """Return the states, in the order of the generators."""
        return [get() for get, _ in self._all]

    def set(self, states: list[Any]) -> None:
        """Restore states of :meth:`states`."""
        for (_, restore), state in zip(self._all, states, strict=True):
            restore(state)

    @contextlib.contextmanager
    def kept(self) -> Iterator[None]:
        """Restore the states after the block."""
        states = self.states()
        try:
            yield
        finally:
            self.set(states)

    @staticmethod
    def plain(states: list[Any]) -> dict[str, Any]:
        """Return states of :meth:`states` for a file, of plain types and tensors."""
        of_process = len(GENERATORS)
        return {"process": _plain(*states[:of_process]), "own": states[of_process:]}

    def load(self, saved: dict[str, Any]) -> None:
        """Restore states of :meth:`plain`."""
        set_rng_state(saved["process"])
        own = self._all[len(GENERATORS) :]
        for (_, restore), state in zip(own, saved["own"], strict=False):
            restore(state)


# -- workers ---------------------------------------------------------------------------------


class WorkerStates:
    """The collate function of a loader's workers that copy their random states to shared memory.

    A worker copies its state after each batch, in turn to one of a few places, and counts the copy.

    Args:
        collate: The loader's own collate function.
        workers: The number of workers.
        places: The number of a worker's last states that can be read.
    """

    def __init__(self, collate: Callable[[Any], Any], workers: int, places: int = 2) -> None:
        self._collate = collate
        self._shared = torch.zeros(workers, places, WORKER_STATE_SIZE, dtype=torch.uint8)
        self._copies = torch.zeros(workers, dtype=torch.int64)
        for shared in (self._shared, self._copies):
            shared.share_memory_()  # type: ignore[no-untyped-call]

    def __call__(self, samples: Any) -> Any:
        """Collate a batch, and record the worker's state."""
        batch = self._collate(samples)
        worker = get_worker_info()
        if worker is not None:
            self._write(worker.id, _plain(*(get() for get, _ in GENERATORS)))
            self._copies[worker.id] += 1
        return batch

    def begin_in(self, states: list[Any]) -> None:
        """Record the states in which the workers begin; None for unknown states."""
        for worker, state in enumerate(states):
            if state is not None:
                self._write(worker, state, copy=0)

    def _write(self, worker: int, state: dict[str, Any], copy: int | None = None) -> None:
        # a pickled tensor takes much longer than bytes
        data = bytearray(pickle.dumps({**state, "torch": state["torch"].numpy().tobytes()}))
        place = int(self._copies[worker]) + 1 if copy is None else copy
        of_worker = self._shared[worker]
        of_worker[place % len(of_worker), : len(data)] = torch.frombuffer(data, dtype=torch.uint8)

    @property
    def copies(self) -> int:
        """The batches of all workers so far."""
        return int(self._copies.sum())

    def read(self, batches: list[int] | None = None) -> list[Any]:
        """Return the state of each worker, None where there is none.

        Args:
            batches: After how many batches of each worker; by default after the last.
        """
        after = self._copies.tolist() if batches is None else batches
        return [self._read(worker, copy) for worker, copy in enumerate(after)]

    def _read(self, worker: int, copy: int) -> Any:
        of_worker = self._shared[worker]
        data = of_worker[copy % len(of_worker)].numpy().tobytes()
        if not any(data[:2]):
            return None  # begun in the loader's own seed
        state = pickle.loads(data)
        return {**state, "torch": torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8)}


def restore_worker(own: Callable[[int], Any] | None, states: list[Any], worker: int) -> None:
    """Call the user's own init function of workers, then restore the worker's state, if any."""
    if own is not None:
        own(worker)
    if states[worker] is not None:
        set_rng_state(states[worker])
