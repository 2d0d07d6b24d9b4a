"""Count the collectives of a process and the bytes sent."""

from __future__ import annotations

import functools
import pickle
import threading
from collections import Counter
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch

__all__ = ["Collectives"]

NAMES = (
    *("all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "barrier"),
    *("broadcast", "broadcast_object_list", "gather", "gather_object", "scatter_object_list"),
)


class Collectives(ExitStack):
    """Counts calls of torch's collectives by name in ``found``; nested calls do not count.

    DDP's exchange of gradients does not count either, because torch runs the exchange in C++.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self.bytes = 0
        """The bytes of tensors and pickled objects passed to the calls."""
        self._inside = threading.local()

    def __enter__(self) -> Collectives:
        for name in NAMES:
            note = functools.partial(self._note, name, getattr(torch.distributed, name))
            for module in (torch.distributed, torch.distributed.distributed_c10d):
                self.enter_context(mock.patch.object(module, name, note))
        return self

    def _note(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self._inside, "a_call", False):
            return call(*args, **kwargs)
        self.found[name] += 1
        self.bytes += _size(name, args, kwargs)
        self._inside.a_call = True
        try:
            return call(*args, **kwargs)
        finally:
            self._inside.a_call = False


def _size(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Return the number of bytes passed to a collective."""
    values = [*args, *kwargs.values()]
    if name == "barrier":
        return 0
    if name.startswith("all_gather") or name.startswith("scatter"):
        values = values[1:]  # skip the output list
    given = values[0]
    return given.nbytes if isinstance(given, torch.Tensor) else len(pickle.dumps(given))
