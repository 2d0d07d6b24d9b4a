"""``DistSamplerSeedHook``: distributed samplers shuffle differently in every epoch."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import CombinedLoader

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS

__all__ = ["DistSamplerSeedHook"]


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Tells the loader's sampler (or its batch sampler's) the epoch, before every epoch.

    Lightning does that already, for every loader that it iterates; old configs that have this
    hook go on working.

    Source: mmcv's ``DistSamplerSeedHook``.

    Note:
        Departures from mmcv: of several loaders each is told; a loader without samplers is left
        alone, also in a run counted in iterations (mmcv fails on both).
    """

    reads_step = False

    def before_epoch(self, runner: Any) -> None:
        """Call ``set_epoch``."""
        for loader in CombinedLoader(runner.data_loader).flattened:
            batches = getattr(loader, "batch_sampler", None)
            for owner in (loader, batches):
                sampler: Any = getattr(owner, "sampler", None)
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(runner.epoch)
                    break
