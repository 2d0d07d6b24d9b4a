"""mmcv's loggers for Pavi and Segmind, which are not supported: the errors name replacements."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.base import LoggerHook

__all__ = ["PaviLoggerHook", "SegmindLoggerHook", "replacement"]


class _DiscontinuedLoggerHook(LoggerHook):
    """Raises RuntimeError in the constructor; the message names the ``service``."""

    service: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError(replacement(type(self)))


def replacement(cls: type[_DiscontinuedLoggerHook]) -> str:
    """Return the error message of a discontinued logger, with replacements."""
    return (
        f"{cls.__name__} logged to {cls.service}, which is not supported; use TextLoggerHook, "
        "TensorboardLoggerHook, WandbLoggerHook or MlflowLoggerHook instead"
    )


@HOOKS.register_module()
class PaviLoggerHook(_DiscontinuedLoggerHook):
    """Logged to Pavi, which is not supported.

    Raises:
        RuntimeError: always; the message names replacements.

    Note:
        Departure from mmcv: the constructor raises.
    """

    service = "Pavi"


@HOOKS.register_module()
class SegmindLoggerHook(_DiscontinuedLoggerHook):
    """Logged to Segmind, which is not supported.

    Raises:
        RuntimeError: always; the message names replacements.

    Note:
        Departure from mmcv: the constructor raises.
    """

    service = "Segmind"
