"""Record or refuse waits of the host: reads of tensor values, and collectives."""

from __future__ import annotations

import functools
import os
import sys
import threading
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import torch
from lightning.pytorch.callbacks import Callback
from torch.utils._python_dispatch import TorchDispatchMode

import lightning_hooks

__all__ = ["NoReads", "Read", "Reads", "Waits"]

PACKAGE = os.path.dirname(lightning_hooks.__file__)
METHODS = ("__bool__", "__float__", "__format__", "__int__", "cpu", "item", "tolist")
COLLECTIVES = ("all_gather", "all_gather_object", "all_reduce", "barrier", "broadcast")


class Read(NamedTuple):
    """A read of a tensor's value."""

    method: str
    """The called method of the tensor."""

    numbers: int
    """How many the tensor has."""

    are_floats: bool
    is_ours: bool
    """Whether this package called the method."""

    waits: bool
    """Whether the call was in the training thread."""


class Reads(ExitStack):
    """Records every read of a tensor value, in all threads, in ``found``.

    Reads on the CPU count too, so the tests can count device reads without a device.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Read] = []
        self._inside = threading.local()

    def __enter__(self) -> Reads:
        for method in METHODS:
            self.enter_context(mock.patch.object(torch.Tensor, method, self._noting(method)))
        return self

    def _noting(self, method: str) -> Any:
        own = getattr(torch.Tensor, method)

        @functools.wraps(own)
        def note(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "a_read", False):  # a nested call of torch's methods
                return own(tensor, *args, **kwargs)
            ours = sys._getframe(1).f_code.co_filename.startswith(PACKAGE)
            waits = threading.current_thread() is threading.main_thread()
            floats = tensor.is_floating_point()
            self.found.append(Read(method, tensor.numel(), floats, ours, waits))
            self._inside.a_read = True
            try:
                return own(tensor, *args, **kwargs)
            finally:
                self._inside.a_read = False

        return note


class NoReads(TorchDispatchMode):
    """Raises an error at any read of a tensor value, even in torch's functions."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "a read of the device"
        return function(*args, **(kwargs or {}))


class Waits(Callback):
    """Records collectives and tensor reads from the second to the second-to-last batch.

    DDP's exchange of gradients does not count, because torch runs the exchange in C++.
    """

    def __init__(self) -> None:
        self.collectives: list[str] = []
        self.reads: list[str] = []
        self._reads, self._stack = Reads(), ExitStack()

    def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 1:
            self._stack.enter_context(self._reads)
            for name in COLLECTIVES:
                note = functools.partial(self._note, name, getattr(torch.distributed, name))
                self._stack.enter_context(mock.patch.object(torch.distributed, name, note))
        elif batch_idx == trainer.num_training_batches - 1:
            self._stack.close()
            self.reads += [read.method for read in self._reads.found]

    def _note(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        self.collectives.append(name)
        return call(*args, **kwargs)
