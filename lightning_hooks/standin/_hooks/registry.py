"""mmcv's registry of hooks: native classes, and mmcv-exact classes where mmcv differs."""

from __future__ import annotations

import sys
from typing import Any

from lightning_hooks.engine import registry as native
from lightning_hooks.standin.name_table import names_of
from lightning_hooks.standin.utils.registry import Registry
from lightning_hooks.utils.origin import is_ours

__all__ = ["HOOKS"]


class _Hooks(Registry):
    """The hooks by name; the table is the native registry's."""

    def __init__(self) -> None:
        super().__init__("hook", scope="mmcv")
        self.gives_way = native.HOOKS.gives_way
        self._module_dict = native.HOOKS.module_dict

    def get(self, key: str) -> Any:
        """Return a class; in place of a native hook, the class of this name in ``mmcv.runner``."""
        registered = super().get(key)
        if registered is None and key == "RFSearchHook" and "mmcv.cnn" in sys.modules:
            return sys.modules["mmcv.cnn"].RFSearchHook  # which mmcv.cnn loads on first access
        source = names_of("mmcv.runner").get(key.rpartition(".")[2])
        return source.load() if source and is_ours(registered) else registered


HOOKS = _Hooks()
"""``mmcv.runner.HOOKS``."""
