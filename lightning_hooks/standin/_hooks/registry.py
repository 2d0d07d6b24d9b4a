"""mmcv's registry of hooks: native classes, and mmcv-exact ones where these differ."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine import registry as native
from lightning_hooks.standin._hooks import cyclic, evaluation, optimizer, policies
from lightning_hooks.standin._hooks.checkpoint import CheckpointHook
from lightning_hooks.standin._hooks.ema import EMAHook
from lightning_hooks.standin._hooks.iter_timer import IterTimerHook
from lightning_hooks.standin._hooks.loggers import trackers
from lightning_hooks.standin._hooks.loggers.pavi import PaviLoggerHook
from lightning_hooks.standin._hooks.loggers.segmind import SegmindLoggerHook
from lightning_hooks.standin._hooks.loggers.text import TextLoggerHook
from lightning_hooks.standin.utils.registry import Registry

__all__ = ["EXACT", "HOOKS"]

EXACT = {
    **{cls.__name__: cls for cls in (CheckpointHook, EMAHook, IterTimerHook)},
    **{cls.__name__: cls for cls in (PaviLoggerHook, SegmindLoggerHook, TextLoggerHook)},
    **{
        name: getattr(module, name)
        for module in (cyclic, evaluation, optimizer, policies, trackers)
        for name in module.__all__
    },
}
"""The mmcv-exact classes by the name of the native class that they replace."""


class _Hooks(Registry):
    """The hooks by name, in one table with the native registry."""

    def __init__(self) -> None:
        super().__init__("hook", scope="mmcv")
        self._gives_way = native.HOOKS._gives_way
        self._module_dict = native.HOOKS.module_dict

    def get(self, key: str) -> Any:
        """Return a class; the mmcv-exact one in place of a native one."""
        found = super().get(key)
        exact = EXACT.get(key.rpartition(".")[2])
        return exact if exact is not None and _is_ours(found) else found


def _is_ours(cls: Any) -> bool:
    return str(getattr(cls, "__module__", "")).startswith("lightning_hooks.")


HOOKS = _Hooks()
"""``mmcv.runner.HOOKS``."""
