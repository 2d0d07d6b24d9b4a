"""The hooks of detectron2, derived from its base class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_hooks.dialects.detectron2 import profiling
from lightning_hooks.dialects.steps import base, checkpoints, hooks, lr, precise_bn, timer

__all__ = [
    "AutogradProfiler",
    "BestCheckpointer",
    "CallbackHook",
    "EvalHook",
    "HookBase",
    "IterationTimer",
    "LRScheduler",
    "PeriodicCheckpointer",
    "PeriodicWriter",
    "PreciseBN",
    "TorchMemoryStats",
    "TorchProfiler",
]


class HookBase(base.HookBase):
    """The base of detectron2's hooks: override the points that you need.

    ``self.trainer`` has ``iter``, ``start_iter``, ``max_iter``, ``storage``, ``optimizer``,
    ``model``, ``data_loader`` and ``scheduler``.
    """

    hook_dialect = "detectron2"

    def after_backward(self) -> None:
        """After each backward pass, before the optimizer's step."""

    def state_dict(self) -> dict[str, Any]:
        """Return what ``load_state_dict`` needs in a resumed run; an empty dict is not saved."""
        return {}


class IterationTimer(timer.IterationTimer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.timer.IterationTimer`."""


class PeriodicWriter(hooks.PeriodicWriter, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.PeriodicWriter`."""


class PeriodicCheckpointer(checkpoints.PeriodicCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.PeriodicCheckpointer`."""


class BestCheckpointer(checkpoints.BestCheckpointer, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.checkpoints.BestCheckpointer`."""


class LRScheduler(lr.LRScheduler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.lr.LRScheduler`."""


class AutogradProfiler(hooks.AutogradProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.AutogradProfiler`."""


class EvalHook(hooks.EvalHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.EvalHook`.

    Args:
        eval_period: Number of iterations between two evaluations; 0: only at the end.
        eval_function: Function without arguments; returns a dict of numbers, or nothing.
        eval_after_train: Whether there is an evaluation after the last iteration.
    """

    def __init__(
        self, eval_period: int, eval_function: Callable[[], Any], eval_after_train: bool = True
    ) -> None:
        super().__init__(eval_period, eval_function)
        self._eval_after_train = eval_after_train

    def after_train(self) -> None:
        """Evaluate the result of a complete run."""
        if self._eval_after_train:
            super().after_train()


class PreciseBN(precise_bn.PreciseBN, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.precise_bn.PreciseBN`."""


class CallbackHook(hooks.CallbackHook, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.steps.hooks.CallbackHook`."""


class TorchProfiler(profiling.TorchProfiler, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.detectron2.profiling.TorchProfiler`."""


class TorchMemoryStats(profiling.TorchMemoryStats, HookBase):
    """detectron2's :class:`~lightning_hooks.dialects.detectron2.profiling.TorchMemoryStats`."""
