"""Two helpers of mmcv's schedules that old subclasses import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["format_param", "get_position_from_periods"]


def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """Return the number of the period that an iteration is in, by where the periods end.

    >>> get_position_from_periods(40, [40, 60, 80])
    1
    """
    for index, end in enumerate(cumulative_periods):
        if iteration < end:
            return index
    raise ValueError(
        f"Current iteration {iteration} exceeds cumulative_periods {cumulative_periods}"
    )


def format_param(name: str, optim: Any, param: Any) -> Any:
    """Return a setting of each parameter group: a number for all, a list, or an optimizer's own.

    Args:
        name: The optimizer's name, where ``param`` is a dict for several.
        optim: The optimizer.
        param: The setting.
    """
    if isinstance(param, (int, float)):
        return [param] * len(optim.param_groups)
    if isinstance(param, (list, tuple)):
        if len(param) != len(optim.param_groups):
            raise ValueError(
                f"expected {len(optim.param_groups)} values for {name}, got {len(param)}"
            )
        return param
    if not (isinstance(param, Mapping) and name in param):
        raise KeyError(f"there is no value for {name} in {param}")
    return param[name]
