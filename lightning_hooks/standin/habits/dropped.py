"""Names and modules that Python, numpy and torch have dropped, with what has taken their place."""

from __future__ import annotations

import collections.abc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.standin.habits import old_resources
from lightning_hooks.standin.utils.notice import notice

__all__ = ["offer_modules", "offer_names"]

_NUMPY = (
    "int=builtins.int float=builtins.float complex=builtins.complex object=builtins.object "
    "str=builtins.str unicode=builtins.str bool=builtins.bool long=builtins.int "
    "bool8=bool_ int0=intp uint0=uintp float_=float64 complex_=complex128 cfloat=complex128 "
    "singlecomplex=complex64 longcomplex=clongdouble longfloat=longdouble string_=bytes_ "
    "unicode_=str_ object0=object_ str0=str_ bytes0=bytes_ void0=void Inf=inf Infinity=inf "
    "infty=inf PINF=inf NaN=nan product=prod cumproduct=cumprod sometrue=any alltrue=all "
    "round_=round row_stack=vstack trapz=trapezoid"
)
"""Names of numpy 1 and those of today."""


def _numpy() -> dict[str, Any]:
    import numpy

    found = {
        "NINF": -numpy.inf,
        "asfarray": lambda a, dtype="float64": numpy.asarray(a, dtype),
        "in1d": lambda a, b, **options: numpy.isin(numpy.ravel(a), b, **options),
    }
    for entry in _NUMPY.split():
        old, _, new = entry.partition("=")
        builtin = new.startswith("builtins.")
        home = importlib.import_module("builtins") if builtin else numpy
        found[old] = getattr(home, new.removeprefix("builtins."), None)
    return found


_ArgSpec = collections.namedtuple("_ArgSpec", "args varargs keywords defaults")


def _getargspec(function: Callable[..., Any]) -> Any:
    spec = inspect.getfullargspec(function)
    return _ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def offer_names() -> None:
    """Give numpy, ``collections`` and ``inspect`` their dropped names."""
    abstract = {name: getattr(collections.abc, name) for name in collections.abc.__all__}
    _offer(importlib.import_module("numpy"), _numpy())
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
            today = getattr(found, "__name__", found)
            notice(f"{module.__name__}.{name} is no longer there: {today} takes its place")
            return found
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    lookup.has_dropped_names = True  # type: ignore[attr-defined]
    module.__getattr__ = lookup


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
