"""The hook dialects: hooks of mmcv's sister libraries in the same adapter.

A dialect is data (:class:`~lightning_hooks.dialects.dialect.Dialect`): which of its points are
called at each of mmcv's, with what arguments, and what its hooks see in place of the runner.
"""

from typing import Any

from lightning_hooks.dialects import cvpods, detectron2, mmengine, pet, pointrix
from lightning_hooks.dialects.detect import detect as _detect
from lightning_hooks.dialects.dialect import Dialect as Dialect
from lightning_hooks.dialects.hosted import Hosted as Hosted
from lightning_hooks.dialects.hosted import foreign as foreign

__all__ = ["DIALECTS", "Dialect", "Hosted", "detect", "foreign", "host_as"]

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        mmengine.DIALECT,
        detectron2.DIALECT,
        cvpods.DIALECT,
        pet.DIALECT,
        pointrix.DIALECT,
    )
}
"""The dialects besides mmcv's own."""


def detect(hook: Any, dialect: str = "auto") -> str:
    """Return the dialect of a hook; see :func:`lightning_hooks.dialects.detect.detect`."""
    return _detect(hook, dialect, {name: each.methods for name, each in DIALECTS.items()})


def host_as(hook: Any, dialect: str = "auto") -> Any:
    """Return what the driver is to call for a hook: itself if it is mmcv's, else its host."""
    name = detect(hook, dialect)
    return Hosted(hook, DIALECTS[name]) if name in DIALECTS else hook
