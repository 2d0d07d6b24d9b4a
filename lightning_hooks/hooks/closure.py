"""``ClosureHook``: call a function at a point."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.points import POINTS
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["ClosureHook"]


@HOOKS.register_module()
class ClosureHook(Hook):
    """Calls ``fn(runner)`` at a point.

    Args:
        fn_name: A point, or a generic point: ``before_epoch``, ``after_epoch``, ``before_iter``,
            ``after_iter``.
        fn: The function, called with the runner.

    Raises:
        UnknownNameError: for an unknown point.
        TypeError: if ``fn`` cannot be called.

    Source: mmcv's ``ClosureHook``.

    Note:
        Departures from mmcv: only points are accepted as ``fn_name``; mmcv accepts any method of
        the class, such as ``every_n_iters``. The table of hooks has the point.

    >>> ClosureHook("after_run", print).get_triggered_stages()
    ['after_run']
    """

    _runs_user_code = True
    """Whether the hook calls a function of the user."""

    def __init__(self, fn_name: str, fn: Callable[[Any], Any]) -> None:
        super().__init__()
        if not isinstance(fn_name, str):
            raise TypeError(f"fn_name must be a str, got {shown(fn_name)}")
        if fn_name not in POINTS:
            raise UnknownNameError(
                f"fn_name {fn_name!r} is not a point; {suggest(fn_name, POINTS)}"
            )
        if not callable(fn):
            raise TypeError(f"fn must be a function of the runner, got {shown(fn)}")
        setattr(self, fn_name, fn)
