"""Give old scripts the names dropped by numpy, Python and torch since mmcv's time.

``python -m lightning_hooks.standin`` calls :func:`offer`. The first use of a name logs a line.
"""

from __future__ import annotations

import builtins
import collections.abc
import functools
import importlib.metadata
import importlib.util
import inspect
import math
import os
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy
import torch

from lightning_hooks.standin.utils.notice import notice
from lightning_hooks.utils.origin import is_ours

__all__ = ["offer"]

_RENAMED = (
    "bool8=bool_ int0=intp uint0=uintp float_=float64 complex_=complex128 cfloat=complex128 "
    "string_=bytes_ unicode_=str_ object0=object_ Inf=inf Infinity=inf infty=inf PINF=inf "
    "NaN=nan NAN=nan product=prod cumproduct=cumprod sometrue=any alltrue=all round_=round "
    "row_stack=vstack trapz=trapezoid mat=asmatrix"
)
"""Names of numpy 1, with their names in numpy 2."""

_SCTYPES = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    "complex": [numpy.complex64, numpy.complex128, numpy.clongdouble],
    "others": [bool, object, bytes, str, numpy.void],
}

_ArgSpec = collections.namedtuple("_ArgSpec", "args varargs keywords defaults")


def offer() -> None:
    """Offer the dropped names in this process; a second call changes nothing."""
    _offer_names(numpy, _names_of_numpy())
    _offer_names(collections, vars(collections.abc))
    _offer_names(inspect, {"getargspec": _getargspec})
    _offer_module("pkg_resources", _names_of_pkg_resources())
    _offer_module("torch._six", _NAMES_OF_SIX)
    _offer_old_files()


def _offer_names(module: Any, dropped: Mapping[str, Any]) -> None:
    """Give a module a ``__getattr__`` for dropped names."""
    before = vars(module).get("__getattr__")
    if getattr(before, "has_dropped_names", False):
        return

    def lookup(name: str) -> Any:
        value = None if name.startswith("_") else dropped.get(name)
        if value is not None:
            notice(f"{module.__name__}.{name} is no longer there: {_title(value)} takes its place")
            return value
        if before is not None:
            return before(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

    lookup.has_dropped_names = True  # type: ignore[attr-defined]
    module.__getattr__ = lookup


def _offer_module(name: str, dropped: Mapping[str, Any]) -> None:
    """Make a dropped module importable, unless an installed package has the module."""
    if name in sys.modules or importlib.util.find_spec(name) is not None:
        return
    sys.modules[name] = module = types.ModuleType(name)
    _offer_names(module, dropped)
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)


def _title(value: Any) -> str:
    """Return the name of a replacement for the log."""
    if isinstance(value, float):
        return repr(value)
    name = getattr(value, "__name__", None)
    return "a replacement of lightning_hooks" if name is None or is_ours(value) else str(name)


def _names_of_numpy() -> dict[str, Any]:
    """Return numpy's dropped names with their replacements; None where numpy has none."""
    python = ("int", "float", "complex", "object", "str", "bool")
    renamed = (entry.split("=") for entry in _RENAMED.split())
    return {
        **{name: getattr(builtins, name) for name in python},
        **{old: getattr(numpy, new, None) for old, new in renamed},
        "NINF": -numpy.inf,
        "asfarray": functools.partial(numpy.asarray, dtype=float),
        "in1d": lambda values, *among, **options: numpy.isin(
            numpy.ravel(values), *among, **options
        ),
        "long": int,
        "math": math,
        "sctypes": _SCTYPES,
        "unicode": str,
    }


def _getargspec(function: Callable[..., Any]) -> Any:
    spec = inspect.getfullargspec(function)
    return _ArgSpec(spec.args, spec.varargs, spec.varkw, spec.defaults)


def _names_of_pkg_resources() -> dict[str, Any]:
    """Return the names of ``pkg_resources`` for versions; setuptools 82 dropped the module."""
    from packaging.version import parse

    def get_distribution(name: str) -> Any:
        version = importlib.metadata.version(name)
        return types.SimpleNamespace(project_name=name, key=name.lower(), version=version)

    return {
        "DistributionNotFound": importlib.metadata.PackageNotFoundError,
        "get_distribution": get_distribution,
        "parse_version": parse,
    }


_NAMES_OF_SIX = {
    "PY3": True,
    "PY37": True,
    "container_abcs": collections.abc,
    "inf": math.inf,
    "int_classes": int,
    "nan": math.nan,
    "string_classes": (str, bytes),
}


def _offer_old_files() -> None:
    """Let ``torch.load`` read files with objects other than tensors, as before torch 2.6.

    Calls with ``weights_only`` are left to torch, and so are files of weights alone.
    ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` keeps torch's refusal.
    """
    original: Any = torch.load
    if getattr(original, "reads_old_files", False):
        return

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        forced = os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower()
        if kwargs.get("weights_only") is not None or forced in ("1", "y", "yes", "true"):
            return original(f, *args, **kwargs)
        start = f.tell() if hasattr(f, "tell") else None
        try:
            return original(f, *args, **kwargs)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if "weights_only" not in str(error):
                raise
        name = getattr(f, "name", f) if start is not None else os.fspath(f)
        notice(
            f"{name} holds more than weights: it is read as before torch 2.6, which can run code "
            "in it; TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 refuses it"
        )
        if start is not None:
            f.seek(start)
        return original(f, *args, **{**kwargs, "weights_only": False})

    load.reads_old_files = True  # type: ignore[attr-defined]
    torch.load = load
