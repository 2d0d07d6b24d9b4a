"""The older name of :class:`~lightning_hooks.hooks.averaging.base.AveragingHook`."""

from lightning_hooks.hooks.averaging.base import AveragingHook as StepAverageHook

__all__ = ["StepAverageHook"]
