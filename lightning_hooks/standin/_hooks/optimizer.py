"""Optimizer hooks that refuse wrong arguments as mmcv's do."""

from __future__ import annotations

import lightning_hooks
from lightning_hooks.standin._hooks.arguments import AssertsArguments

__all__ = ["GradientCumulativeFp16OptimizerHook", "GradientCumulativeOptimizerHook"]


class GradientCumulativeOptimizerHook(
    AssertsArguments, lightning_hooks.GradientCumulativeOptimizerHook
):
    """The native hook; wrong arguments are an AssertionError, too."""


class GradientCumulativeFp16OptimizerHook(
    GradientCumulativeOptimizerHook, lightning_hooks.GradientCumulativeFp16OptimizerHook
):
    """The native hook; wrong arguments are an AssertionError, too."""
