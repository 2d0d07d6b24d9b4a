"""Find and make mmcv's modules: a finder for the end of ``sys.meta_path``.

The stand-in's modules: empty until a name is asked for.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any

from lightning_hooks.standin.names import PACKAGES, names_of
from lightning_hooks.standin.refused import hint_for

__all__ = ["Finder", "StandinModule", "has_lost_names"]


class _Loader(importlib.abc.Loader):
    """Load a module of the name table; for any other, raise an error with the alternative."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module."""
        if spec.name not in PACKAGES:
            parent, _, last = spec.name.rpartition(".")
            # without a name: `from mmcv.runner import X` would replace the message by its own
            raise ModuleNotFoundError(hint_for(parent, last))
        return StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run nothing: names are looked up on access."""


class Finder(importlib.abc.MetaPathFinder):
    """Find ``mmcv`` and the modules below it, after all other finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of mmcv; loading one that is not offered raises why."""
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


class StandinModule(types.ModuleType):
    """A module whose names are looked up in the name table on first access.

    Args:
        name: Its name: ``mmcv.runner``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} of mmcv 1.7.2, as lightning_hooks has it.")
        names = names_of(name)
        starred = sorted(n for n, source in names.items() if source.is_public)
        self.__all__ = starred

    def __getattr__(self, attribute: str) -> Any:
        names = names_of(self.__name__)
        if attribute in names:
            try:
                value = names[attribute].load()
            except AttributeError as error:  # which import would take for a missing name
                raise ImportError(f"{self.__name__}.{attribute}: {error}") from error
            setattr(self, attribute, value)
            return value
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        if f"{self.__name__}.{attribute}" in PACKAGES:
            # real mmcv's packages import their modules
            return importlib.import_module(f"{self.__name__}.{attribute}")
        raise AttributeError(hint_for(self.__name__, attribute))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def has_lost_names(real: types.ModuleType | None) -> bool:
    """Whether a module is a real mmcv that has lost the runners: 2.x."""
    if real is None or isinstance(real, StandinModule):
        return False
    major = str(getattr(real, "__version__", "1")).partition(".")[0]
    return major.isdigit() and int(major) >= 2
