"""The finder at the end of ``sys.meta_path`` that knows mmcv's modules."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence

from lightning_hooks.standin.modules import StandinModule, has_lost_names
from lightning_hooks.standin.names import PACKAGES
from lightning_hooks.standin.refusals import hint_for

__all__ = ["Finder"]


class _Loader(importlib.abc.Loader):
    """Makes the modules of the table, and says of others what there is instead."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module."""
        if spec.name not in PACKAGES:
            parent, _, last = spec.name.rpartition(".")
            # without a name: `from mmcv.runner import X` would replace the message by its own
            raise ModuleNotFoundError(hint_for(parent, last))
        return StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing is run: names are looked up when they are asked for."""


class Finder(importlib.abc.MetaPathFinder):
    """Finds ``mmcv`` and all below it, where nobody else has."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of mmcv; for one that is not offered, one that says why."""
        if fullname.partition(".")[0] != "mmcv":
            return None
        top = sys.modules.get("mmcv")
        real = not (top is None or isinstance(top, StandinModule))
        # mmcv 1.x has what it has, 2.x gets back what it has lost
        if real and not (has_lost_names(top) and fullname in PACKAGES):
            return None
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(), origin="lightning_hooks", is_package=True
        )
