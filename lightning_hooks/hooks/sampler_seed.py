"""``DistSamplerSeedHook``: seed distributed samplers with the epoch."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.utilities import CombinedLoader

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["DistSamplerSeedHook"]


@HOOKS.register_module()
class DistSamplerSeedHook(Hook):
    """Calls ``set_epoch`` of the loader's sampler (or its batch sampler's) before every epoch.

    Lightning does the same for every loader: the hook is for old configs.

    Source: mmcv's ``DistSamplerSeedHook``.

    Note:
        Departures from mmcv: all of several loaders are seeded; a loader without samplers is
        skipped, also in a run counted in iterations (mmcv fails on both).
    """

    _reads_step = False

    def before_epoch(self, runner: Runner) -> None:
        """Call ``set_epoch`` of each loader's sampler."""
        for loader in CombinedLoader(runner.data_loader).flattened:
            batches = getattr(loader, "batch_sampler", None)
            for owner in (loader, batches):
                sampler: Any = getattr(owner, "sampler", None)
                if hasattr(sampler, "set_epoch"):
                    sampler.set_epoch(runner.epoch)
                    break
