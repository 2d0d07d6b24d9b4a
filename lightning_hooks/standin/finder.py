"""Import mmcv's modules: a finder for the end of ``sys.meta_path``, and lazy modules."""

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
    """Load a module of the name table; raise an error with advice for any other."""

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """Make an empty module."""
        if spec.name not in PACKAGES:
            parent, _, last = spec.name.rpartition(".")
            # without name=: `from mmcv.runner import X` would replace the message by its own
            raise ModuleNotFoundError(hint_for(parent, last))
        return StandinModule(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Do nothing: names are looked up on access."""


class Finder(importlib.abc.MetaPathFinder):
    """Find ``mmcv`` and its submodules, after all other finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module of mmcv; loading one that is not offered raises an error."""
        if fullname.partition(".")[0] != "mmcv":
            return None
        top = sys.modules.get("mmcv")
        real = not (top is None or isinstance(top, StandinModule))
        # mmcv 1.x is complete; 2.x gets the modules that it has lost
        if real and not (has_lost_names(top) and fullname in PACKAGES):
            return None
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(), origin="lightning_hooks", is_package=True
        )


class StandinModule(types.ModuleType):
    """A module whose names are looked up in the name table on first access.

    Args:
        name: The module's name: ``mmcv.runner``.
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
            except AttributeError as error:  # import would report it as a missing name
                raise ImportError(f"{self.__name__}.{attribute}: {error}") from error
            setattr(self, attribute, value)
            return value
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        if f"{self.__name__}.{attribute}" in PACKAGES:
            # packages of real mmcv import their modules
            return importlib.import_module(f"{self.__name__}.{attribute}")
        raise AttributeError(hint_for(self.__name__, attribute))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})

    def __reduce__(self) -> tuple[Any, ...]:
        return importlib.import_module, (self.__name__,)


def has_lost_names(real: types.ModuleType | None) -> bool:
    """Return whether a module is a real mmcv 2.x, which has lost the runners."""
    if real is None or isinstance(real, StandinModule):
        return False
    major = str(getattr(real, "__version__", "1")).partition(".")[0]
    return major.isdigit() and int(major) >= 2
