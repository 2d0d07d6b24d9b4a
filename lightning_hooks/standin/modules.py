"""The stand-in's modules: empty until a name is asked for."""

from __future__ import annotations

import types
from typing import Any

from lightning_hooks.standin.names import PACKAGES, names_of
from lightning_hooks.standin.refusals import hint_for

__all__ = ["StandinModule", "has_lost_names"]


class StandinModule(types.ModuleType):
    """A module whose names come from the table, each when it is first asked for.

    Args:
        name: Its name: ``mmcv.runner``.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, f"{name} of mmcv 1.7.2, as lightning_hooks has it.")
        names = names_of(name)
        starred = sorted(n for n, source in names.items() if source.is_public)
        vars(self)["__all__"] = starred

    def __getattr__(self, attribute: str) -> Any:
        names = names_of(self.__name__)
        if attribute in names:
            try:
                value = names[attribute].load()
            except AttributeError as error:  # which import would take for a missing name
                raise ImportError(f"{self.__name__}.{attribute}: {error}") from error
            vars(self)[attribute] = value
            return value
        if attribute.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {attribute!r}")
        if f"{self.__name__}.{attribute}" in PACKAGES:
            # a module that nobody has imported yet: real mmcv's packages import theirs
            import importlib

            return importlib.import_module(f"{self.__name__}.{attribute}")
        raise AttributeError(hint_for(self.__name__, attribute))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *names_of(self.__name__)})

    def __reduce__(self) -> tuple[Any, ...]:
        import importlib

        return importlib.import_module, (self.__name__,)


def has_lost_names(real: types.ModuleType | None) -> bool:
    """Whether a module is a real mmcv that has lost the runners: 2.x."""
    if real is None or isinstance(real, StandinModule):
        return False
    major = str(getattr(real, "__version__", "1")).partition(".")[0]
    return major.isdigit() and int(major) >= 2
