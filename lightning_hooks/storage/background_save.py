"""``BackgroundSaver``: write a copy of a checkpoint in a thread while training goes on."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import distributed
from torch.utils import _pytree as pytree

from lightning_hooks.utils import foreach
from lightning_hooks.utils.notes import add_note

__all__ = ["BackgroundSaver", "Snapshot"]


class BackgroundSaver:
    """Write copies of objects in a thread, one at a time.

    Training waits while an object is copied, and while the previous object is still being written.
    An error of the thread is raised by the next call. At exit, Python waits for the thread.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._job: Future[None] | None = None
        self._name = ""
        self._group: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # a copy or a pickle has its own thread and memory

    def save(self, obj: Any, write: Callable[[Any], None], name: str) -> None:
        """Copy an object, and write the copy in a thread.

        Args:
            obj: The object, which may change afterwards.
            write: A function of the copy.
            name: The path, for the thread's name and for the note on an error.
        """
        self.wait()
        get_copy = self._snapshot.take(obj)
        self.call(lambda: write(get_copy()), name)

    def call(self, function: Callable[[], None], name: str) -> None:
        """Call a function in a thread, after the last call.

        Args:
            function: The function.
            name: As in :meth:`save`.
        """
        self.wait()
        self._name = name
        # a profiler or a stack dump shows the name of the thread
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"save {name}")
        self._job = pool.submit(function)
        pool.shutdown(wait=False)

    def group(self) -> Any:
        """Return a process group of all ranks for collectives of the thread. Collective."""
        if self._group is None:
            self._group = distributed.new_group(backend="gloo")
        return self._group

    def raise_error(self) -> None:
        """Raise the thread's error if the last save has failed; do not wait."""
        if self._job is not None and self._job.done():
            self.wait()

    def is_writing(self, name: str) -> bool:
        """Return whether the save of a file goes on, or has failed."""
        job = self._job
        return job is not None and name == self._name and not (job.done() and not job.exception())

    def free(self) -> None:
        """Free the memory of the copies and the process group; later saves make new ones."""
        self._snapshot = Snapshot()
        group, self._group = self._group, None
        if group is not None and distributed.is_initialized():
            distributed.destroy_process_group(group)

    def join(self) -> None:
        """Wait for the last save, without raising an error."""
        job = self._job
        if job is not None:
            job.exception()

    def wait(self) -> None:
        """Wait for the last save, and raise an error of the thread.

        Raises:
            BaseException: the error of the save, with a note; once.
        """
        job, self._job = self._job, None
        error = None if job is None else job.exception()
        if error is not None:
            add_note(error, f"while {self._name} was written in the background")
            raise error


class Snapshot:
    """Copies of an object, one after another, in the same memory.

    Allocating memory costs more than copying, so each copy reuses the memory of the previous copy.
    Memory shared by several tensors is copied once. For a GPU's tensors the memory is page-locked:
    the GPU copies while the program goes on.
    """

    def __init__(self) -> None:
        self._kept: list[torch.Tensor] = []
        self._layout: list[tuple[int, bool]] = []  # bytes, and whether page-locked

    @property
    def nbytes(self) -> int:
        """The size of the memory in bytes."""
        return sum(kept.nbytes for kept in self._kept)

    def take(self, obj: Any) -> Callable[[], Any]:
        """Copy an object; return a function that returns the copy, valid until the next call."""
        leaves, structure = pytree.tree_flatten(obj)
        storages = {_key(x): _bytes_of(x) for x in leaves if _is_plain(x)}
        copies = dict(zip(storages, self._copied([*storages.values()]), strict=True))
        devices = {source.device for source in storages.values() if source.is_cuda}
        events = [torch.cuda.current_stream(device).record_event() for device in devices]
        memo: dict[int, Any] = {}

        def copied(leaf: Any) -> Any:
            if not isinstance(leaf, torch.Tensor):
                return copy.deepcopy(leaf, memo)
            if not _is_plain(leaf):
                return copy.deepcopy(leaf.detach(), memo)
            view = leaf.storage_offset(), leaf.shape, leaf.stride()
            return torch.empty(0, dtype=leaf.dtype).set_(copies[_key(leaf)], *view)

        copied_state = pytree.tree_unflatten([copied(leaf) for leaf in leaves], structure)

        def get_copy() -> Any:
            for event in events:
                event.synchronize()
            return copied_state

        return get_copy

    def _copied(self, sources: list[torch.Tensor]) -> list[torch.UntypedStorage]:
        """Return copies of storages; equal sizes as before reuse the memory."""
        layout = [(source.nbytes, source.is_cuda) for source in sources]
        if layout != self._layout:
            self._layout, self._kept = layout, []  # freed before the next is allocated
            self._kept = [
                torch.empty(nbytes, dtype=torch.uint8, pin_memory=is_locked)
                for nbytes, is_locked in layout
            ]
        if sources:
            foreach.copy_(self._kept, sources, non_blocking=True)
        return [kept.untyped_storage() for kept in self._kept]


def _is_plain(leaf: Any) -> bool:
    """Return whether a tensor can be copied as bytes: dense, on the CPU or a GPU."""
    if type(leaf) not in (torch.Tensor, torch.nn.Parameter):
        return False
    if leaf.layout != torch.strided or leaf.device.type not in ("cpu", "cuda"):
        return False
    is_lazy = leaf.is_conj() or leaf.is_neg()  # the bytes are not the values yet
    return not (leaf.is_quantized or is_lazy) and leaf.untyped_storage().nbytes() > 0


def _key(tensor: torch.Tensor) -> tuple[Any, ...]:
    storage = tensor.untyped_storage()
    return tensor.device, storage.data_ptr(), storage.nbytes()


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage())
