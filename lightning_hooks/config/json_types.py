"""The JSON Schema of a type annotation."""

from __future__ import annotations

import collections.abc
import os
import pathlib
import types
import typing
from typing import Any

__all__ = ["json_type"]

SIMPLE: dict[Any, str] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    pathlib.Path: "string",
    os.PathLike: "string",
    type(None): "null",
}
LISTS = (list, tuple, set, collections.abc.Sequence, collections.abc.Iterable)
OBJECTS = (dict, collections.abc.Mapping)


def json_type(annotation: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type; an empty one, which allows all, for an object of Python's.

    >>> json_type(float), json_type(list[int])
    ({'type': 'number'}, {'type': 'array', 'items': {'type': 'integer'}})
    >>> json_type(str | None)
    {'anyOf': [{'type': 'string'}, {'type': 'null'}]}
    >>> json_type(tuple[str, int])["items"]
    [{'type': 'string'}, {'type': 'integer'}]
    >>> json_type(collections.abc.Callable[[str], object] | None)
    {}
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    kind = origin or annotation
    if kind is typing.Literal:
        return {"enum": [*arguments]}
    if kind in (typing.Union, types.UnionType):
        options = [json_type(one) for one in arguments]
        return {} if {} in options else {"anyOf": options}
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if kind in OBJECTS:
        return {"type": "object"}
    if kind not in LISTS:
        return {}
    if kind is tuple and arguments and arguments[-1] is not Ellipsis:
        places = [json_type(one) for one in arguments]
        return {"type": "array", "items": places, "minItems": len(places), "maxItems": len(places)}
    return {"type": "array", **({"items": json_type(arguments[0])} if arguments else {})}
