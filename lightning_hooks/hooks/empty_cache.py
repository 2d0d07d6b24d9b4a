"""``EmptyCacheHook``: return the memory that torch has cached to the device."""

from __future__ import annotations

import torch

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_bool

__all__ = ["EmptyCacheHook"]


@HOOKS.register_module()
class EmptyCacheHook(Hook):
    """Empties the cache of torch's memory allocator.

    An empty cache helps other programs on the device, and against fragmented memory. Otherwise this
    program gains no memory, and the next allocations are slow.

    Args:
        before_epoch: Before each training and each validation epoch.
        after_epoch: After each training and each validation epoch.
        after_iter: After each training and each validation step.

    Raises:
        TypeError: for an argument that is no bool.

    Source: mmcv's ``EmptyCacheHook``.

    Note:
        Departure from mmcv: the cache of the module's device is emptied; the CPU has no cache.
    """

    _reads_step = False

    def __init__(
        self, before_epoch: bool = False, after_epoch: bool = True, after_iter: bool = False
    ) -> None:
        super().__init__()
        check_bool(before_epoch=before_epoch, after_epoch=after_epoch, after_iter=after_iter)
        self._before_epoch = before_epoch
        self._after_epoch = after_epoch
        self._after_iter = after_iter

    def before_epoch(self, runner: Runner) -> None:
        """Empty the cache, if the argument of the same name is True."""
        if self._before_epoch:
            _empty_cache(runner)

    def after_epoch(self, runner: Runner) -> None:
        """Empty the cache, if the argument of the same name is True."""
        if self._after_epoch:
            _empty_cache(runner)

    def after_iter(self, runner: Runner) -> None:
        """Empty the cache, if the argument of the same name is True."""
        if self._after_iter:
            _empty_cache(runner)


def _empty_cache(runner: Runner) -> None:
    backend = getattr(torch, runner.module.device.type, None)
    empty = getattr(backend, "empty_cache", None)
    if empty is not None:
        empty()
