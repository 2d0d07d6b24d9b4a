"""mmcv's registry of hooks: ours, with the stand-in's own class where ours departs from mmcv."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine import registry as native
from lightning_hooks.standin.hooks import cyclic, trackers
from lightning_hooks.standin.hooks.checkpoint import CheckpointHook
from lightning_hooks.standin.hooks.ema import EMAHook
from lightning_hooks.standin.hooks.iter_timer import IterTimerHook
from lightning_hooks.standin.hooks.text_logger import TextLoggerHook
from lightning_hooks.standin.utils.registry import Registry

__all__ = ["EXACT", "HOOKS"]

EXACT = {
    "CheckpointHook": CheckpointHook,
    "EMAHook": EMAHook,
    "IterTimerHook": IterTimerHook,
    "TextLoggerHook": TextLoggerHook,
    **{name: getattr(trackers, name) for name in trackers.__all__},
    **{name: getattr(cyclic, name) for name in cyclic.__all__},
}
"""The classes that old code needs as mmcv has them, by the name of ours."""


class _Hooks(Registry):
    """The hooks by name, shared with ``HookAdapter``."""

    def __init__(self) -> None:
        super().__init__("hook", scope="mmcv")
        self._module_dict = native.HOOKS.module_dict

    def get(self, key: str) -> Any:
        """Return a class; mmcv's exact one in the place of ours."""
        found = super().get(key)
        exact = EXACT.get(key.rpartition(".")[2])
        return exact if exact is not None and _is_ours(found) else found

    def _is_taken(self, name: str) -> bool:
        # mmcv has no hook of that name: an old project's own takes the place of ours
        found = self.module_dict.get(name)
        return found is not None and not (_is_ours(found) and name not in MMCV_HOOKS)


def _is_ours(cls: Any) -> bool:
    return str(getattr(cls, "__module__", "")).startswith("lightning_hooks.")


_LOGGERS = "ClearML Dvclive Mlflow Neptune Pavi Segmind Tensorboard Text Wandb"
_LR = "CosineAnnealing CosineRestart Cyclic Exp Fixed FlatCosineAnnealing Inv LinearAnnealing "
_LR += "OneCycle Poly Step"
_MOMENTUM = "CosineAnnealing Cyclic LinearAnnealing OneCycle Step"
_OTHERS = "Checkpoint Closure DistSamplerSeed EMA EmptyCache Fp16Optimizer "
_OTHERS += "GradientCumulativeFp16Optimizer GradientCumulativeOptimizer IterTimer Optimizer "
_OTHERS += "Profiler SyncBuffers"
MMCV_HOOKS = frozenset(
    f"{name}{family}Hook"
    for family, names in (
        ("Logger", _LOGGERS),
        ("LrUpdater", _LR),
        ("MomentumUpdater", _MOMENTUM),
        ("", _OTHERS),
    )
    for name in names.split()
)
"""The names in mmcv 1.7.2's own registry."""

HOOKS = _Hooks()
"""``mmcv.runner.HOOKS``."""
