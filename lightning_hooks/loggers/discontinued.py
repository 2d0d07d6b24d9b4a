"""Loggers of mmcv for two services that are not supported: their errors name a replacement."""

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
    """Return the error message for a logger whose service is not supported."""
    return (
        f"{cls.__name__} logged to {cls.service}; use TextLoggerHook, TensorboardLoggerHook, "
        "WandbLoggerHook or MlflowLoggerHook instead"
    )


@HOOKS.register_module()
class PaviLoggerHook(_DiscontinuedLoggerHook):
    """Logged to Pavi, which is not supported.

    Raises:
        RuntimeError: always; the message names loggers to use instead.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    service = "Pavi, which is not supported"


@HOOKS.register_module()
class SegmindLoggerHook(_DiscontinuedLoggerHook):
    """Logged to Segmind, which is not supported.

    Raises:
        RuntimeError: always; the message names loggers to use instead.

    Note:
        Departure from mmcv: it cannot be constructed.
    """

    service = "Segmind, which is not supported"
