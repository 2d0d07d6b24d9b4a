"""Count the collectives that a process takes part in."""

from __future__ import annotations

import functools
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
    """Counts in ``found`` the calls of torch's collectives, by name; one inside another is none.

    DDP's own exchange of gradients is not among them: torch does it without a call from Python.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()
        self._is_inside = False

    def __enter__(self) -> Collectives:
        for name in NAMES:
            note = functools.partial(self._note, name, getattr(torch.distributed, name))
            for module in (torch.distributed, torch.distributed.distributed_c10d):
                self.enter_context(mock.patch.object(module, name, note))
        return self

    def _note(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        if self._is_inside:
            return call(*args, **kwargs)
        self.found[name] += 1
        self._is_inside = True
        try:
            return call(*args, **kwargs)
        finally:
            self._is_inside = False
