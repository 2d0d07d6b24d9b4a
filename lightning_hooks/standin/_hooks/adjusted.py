"""Native hooks with mmcv's exceptions, clock and range of momenta; two functions of mmcv."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import lightning_hooks
from lightning_hooks.standin.name_table import OFFERED
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "IterTimerHook",
    "MomentumUpdaterHook",
    "asserting",
    "format_param",
    "get_position_from_periods",
    "only_if",
    "under_mmcv",
]

Class = TypeVar("Class", bound=type)


class ArgumentError(AssertionError, ValueError, TypeError):
    """A wrong argument: mmcv raises AssertionError, native hooks raise ValueError or TypeError.

    >>> issubclass(ArgumentError, AssertionError) and issubclass(ArgumentError, ValueError)
    True
    """


def asserting(cls: Class) -> Class:
    """Decorate a class whose constructor raises :class:`ArgumentError` for wrong arguments."""
    init = cls.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except KeyError:  # an unknown name is a KeyError in mmcv, too
            raise
        except (TypeError, ValueError) as error:
            raise ArgumentError(*error.args) from error

    cls.__init__ = construct  # type: ignore[misc]
    return cls


def only_if(
    applies: Callable[[Any, Any], bool],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a hook's method; where a condition fails, the inherited method is called instead.

    Args:
        applies: The condition: a function of the hook and the method's first argument.
    """

    def decorator(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(hook: Any, first: Any, *args: Any) -> Any:
            if applies(hook, first):
                return method(hook, first, *args)
            bases = reversed(type(hook).__mro__)
            owner = next(cls for cls in bases if vars(cls).get(method.__name__) is call)
            return getattr(super(owner, hook), method.__name__)(first, *args)

        return call

    return decorator


under_mmcv = only_if(lambda hook, runner: runner.loops_itself)
"""Decorate a method for the stand-in's runners; in a Trainer the inherited method is called."""


class IterTimerHook(lightning_hooks.IterTimerHook):
    """The native hook with ``time.time`` as clock: old subclasses compare ``t`` with the time."""

    _clock = staticmethod(time.time)


class MomentumUpdaterHook(lightning_hooks.MomentumUpdaterHook):
    """The native hook, but a momentum of 1 or more is a warning: mmcv's warm-up reaches it."""

    def _is_valid(self, value: Any) -> bool:
        """Return whether a momentum is a finite number; warn of a momentum outside [0, 1)."""
        if super()._is_valid(value):
            return True
        if not (isinstance(value, (int, float)) and math.isfinite(value)):
            return False
        rank_zero_warn(f"{type(self).__name__} sets momenta outside of [0, 1)")
        return True


def __getattr__(name: str) -> Any:
    """Return a subclass of a native hook with mmcv's exceptions, made by the first access.

    The subclass also inherits from the classes of this module for the native hook's bases.
    """
    native = getattr(lightning_hooks, name)
    sources = [OFFERED.get(base.__name__) for base in native.__mro__[1:]]
    bases = [source.load() for source in sources if source and source.module == __name__]
    cls = type(name, (native, *bases), {"__doc__": native.__doc__})
    return globals().setdefault(name, asserting(cls))


def get_position_from_periods(iteration: int, cumulative_periods: Sequence[int]) -> int:
    """Return the index of the period that contains an iteration.

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
    """Return a setting for each parameter group.

    Args:
        name: The optimizer's name, looked up if ``param`` is a dict.
        optim: The optimizer.
        param: A number for all groups, a list, or a dict by optimizer.
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
