"""mmcv's checks for tests; each function returns a bool."""

from __future__ import annotations

import runpy
import shlex
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.nn import GroupNorm, LayerNorm
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

__all__ = [
    "assert_attrs_equal",
    "assert_dict_contains_subset",
    "assert_dict_has_keys",
    "assert_is_norm_layer",
    "assert_keys_equal",
    "assert_params_all_zeros",
    "check_python_script",
]


def _same(first: Any, second: Any) -> bool:
    equal = first == second
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


def assert_dict_contains_subset(
    dict_obj: Mapping[Any, Any], expected_subset: Mapping[Any, Any]
) -> bool:
    """Return whether a dict has all expected items."""
    return all(k in dict_obj and _same(dict_obj[k], v) for k, v in expected_subset.items())


def assert_attrs_equal(obj: Any, expected_attrs: Mapping[str, Any]) -> bool:
    """Return whether an object has all expected attributes."""
    return all(hasattr(obj, k) and _same(getattr(obj, k), v) for k, v in expected_attrs.items())


def assert_dict_has_keys(obj: Mapping[str, Any], expected_keys: Iterable[str]) -> bool:
    """Return whether a dict has all expected keys."""
    return set(expected_keys) <= obj.keys()


def assert_keys_equal(result_keys: Iterable[str], target_keys: Iterable[str]) -> bool:
    """Return whether two lists have the same items, in any order."""
    return set(result_keys) == set(target_keys)


def assert_is_norm_layer(module: torch.nn.Module) -> bool:
    """Return whether a layer normalizes."""
    return isinstance(module, (_BatchNorm, _InstanceNorm, GroupNorm, LayerNorm))


def assert_params_all_zeros(module: Any) -> bool:
    """Return whether weight and bias are zero."""
    parameters = (module.weight, getattr(module, "bias", None))
    return all(bool((p == 0).all()) for p in parameters if p is not None)


def check_python_script(cmd: str) -> None:
    """Run a command, such as ``python script.py --option``, within the process."""
    arguments = shlex.split(cmd)
    arguments = arguments[1:] if arguments[0] == "python" else arguments
    before = sys.argv
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before
