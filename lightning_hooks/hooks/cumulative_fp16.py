"""``GradientCumulativeFp16OptimizerHook``: one half precision step for several batches."""

from __future__ import annotations

import torch

from lightning_hooks.hooks.cumulative import GradientCumulativeOptimizerHook
from lightning_hooks.hooks.fp16 import Fp16OptimizerHook
from lightning_hooks.registry import HOOKS

__all__ = ["GradientCumulativeFp16OptimizerHook"]


@HOOKS.register_module()
class GradientCumulativeFp16OptimizerHook(GradientCumulativeOptimizerHook, Fp16OptimizerHook):
    """Steps every ``cumulative_iters`` iterations, with the loss scaled.

    The groups of iterations and their last, shorter one are those of
    :class:`~lightning_hooks.hooks.cumulative.GradientCumulativeOptimizerHook`; who scales, and
    which precision fits, is as in :class:`~lightning_hooks.hooks.fp16.Fp16OptimizerHook`. The
    scale changes with a step only, so that gradients added up are of one scale. The hook owns
    backward and step with any module.

    Args:
        cumulative_iters: Iterations to a step.
        kwargs: Those of :class:`~lightning_hooks.hooks.fp16.Fp16OptimizerHook`.

    Source: mmcv's ``GradientCumulativeFp16OptimizerHook``.

    Note:
        The departures of both classes hold here.
    """

    def owns_backward(self, module: torch.nn.Module) -> bool:
        """Lightning's own accumulation ends with every epoch."""
        return True
