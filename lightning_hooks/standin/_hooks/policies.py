"""Policies of learning rates and momenta that accept and refuse what mmcv's do."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

import lightning_hooks
from lightning_hooks.standin._hooks.arguments import AssertsArguments

__all__ = [
    "CosineAnnealingLrUpdaterHook",
    "CosineAnnealingMomentumUpdaterHook",
    "CosineRestartLrUpdaterHook",
    "FlatCosineAnnealingLrUpdaterHook",
    "LinearAnnealingLrUpdaterHook",
    "LinearAnnealingMomentumUpdaterHook",
    "MomentumUpdaterHook",
    "StepLrUpdaterHook",
    "StepMomentumUpdaterHook",
]


class CosineAnnealingLrUpdaterHook(AssertsArguments, lightning_hooks.CosineAnnealingLrUpdaterHook):
    """The native hook; wrong arguments are an AssertionError, too."""


class CosineRestartLrUpdaterHook(AssertsArguments, lightning_hooks.CosineRestartLrUpdaterHook):
    """The native hook; wrong arguments are an AssertionError, too."""


class FlatCosineAnnealingLrUpdaterHook(
    AssertsArguments, lightning_hooks.FlatCosineAnnealingLrUpdaterHook
):
    """The native hook; wrong arguments are an AssertionError, too."""


class LinearAnnealingLrUpdaterHook(AssertsArguments, lightning_hooks.LinearAnnealingLrUpdaterHook):
    """The native hook; wrong arguments are an AssertionError, too."""


class StepLrUpdaterHook(AssertsArguments, lightning_hooks.StepLrUpdaterHook):
    """The native hook; wrong arguments are an AssertionError, too."""


class MomentumUpdaterHook(lightning_hooks.MomentumUpdaterHook):
    """The native hook, but a momentum of 1 or more is a warning, as a warm-up in mmcv makes it."""

    _is_reported = False

    def is_valid(self, value: Any) -> bool:
        """Whether it is a finite number; one outside [0, 1) is reported once."""
        if super().is_valid(value):
            return True
        if not (isinstance(value, (int, float)) and math.isfinite(value)):
            return False
        if not self._is_reported:
            self._is_reported = True
            rank_zero_warn(
                f"{type(self).__name__} sets a momentum of {value}, which should be "
                f"{self.valid_range}"
            )
        return True


class CosineAnnealingMomentumUpdaterHook(
    AssertsArguments, lightning_hooks.CosineAnnealingMomentumUpdaterHook, MomentumUpdaterHook
):
    """The native hook with :class:`MomentumUpdaterHook`'s range."""


class LinearAnnealingMomentumUpdaterHook(
    AssertsArguments, lightning_hooks.LinearAnnealingMomentumUpdaterHook, MomentumUpdaterHook
):
    """The native hook with :class:`MomentumUpdaterHook`'s range."""


class StepMomentumUpdaterHook(
    AssertsArguments, lightning_hooks.StepMomentumUpdaterHook, MomentumUpdaterHook
):
    """The native hook with :class:`MomentumUpdaterHook`'s range."""
