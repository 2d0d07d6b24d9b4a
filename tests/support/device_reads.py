"""Record or refuse reads of tensor values, for which the host would wait."""

from __future__ import annotations

import functools
import os
import sys
import threading
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lightning_hooks

__all__ = ["NoReads", "Read", "Reads"]

PACKAGE = os.path.dirname(lightning_hooks.__file__)
METHODS = ("__bool__", "__float__", "__format__", "__int__", "cpu", "item", "tolist")


class Read(NamedTuple):
    """One read of a tensor's value."""

    method: str
    """The tensor's, that was called."""

    numbers: int
    """How many the tensor has."""

    are_floats: bool
    is_ours: bool
    """Whether it was called by this package itself."""

    waits: bool
    """Whether it was in the thread that trains."""


class Reads(ExitStack):
    """Records in ``found`` the tensors whose values are read, in all threads.

    On the CPU too, where it is no read of a device: so it can be counted without one.
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
            if getattr(self._inside, "a_read", False):  # one of torch's methods calls another
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
    """Fails where a number of a tensor is read, in torch's own functions too."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None):
        assert function is not torch.ops.aten._local_scalar_dense.default, "a read of the device"
        return function(*args, **(kwargs or {}))
