"""The base class of detectron2's and cvpods' hooks, and the rule of their periods."""

from __future__ import annotations

from typing import Any

__all__ = ["HookBase", "is_due"]


class HookBase:
    """A hook in a loop of steps; its four points do nothing."""

    trainer: Any = None

    def before_train(self) -> None:
        """Before the first iteration."""

    def after_train(self) -> None:
        """After the last iteration, also when training has raised."""

    def before_step(self) -> None:
        """Before each iteration."""

    def after_step(self) -> None:
        """After each iteration; ``trainer.iter`` does not count it yet."""


def is_due(iteration: int, period: int, max_iter: int | None) -> bool:
    """Return whether an iteration ends a period, or is the last one.

    Args:
        iteration: Number of the iteration, from 0.
        period: Number of iterations; 0 for the last one only.
        max_iter: Number of iterations of the run, if it is known.

    >>> [is_due(i, 3, 5) for i in range(5)], is_due(4, 0, 5)
    ([False, False, True, False, True], True)
    """
    ends_period = period > 0 and (iteration + 1) % period == 0
    return ends_period or (max_iter is not None and iteration == max_iter - 1)
