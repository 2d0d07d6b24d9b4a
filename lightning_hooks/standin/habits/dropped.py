"""Names and modules that Python, numpy and torch have dropped, with what has taken their place."""

from __future__ import annotations

import collections.abc
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

from lightning_hooks.standin.habits import old_numpy, old_resources
from lightning_hooks.standin.utils.notice import notice

__all__ = ["offer_modules", "offer_names"]

_ArgSpec = collections.namedtuple("_ArgSpec", "args varargs keywords defaults")


def _getargspec(function: Callable[..., Any]) -> Any:
    spec = inspect.getfullargspec(function)
    return _ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def offer_names() -> None:
    """Give numpy, ``collections`` and ``inspect`` their dropped names."""
    abstract = {name: getattr(collections.abc, name) for name in collections.abc.__all__}
    _offer(numpy, old_numpy.dropped_names())
    _offer(collections, abstract)
    _offer(inspect, {"getargspec": _getargspec})


def _offer(module: Any, dropped: Mapping[str, Any]) -> None:
    """Give a module a ``__getattr__`` for its dropped names, before the one that it may have."""
    before = vars(module).get("__getattr__")
    if getattr(before, "has_dropped_names", False):
        return

    def lookup(name: str) -> Any:
        found = dropped.get(name)
        if found is not None:
            notice(f"{module.__name__}.{name} is no longer there: {_named(found)} takes its place")
            return found
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    lookup.has_dropped_names = True  # type: ignore[attr-defined]
    module.__getattr__ = lookup


def _named(found: Any) -> str:
    """Return the name of what takes a place, in a line of log."""
    if isinstance(found, float):
        return repr(found)
    name = getattr(found, "__name__", None)
    ours = name is None or str(getattr(found, "__module__", "")).startswith("lightning_hooks")
    return "one of lightning_hooks" if ours else str(name)


_MODULES: dict[str, Mapping[str, Any]] = {
    "pkg_resources": {name: getattr(old_resources, name) for name in old_resources.__all__},
    "torch._six": {
        "PY3": True,
        "PY37": True,
        "container_abcs": collections.abc,
        "inf": math.inf,
        "int_classes": int,
        "nan": math.nan,
        "string_classes": (str, bytes),
    },
}


class _Dropped(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: it is asked for a module that is not installed."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a dropped module."""
        if fullname not in _MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, origin="lightning_hooks")

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """Leave the making of an empty module to Python."""

    def exec_module(self, module: types.ModuleType) -> None:
        """Fill the module."""
        vars(module).update(_MODULES[module.__name__])
        names = " ".join(_MODULES[module.__name__])
        notice(f"{module.__name__} is no longer there: a module with {names} takes its place")


def offer_modules() -> None:
    """Let dropped modules be imported, unless they are installed."""
    if not any(isinstance(finder, _Dropped) for finder in sys.meta_path):
        sys.meta_path.append(_Dropped())
