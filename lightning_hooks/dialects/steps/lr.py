"""The learning rate hook of detectron2 and cvpods: it steps a scheduler and tells the rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["LRScheduler", "reported_group"]


def reported_group(optimizer: torch.optim.Optimizer) -> int:
    """Return which parameter group's learning rate is to stand for all.

    It is the first of the groups with most parameters; where each has a single one, the first
    with the most common learning rate.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if max(sizes) > 1:
        return sizes.index(max(sizes))
    rates = [group["lr"] for group in optimizer.param_groups]
    return rates.index(Counter(rates).most_common(1)[0][0])


class LRScheduler:
    """Steps a learning rate scheduler after every iteration, and stores ``lr``.

    The rate stored is the one that the iteration had, of the group that :func:`reported_group`
    picks.

    Args:
        optimizer: The Trainer's by default.
        scheduler: A scheduler of torch, or a function of the run's progress in [0, 1] that
            returns the factor of the initial rate (as fvcore's ``ParamScheduler``). Without one,
            the rate of the Trainer's own scheduler is stored, which Lightning steps.

    Raises:
        TypeError: if ``scheduler`` is neither.
        ValueError: at the start of a run, if it belongs to an optimizer that is not trained.
    """

    trainer: Any

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        if not (scheduler is None or hasattr(scheduler, "step") or callable(scheduler)):
            raise TypeError(f"scheduler must have step() or be a function, got {scheduler!r}")
        self._given = optimizer
        self._optimizer = optimizer
        self._schedule = None if hasattr(scheduler, "step") else scheduler
        self._scheduler: Any = scheduler if self._schedule is None else None

    @property
    def scheduler(self) -> Any:
        """The scheduler."""
        return self.trainer.scheduler if self._scheduler is None else self._scheduler

    @staticmethod
    def get_best_param_group_id(optimizer: Any) -> int:
        """Which group's rate is stored."""
        return reported_group(optimizer)

    def before_train(self) -> None:
        """Take from the Trainer what was not given."""
        trained = self.trainer.optimizer
        self._optimizer = trained if self._given is None else self._given
        if self._schedule is not None:
            schedule = _OfProgress(self._schedule, self.trainer.max_iter)
            self._scheduler = torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, schedule, last_epoch=self.trainer.iter - 1
            )
        ours = getattr(self._scheduler, "optimizer", self._optimizer)
        many = trained.values() if isinstance(trained, Mapping) else [trained]
        if not any(ours.param_groups is one.param_groups for one in many):
            raise ValueError(
                "LRScheduler's optimizer is not the one that is trained: "
                "let configure_optimizers() return the very object"
            )
        self._group = reported_group(self._optimizer)

    def before_step(self) -> None:
        """Note the rate: at the end of an epoch Lightning sets the next before ``after_step``."""
        self._rate = self._optimizer.param_groups[self._group]["lr"]

    def after_step(self) -> None:
        """Store this iteration's rate, and set the next one's."""
        if self._scheduler is not None:
            self._rate = self._optimizer.param_groups[self._group]["lr"]
            self._scheduler.step()
        self.trainer.storage.put_scalar("lr", self._rate, smoothing_hint=False)

    def state_dict(self) -> dict[str, Any]:
        """The scheduler's state, if it has one that Lightning does not save."""
        if hasattr(self._scheduler, "state_dict"):
            return dict(self._scheduler.state_dict())
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Give the scheduler its state back."""
        if hasattr(self._scheduler, "load_state_dict"):
            self._scheduler.load_state_dict(state_dict)


class _OfProgress:
    """A factor by iteration, from a function of the run's progress."""

    def __init__(self, schedule: Callable[[float], float], max_iter: int | None) -> None:
        if max_iter is None:
            raise ValueError("a schedule over the run's progress needs a run with a known end")
        self.schedule, self.max_iter = schedule, max_iter

    def __call__(self, iteration: int) -> float:
        return self.schedule(iteration / self.max_iter)
