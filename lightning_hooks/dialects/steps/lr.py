"""``LRScheduler`` of detectron2 and cvpods: it steps a scheduler and stores the learning rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch

__all__ = ["LRScheduler", "reported_group"]


def reported_group(optimizer: torch.optim.Optimizer) -> int:
    """Return the index of the parameter group whose learning rate is stored.

    It is the first of the groups with most parameters; if each has a single one, the first with
    the most common learning rate.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    if max(sizes) > 1:
        return sizes.index(max(sizes))
    rates = [group["lr"] for group in optimizer.param_groups]
    return rates.index(Counter(rates).most_common(1)[0][0])


class LRScheduler:
    """Steps a learning rate scheduler after every iteration, and stores ``lr``.

    The stored rate is the one used in the iteration, of the group of :func:`reported_group`.

    Args:
        optimizer: The optimizer; the Trainer's by default.
        scheduler: Scheduler of torch, or function of the run's progress in [0, 1] that returns
            the factor of the initial rate (as fvcore's ``ParamScheduler``). Without one, the rate
            set by the Trainer's own scheduler is stored, which Lightning steps.

    Raises:
        TypeError: if ``scheduler`` is neither.
        ValueError: at the start of a run, if the optimizer is not the trained one.
    """

    trainer: Any

    def __init__(self, optimizer: Any = None, scheduler: Any = None) -> None:
        if not (scheduler is None or hasattr(scheduler, "step") or callable(scheduler)):
            raise TypeError(f"scheduler must have step() or be a function, got {scheduler!r}")
        self._own_optimizer = optimizer
        self._optimizer = optimizer
        self._schedule = None if hasattr(scheduler, "step") else scheduler
        self._scheduler: Any = scheduler if self._schedule is None else None

    @property
    def scheduler(self) -> Any:
        """The scheduler."""
        return self.trainer.scheduler if self._scheduler is None else self._scheduler

    @staticmethod
    def get_best_param_group_id(optimizer: Any) -> int:
        """Return the index of the group whose rate is stored."""
        return reported_group(optimizer)

    def before_train(self) -> None:
        """Use the Trainer's optimizer unless one was given, and check that it is trained."""
        trained = self.trainer.optimizer
        self._optimizer = trained if self._own_optimizer is None else self._own_optimizer
        if self._schedule is not None:
            schedule = _ProgressFactor(self._schedule, self.trainer.max_iter)
            self._scheduler = torch.optim.lr_scheduler.LambdaLR(
                self._optimizer, schedule, last_epoch=self.trainer.iter - 1
            )
        own = getattr(self._scheduler, "optimizer", self._optimizer)
        optimizers = trained.values() if isinstance(trained, Mapping) else [trained]
        if not any(own.param_groups is one.param_groups for one in optimizers):
            raise ValueError(
                "LRScheduler's optimizer is not the one that is trained: "
                "let configure_optimizers() return this object"
            )
        self._group = reported_group(self._optimizer)

    def before_step(self) -> None:
        """Read the rate: at the end of an epoch Lightning sets the next before ``after_step``."""
        self._rate = self._optimizer.param_groups[self._group]["lr"]

    def after_step(self) -> None:
        """Store the rate of this iteration, and set that of the next."""
        if self._scheduler is not None:
            self._rate = self._optimizer.param_groups[self._group]["lr"]
            self._scheduler.step()
        self.trainer.storage.put_scalar("lr", self._rate, smoothing_hint=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the hook's own scheduler; Lightning saves that of the Trainer."""
        if hasattr(self._scheduler, "state_dict"):
            return dict(self._scheduler.state_dict())
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the scheduler."""
        if hasattr(self._scheduler, "load_state_dict"):
            self._scheduler.load_state_dict(state_dict)


class _ProgressFactor:
    """The factor of an iteration, by a function of the run's progress."""

    def __init__(self, schedule: Callable[[float], float], max_iter: int | None) -> None:
        if max_iter is None:
            raise ValueError("a schedule over the run's progress needs a run with a known end")
        self.schedule, self.max_iter = schedule, max_iter

    def __call__(self, iteration: int) -> float:
        return self.schedule(iteration / self.max_iter)
