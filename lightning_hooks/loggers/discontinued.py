"""Hooks of mmcv whose services are gone: their names say what to use instead."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.base import LoggerHook

__all__ = ["PaviLoggerHook", "SegmindLoggerHook"]

_INSTEAD = "use TextLoggerHook, TensorboardLoggerHook, WandbLoggerHook or MlflowLoggerHook instead"


@HOOKS.register_module()
class PaviLoggerHook(LoggerHook):
    """Logged to Pavi, a service inside the company that wrote mmcv.

    Raises:
        RuntimeError: always; it says what to use.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "PaviLoggerHook logged to Pavi, an internal service of mmcv's makers that nobody else "
            f"can reach; {_INSTEAD}"
        )


@HOOKS.register_module()
class SegmindLoggerHook(LoggerHook):
    """Logged to the experiment tracker of Segmind, which is offered no more.

    Raises:
        RuntimeError: always; it says what to use.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(
            "SegmindLoggerHook logged to Segmind's experiment tracker, which is offered no more; "
            f"{_INSTEAD}"
        )
