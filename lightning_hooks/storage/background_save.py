"""Copy a checkpoint in memory, and write the copy in a thread beside the training."""

from __future__ import annotations

import contextlib
import io
import pickle
import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["BackgroundSaver", "Snapshot"]


class BackgroundSaver:
    """Copy objects and write the copies in a thread, one at a time.

    There is one buffer: a save waits for the one before, and raises its error if that was not
    raised before. The thread is no daemon: a program that ends waits for the file.
    """

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._name = ""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # a copy or a pickle has its own thread and buffer

    def save(self, obj: Any, write: Callable[[Any], None], name: str) -> None:
        """Copy an object, and call ``write`` with the copy in the thread.

        Args:
            obj: The object, which may change afterwards.
            write: Writes the copy.
            name: A name for it, in the note on an error and of the thread.
        """
        self.wait()
        get_copy = self._snapshot.take(obj)
        self._name = name
        # a profiler or a stack dump shows the name of the thread
        self._thread = threading.Thread(
            target=self._run, args=(get_copy, write), name="save " + name
        )
        self._thread.start()

    def _run(self, get_copy: Callable[[], Any], write: Callable[[Any], None]) -> None:
        try:
            write(get_copy())
        except BaseException as error:  # the next save or the end of the fit raises it
            self._error = error

    def raise_error(self) -> None:
        """Raise the error of the thread since the last call, if any, without waiting."""
        if self._error is not None:
            self.wait()

    def is_writing(self, name: str) -> bool:
        """Return whether this is still to be written, or could not be."""
        is_alive = self._thread is not None and self._thread.is_alive()  # first: it may end now
        return (is_alive or self._error is not None) and self._name == name

    def wait(self) -> None:
        """Wait until everything is written.

        Raises:
            BaseException: the error of the thread since the last call, with a note.
        """
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()
        error, self._error = self._error, None
        if error is not None:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(f"while {self._name} was written in the background")
            raise error


_ALIGNMENT = 64
_cuda: Any = torch.cuda  # parts of it have no types


class Snapshot:
    """Copy the tensors of an object into one buffer, and pickle the rest.

    Each storage is copied once; the buffer is as large as the object's tensors and is reused by
    the next copy. For tensors on a GPU it is page-locked: the copy is then queued behind the work
    on the stream, and the program goes on at once.
    """

    def __init__(self) -> None:
        self._buffer: torch.Tensor | None = None
        self._unpin: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()  # a copy or a pickle has its own buffer

    @property
    def nbytes(self) -> int:
        """The size of the buffer."""
        return 0 if self._buffer is None else self._buffer.nbytes

    def take(self, obj: Any) -> Callable[[], Any]:
        """Copy an object; return a function that returns the copy, valid until the next call."""
        file = io.BytesIO()  # of everything but the tensors
        pickler = _Pickler(file)
        pickler.dump(obj)
        sources = pickler.storages
        places, total = [], 0
        for source in sources:
            places.append((total, source.nbytes))
            total += -(-source.nbytes // _ALIGNMENT) * _ALIGNMENT
        on_gpu = {source.device for source in sources if source.is_cuda}
        self._resize(total, pinned=bool(on_gpu))
        targets = [_part(self._buffer, *place) for place in places]
        pairs = [(t, s) for t, s in zip(targets, sources, strict=True) if s.nbytes]
        if pairs:
            torch._foreach_copy_([t for t, _ in pairs], [s for _, s in pairs], non_blocking=True)
        copied = []
        for device in on_gpu:
            with torch.cuda.device(device):
                copied.append(_cuda.Event())
                copied[-1].record()

        def get_copy() -> Any:
            for event in copied:
                event.synchronize()
            return _Unpickler(file.getvalue(), [t.untyped_storage() for t in targets]).load()

        return get_copy

    def _resize(self, nbytes: int, *, pinned: bool) -> None:
        if self._buffer is not None and (self.nbytes, self._unpin is not None) == (nbytes, pinned):
            return
        if self._unpin is not None:
            self._unpin()
        self._buffer = self._unpin = None  # freed before the next is allocated
        self._buffer = torch.empty(nbytes, dtype=torch.uint8)
        if pinned:  # not torch's pinned memory: its sizes are rounded up to powers of two
            runtime = _cuda.cudart()
            address = self._buffer.data_ptr()
            if nbytes and int(runtime.cudaHostRegister(address, nbytes, 0)) == 0:
                self._unpin = weakref.finalize(self._buffer, _unpin, runtime, address)


def _unpin(runtime: Any, address: int) -> None:
    with contextlib.suppress(RuntimeError):  # the driver may be unloaded at the end of the process
        runtime.cudaHostUnregister(address)


def _part(buffer: torch.Tensor | None, start: int, nbytes: int) -> torch.Tensor:
    """Return bytes of the buffer as a tensor with a storage of its own, for ``torch.save``."""
    if not nbytes:
        return torch.empty(0, dtype=torch.uint8)
    assert buffer is not None
    return torch.frombuffer(buffer.numpy(), dtype=torch.uint8, offset=start, count=nbytes)


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole storage of a tensor."""
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage())


class _Pickler(pickle.Pickler):
    """Pickle an object without its tensors; tensors that share a storage still do."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self.storages: list[torch.Tensor] = []
        self._numbers: dict[Any, int] = {}

    def persistent_id(self, obj: Any) -> Any:
        if type(obj) not in (torch.Tensor, torch.nn.Parameter) or not _is_plain(obj):
            return None
        storage = obj.untyped_storage()
        key = (obj.device, storage.data_ptr(), storage.nbytes())
        number = self._numbers.setdefault(key, len(self.storages))
        if number == len(self.storages):
            self.storages.append(_bytes_of(obj))
        view = (obj.dtype, obj.storage_offset(), tuple(obj.shape), obj.stride())
        return number, view, obj.requires_grad, type(obj) is torch.nn.Parameter


def _is_plain(tensor: torch.Tensor) -> bool:
    strided = tensor.layout == torch.strided and not tensor.is_quantized
    as_stored = not (tensor.is_conj() or tensor.is_neg())
    return tensor.device.type in ("cpu", "cuda") and strided and as_stored


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, storages: list[torch.UntypedStorage]) -> None:
        super().__init__(io.BytesIO(data))
        self._storages = storages

    def persistent_load(self, pid: Any) -> Any:
        number, (dtype, offset, shape, stride), requires_grad, is_parameter = pid
        tensor = torch.empty(0, dtype=dtype).set_(self._storages[number], offset, shape, stride)
        if is_parameter:
            return torch.nn.Parameter(tensor, requires_grad=requires_grad)
        return tensor.requires_grad_(requires_grad)
