"""Look up the names of a module of mmcv 1.x, and the source of each name.

A module has the names of mmcv 1.7.2 (``mmcv_names.py``), imported names included: old code writes
``from mmcv.runner.hooks.ema import HOOKS``. Names without a source are placeholders.
"""

from __future__ import annotations

import functools

from lightning_hooks.standin.mmcv_names import MmcvModule, mmcv_modules
from lightning_hooks.standin.name_table import OFFERED, OFFERED_AT, PACKAGES, UNRECORDED, Source

__all__ = ["names_of", "source_of"]


@functools.cache
def names_of(module: str) -> dict[str, Source]:
    """Return the names of a module with their sources."""
    here = OFFERED_AT.get(module, {})
    offered = {} if _is_refused(module) else {**OFFERED, **here}
    found = {**here, **{name: OFFERED[name] for name in UNRECORDED.get(module, ())}}
    own, imported = mmcv_modules().get(module, MmcvModule({}, {}))
    for name, kind in own.items():
        source = offered.get(name)
        if source is None and kind == "value":
            source = _offered_anywhere().get(name)
        found[name] = source or Source(module, name, missing=kind)
    for name, kind in imported.items():
        missing = Source(_defining_modules().get(name, module), name, missing=kind)
        source = here.get(name) or _offered_anywhere().get(name) or missing
        found[name] = source._replace(is_public=module in PACKAGES)
    return found


def source_of(name: str) -> Source | None:
    """Return the source of a name offered in any module of mmcv."""
    return _offered_anywhere().get(name)


def _is_refused(module: str) -> bool:
    """Return whether a module defines names like ``scatter`` for another device."""
    return module.startswith("mmcv.device.") and module != "mmcv.device.utils"


@functools.cache
def _defining_modules() -> dict[str, str]:
    """Return the first defining module of each class and function of mmcv."""
    found: dict[str, str] = {}
    for module, names in mmcv_modules().items():
        for name, kind in names.own.items():
            if kind != "value":  # values are recorded in each module that has them
                found.setdefault(name, module)
    return found


@functools.cache
def _offered_anywhere() -> dict[str, Source]:
    """Return the source of each offered name, by the first module with the name."""
    found = dict(OFFERED)
    for names in OFFERED_AT.values():
        found = {**names, **found}
    return found
