"""``IterTimerHook`` with ``time.time()``: old subclasses compare ``t`` with it."""

from __future__ import annotations

import time

import lightning_hooks

__all__ = ["IterTimerHook"]


class IterTimerHook(lightning_hooks.IterTimerHook):
    """The native hook with ``time.time()`` as its clock."""

    clock = staticmethod(time.time)
