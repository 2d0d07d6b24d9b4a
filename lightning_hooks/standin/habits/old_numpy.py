"""Provide the names that numpy 2 has dropped: today's names, and functions where there is none."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Sequence
from typing import Any

import numpy

__all__ = ["dropped_names"]

_ALIASES = (
    "bool8=bool_ int0=intp uint0=uintp float_=float64 complex_=complex128 cfloat=complex128 "
    "singlecomplex=complex64 longcomplex=clongdouble longfloat=longdouble clongfloat=clongdouble "
    "string_=bytes_ unicode_=str_ object0=object_ str0=str_ bytes0=bytes_ void0=void "
    "Inf=inf Infinity=inf infty=inf PINF=inf NaN=nan NAN=nan typeDict=sctypeDict "
    "product=prod cumproduct=cumprod sometrue=any alltrue=all round_=round row_stack=vstack "
    "trapz=trapezoid rank=ndim mat=asmatrix"
)
"""Names of numpy 1 and those of today."""

sctypes: dict[str, list[type]] = {
    "int": [numpy.int8, numpy.int16, numpy.int32, numpy.int64],
    "uint": [numpy.uint8, numpy.uint16, numpy.uint32, numpy.uint64],
    "float": [numpy.float16, numpy.float32, numpy.float64, numpy.longdouble],
    "complex": [numpy.complex64, numpy.complex128, numpy.clongdouble],
    "others": [bool, object, bytes, str, numpy.void],
}


def asfarray(a: Any, dtype: Any = numpy.float64) -> Any:
    """Return an array of floats."""
    inexact = numpy.issubdtype(numpy.dtype(dtype), numpy.inexact)
    return numpy.asarray(a, dtype if inexact else numpy.float64)


def asscalar(a: Any) -> Any:
    """Return the one element of an array."""
    return a.item()


def in1d(ar1: Any, ar2: Any, **options: Any) -> Any:
    """Return which elements of the one, made flat, are in the other."""
    return numpy.isin(numpy.ravel(ar1), ar2, **options)


def msort(a: Any) -> Any:
    """Return a copy, sorted along the first axis."""
    return numpy.sort(a, axis=0)


def obj2sctype(rep: Any, default: Any = None) -> Any:
    """Return the scalar type of an array, a type or its name; the default for others."""
    try:
        return numpy.dtype(rep.dtype if isinstance(rep, numpy.ndarray) else rep).type
    except TypeError:
        return default


def find_common_type(array_types: Sequence[Any], scalar_types: Sequence[Any]) -> Any:
    """Return the type of arrays and scalars, which count where they are of a higher kind."""
    arrays = numpy.result_type(*array_types) if array_types else None
    scalars = numpy.result_type(*scalar_types) if scalar_types else arrays
    if arrays is None or scalars is None:
        return scalars
    kinds = "buifc"
    return scalars if kinds.find(scalars.kind) > kinds.find(arrays.kind) else arrays


def dropped_names() -> dict[str, Any]:
    """Return the dropped names and what takes their place; None where this numpy has nothing."""
    python = ("int", "float", "complex", "object", "str", "bool")
    old, new = zip(*(entry.split("=") for entry in _ALIASES.split()), strict=True)
    functions = (asfarray, asscalar, find_common_type, in1d, msort, obj2sctype)
    return {
        **{name: getattr(builtins, name) for name in python},
        **{name: getattr(numpy, today, None) for name, today in zip(old, new, strict=True)},
        **{function.__name__: function for function in functions},
        "NINF": -numpy.inf,
        "NZERO": -0.0,
        "PZERO": 0.0,
        "long": int,
        "math": math,
        "safe_eval": ast.literal_eval,
        "sctypes": sctypes,
        "unicode": str,
    }
