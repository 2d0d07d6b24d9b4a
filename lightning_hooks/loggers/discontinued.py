"""Loggers of mmcv for services that no longer exist: their errors name a replacement."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.base import LoggerHook

__all__ = ["PaviLoggerHook", "SegmindLoggerHook", "replacement"]


class _DiscontinuedLoggerHook(LoggerHook):
    """Raises RuntimeError when it is constructed; subclasses name the ``service``."""

    service: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(replacement(type(self)))


def replacement(cls: type[_DiscontinuedLoggerHook]) -> str:
    """Return the error message for a logger whose service is gone."""
    return (
        f"{cls.__name__} logged to {cls.service}; use TextLoggerHook, TensorboardLoggerHook, "
        "WandbLoggerHook or MlflowLoggerHook instead"
    )


@HOOKS.register_module()
class PaviLoggerHook(_DiscontinuedLoggerHook):
    """Logged to Pavi, an internal service of mmcv's makers.

    Raises:
        RuntimeError: always; the message names loggers to use instead.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    service = "Pavi, an internal service of mmcv's makers that cannot be reached from outside"


@HOOKS.register_module()
class SegmindLoggerHook(_DiscontinuedLoggerHook):
    """Logged to the experiment tracker of Segmind, which is no longer offered.

    Raises:
        RuntimeError: always; the message names loggers to use instead.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    service = "Segmind's experiment tracker, which is no longer offered"
