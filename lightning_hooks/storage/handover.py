"""``Handover``: pass what a hook has from a process that trained to the process that started it."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
import weakref
from collections.abc import Callable, Mapping
from multiprocessing.context import get_spawning_popen
from typing import Any

from lightning_hooks.storage import files, torch_files

__all__ = ["Handover"]


class Handover:
    """Passes a dict from a started process to the process in which the hook was made.

    ``ddp_fork``, ``ddp_spawn`` and ``ddp_notebook`` train in started processes. Lightning passes
    the module's state dict through a temporary file. A handover passes an average's state dict, or
    the paths of checkpoints, through another temporary file.
    """

    def __init__(self) -> None:
        self._home = os.getpid()
        self._path = os.path.join(tempfile.gettempdir(), f"lightning_hooks_{uuid.uuid4().hex}.pth")
        weakref.finalize(self, _remove, self._path, self._home)

    def of_copy(self) -> Handover:
        """Return the handover for a copy of the hook: the same handover for a started process."""
        return self if get_spawning_popen() is not None else Handover()

    def send(self, state: Callable[[], Mapping[str, Any]]) -> None:
        """Write the dict of a function, unless the hook was made in the present process."""
        if os.getpid() != self._home:
            with contextlib.suppress(OSError):  # the disk is full: Lightning's own file raises
                torch_files.save_torch(dict(state()), self._path)

    def receive(self) -> dict[str, Any]:
        """Return the dict of a fit in another process; empty without such a fit."""
        if os.getpid() != self._home or not os.path.exists(self._path):
            return {}
        state: dict[str, Any] = torch_files.load_torch(self._path)
        _remove(self._path, self._home)
        return state


def _remove(path: str, home: int) -> None:
    if os.getpid() == home:
        files.delete(path)
