"""The names of a module of mmcv 1.x, with the place that each is imported from.

They are those of the table, those of a package's modules and, as in mmcv, those that a module
imports: old code writes ``from mmcv.runner.hooks.ema import HOOKS``. What else is in mmcv 1.7.2
(``mmcv_names.py``) has a placeholder.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple

from lightning_hooks.standin.mmcv_names import Kind, mmcv_modules
from lightning_hooks.standin.name_table import PACKAGES, TABLE

__all__ = ["Source", "names_of"]


class Source(NamedTuple):
    """The module and name from which a name of mmcv is imported."""

    module: str
    name: str
    is_public: bool = True
    missing: Kind | None = None
    """The kind of a name that is not offered; ``module`` is then mmcv's."""

    def load(self) -> Any:
        """Import and return the object."""
        found = importlib.import_module(self.module)
        return getattr(found, self.name)


@functools.cache
def names_of(module: str) -> dict[str, Source]:
    """Return the names of a module with their sources."""
    found: dict[str, Source] = {}
    for root in PACKAGES.get(module, ()):
        for below in TABLE:
            if below == root or below.startswith(f"{root}."):
                found.update(_offered(below))
    found.update(_offered(module))
    if module in mmcv_modules():
        own, imported = mmcv_modules()[module]
        for name in found.keys() - own.keys() - imported.keys():
            if f"{module}.{name}" in PACKAGES:  # mmcv.ops.psa_mask is a module
                del found[name]
        for name, kind in own.items():
            found.setdefault(name, _source(module, name, kind))
        for name, kind in imported.items():
            source = _source(_owner(name, module), name, kind)
            found.setdefault(name, source._replace(is_public=bool(PACKAGES[module])))
    return found


def _source(module: str, name: str, kind: Kind) -> Source:
    """Return the source of a name in the module that defines it."""
    offered = _offered(module).get(name)
    if offered is None and (kind == "value" or name not in mmcv_modules()[module].own):
        offered = _homes().get(name)  # the table does not tell which module defines it
    return offered or Source(module, name, missing=kind)


def _owner(name: str, module: str) -> str:
    """Return the module that an imported name comes from; the importing one if none defines it.

    Of several, one whose name is offered goes before one of the same package.
    """

    def fitness(owner: str) -> tuple[bool, bool]:
        return name in _offered(owner), owner.startswith(f"{module.rpartition('.')[0]}.")

    return max(_owners().get(name, [module]), key=fitness)


@functools.cache
def _owners() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, names in mmcv_modules().items():
        for name, kind in names.own.items():
            if kind != "value":
                found.setdefault(name, []).append(module)
    return found


@functools.cache
def _homes() -> dict[str, Source]:
    """Return the source of each name that is offered, from all modules together."""
    return {name: source for module in TABLE for name, source in _offered(module).items()}


def _offered(module: str) -> dict[str, Source]:
    found = {}
    for source, names in TABLE.get(module, {}).items():
        for entry in names.split():
            theirs, _, ours = entry.partition("=")
            private = theirs.startswith("_") and not theirs.startswith("__")
            found[theirs] = Source(source, ours or theirs, not private or theirs in _STARRED)
    return found


_STARRED = ("_load_checkpoint", "_load_checkpoint_with_prefix", "_BatchNorm", "_InstanceNorm")
