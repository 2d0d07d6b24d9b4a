"""A run as cvpods' hooks see it, and its event storages of two generations."""

from __future__ import annotations

import math
from typing import Any

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.steps import storage
from lightning_hooks.dialects.steps.facade import TrainerFacade
from lightning_hooks.dialects.steps.storage.library import gives_iterations

__all__ = ["EventStorage", "MasterEventStorage", "MasterRunnerFacade", "RunnerFacade"]

_TOO_LONG = 100
"""The iterations without a step of the optimizer after which a warning names the hooks."""


class EventStorage(storage.EventStorage):
    """The scalars, images and histograms of a run."""


class MasterEventStorage(EventStorage):
    """The storage of cvpods' main branch: values come with their iterations."""

    def latest(self) -> dict[str, tuple[float, int]]:
        """Return the last value of every scalar, with its iteration."""
        return self.latest_values()

    def latest_with_smoothing_hint(self, window_size: int = 20) -> dict[str, tuple[float, int]]:
        """Return the same, with the median of a window for scalars that should be smoothed."""
        return self.latest_values(window_size)


class RunnerFacade(TrainerFacade):
    """cvpods' runner, which hooks have as ``self.trainer``.

    ``inner_iter`` counts the iterations since the optimizer's last step. It begins again from 0
    before a step also where it has reached the ``accumulate_grad_steps`` of a hook, as cvpods' own
    does in every iteration: a hook compares the two for equality.
    """

    storage_class: type[EventStorage] = EventStorage
    packages = ("cvpods", "cvpack2")

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._first_count = self._count = self._count_steps()
        self._last_step = self.iter
        self._has_warned = False

    def new_storage(self, start_iter: int) -> storage.EventStorage:
        """Make the storage of the generation that is loaded, else the dialect's."""
        is_master = any(map(gives_iterations, self._library))
        return (MasterEventStorage if is_master else self.storage_class)(start_iter)

    def _count_steps(self) -> int:
        return int(self._runner.optimizer_steps)

    def at_before_train_iter(self) -> None:
        """Count ``inner_iter`` from 0 again after a step of the optimizer."""
        super().at_before_train_iter()
        count = self._count_steps()
        if count != self._count:
            self._count, self._last_step, self.inner_iter = count, self.iter, 0
            return
        if self.iter - self._last_step >= _TOO_LONG:
            self._warn_of_no_step()
        if self.inner_iter >= self._window():
            self.inner_iter = 0

    def _window(self) -> float:
        """Return the number of iterations of one step, where a hook declares it."""
        hooks = [hosted.foreign_hook for hosted in self.hosted_hooks()]
        declared = [getattr(hook, "accumulate_grad_steps", None) for hook in hooks]
        return min((one for one in declared if isinstance(one, int)), default=math.inf)

    def report(self) -> None:
        """Warn also of a run in which the hooks should have stepped the optimizer, and have not."""
        super().report()
        if self._count_steps() == self._first_count and self.iter > self.start_iter:
            self._warn_of_no_step()

    def _warn_of_no_step(self) -> None:
        if self._has_warned or not self._runner.hooks_step:
            return
        self._has_warned = True
        self._runner.logger.warning(
            "%s.after_step: the optimizer has not been stepped in %d iterations, so nothing was "
            "trained; there trainer.inner_iter is %d",
            self._stepping_hooks("after_step"),
            self.iter - self._last_step,
            self.inner_iter,
        )

    def _stepping_hooks(self, point: str) -> str:
        """Return the names of the hooks that step the optimizer, or that have a point."""
        owners = [hosted for hosted in self.hosted_hooks() if hosted.owns_backward(None)]
        named = owners or [one for one in self.hosted_hooks() if one.implements(point)]
        return ", ".join(type(hosted.foreign_hook).__name__ for hosted in named)


class MasterRunnerFacade(RunnerFacade):
    """The runner of cvpods' main branch."""

    storage_class = MasterEventStorage
