"""``HOOK_REGISTRY`` and ``parse_hooks``: pointrix's hooks by name, from a dict or YAML."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any, TypeVar

from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["HOOK_REGISTRY", "HookRegistry", "parse_hooks"]

T = TypeVar("T", bound=type)


class HookRegistry:
    """Hook classes by name.

    >>> registry = HookRegistry()
    >>> @registry.register()
    ... class MyHook:
    ...     pass
    >>> registry.get("MyHook") is MyHook
    True
    """

    def __init__(self) -> None:
        self._classes: dict[str, type] = {}

    def register(self, cls: Any = None) -> Any:
        """Register a class under its name; a decorator, with or without parentheses.

        A class replaces one of this package of the same name.

        Raises:
            KeyError: if another class has the name.
        """
        if cls is None:
            return self.register
        if not inspect.isclass(cls):
            raise TypeError(f"only classes can be registered as hooks, got {cls!r}")
        other = self._classes.get(cls.__name__, cls)
        if other is not cls and not other.__module__.startswith("lightning_hooks."):
            raise KeyError(f"the hook {cls.__name__} is registered already, by {other.__module__}")
        self._classes[cls.__name__] = cls
        return cls

    def get(self, name: str) -> type:
        """Return the class of a name.

        Raises:
            UnknownNameError: if there is none, with the closest name.
        """
        if name not in self._classes:
            raise UnknownNameError(
                f"no hook {name!r} is registered; {suggest(name, self._classes)}"
            )
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes


HOOK_REGISTRY = HookRegistry()
"""pointrix's hooks: ``LogHook``, ``CheckPointHook``, ``ProgressHook`` and those of users."""


def parse_hooks(cfg: Mapping[str, Any] | str | os.PathLike[str] | None) -> list[Any]:
    """Build hooks from a config, in its order.

    Args:
        cfg: Dict of dicts with ``name`` and optional arguments, as ``{"log": {"name":
            "LogHook"}}``, or a YAML file with such a dict, at its root or under ``hooks`` (also
            ``trainer: hooks``).

    Raises:
        UnknownNameError: for a name that is not registered.
        TypeError: if the argument is no config, or a hook refuses its arguments.

    Note:
        Departures from pointrix: the entries besides ``name`` are the constructor's arguments
        (there ignored), and without a config the list is empty (there None).
    """
    if cfg is None:
        return []
    if isinstance(cfg, (str, os.PathLike)):
        cfg = read_config(os.fspath(cfg))
        for key in ("trainer", "hooks"):
            cfg = cfg.get(key, cfg) if isinstance(cfg, Mapping) else cfg
    if not isinstance(cfg, Mapping):
        raise TypeError(f"cfg must be a dict of hooks or a YAML file, got {cfg!r}")
    return [_build(key, entry) for key, entry in cfg.items()]


def _build(key: str, entry: Any) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise TypeError(f"the hook {key!r} needs a dict with the key 'name', got {entry!r}")
    arguments = {name: value for name, value in entry.items() if name != "name"}
    cls = HOOK_REGISTRY.get(entry["name"])
    try:
        return cls(**arguments)
    except TypeError as error:
        raise TypeError(f"{error} in the hook {key!r}: {dict(entry)!r}") from error
