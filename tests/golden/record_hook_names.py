"""Record the names of mmcv's hooks: class attributes, and attributes set by methods."""

import ast
import inspect
import textwrap
from typing import Any

import oracle


def set_on_self(cls: type) -> set[str]:
    """Return the attributes assigned to ``self`` in a class's methods."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    stores = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return {
        node.attr
        for node in stores
        if isinstance(node.ctx, ast.Store) and getattr(node.value, "id", "") == "self"
    }


def names(cls: type) -> list[str]:
    """Return the public names of a hook, methods of all hooks left out."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith("mmcv")]
    known = {name for base in bases for name in {*vars(base), *set_on_self(base)}}
    return sorted(name for name in known - {*vars(oracle.Hook)} if not name.startswith("_"))


def record() -> dict[str, Any]:
    """Record the names of every hook."""
    hooks = {
        name: value
        for name, value in vars(oracle.mmcv_runner).items()
        if inspect.isclass(value) and issubclass(value, oracle.Hook)
    }
    hooks |= oracle.HOOKS.module_dict
    return {"cases": {name: names(hooks[name]) for name in sorted(hooks)}}
