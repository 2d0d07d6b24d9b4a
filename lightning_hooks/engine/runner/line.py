"""``Line``: the values that a logger writes at once, with their place in the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.utils.arguments import shown

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["Line", "has_rates", "in_fit"]


def in_fit(runner: Runner) -> bool:
    """Whether a fit is in progress, not a test or validation alone."""
    return bool(runner.trainer.state.fn == TrainerFn.FITTING)


def has_rates(runner: Runner) -> bool:
    """Whether a line has the rates of a step: in a fit, but not with values of a whole epoch."""
    return runner.mode != "train_epoch" and in_fit(runner)


@dataclasses.dataclass(frozen=True)
class Line:
    """The values that a logger writes at once, with their place in the run.

    Args:
        mode: ``"train"`` if values are averages of steps, else ``"val"``; or ``"test"``.
        epoch: The number of the epoch, from 1; outside of a fit the number of epochs done.
        iter: The number of the iteration, from 1, in the epoch or, for a logger by iteration, in
            the run. For a validation at the end of an epoch, as in mmcv, the number of batches; a
            validation within an epoch has the last training iteration.
        step: The number of the iteration in the run, from 1; for a validation at the end of an
            epoch, as in mmcv, the next iteration's.
        averages: The averages of steps, or of a validation, by name.
        results: The results of other hooks by name.
        rates: ``learning_rate`` and ``momentum`` of the iteration's step; with several optimizers
            ``learning_rate/generator`` ...; empty where the line has no step.
        is_given: Whether the values are those of a Lightning ``Logger``, with final names.
    """

    mode: str
    epoch: int
    iter: int
    step: int
    averages: Mapping[str, Any]
    results: Mapping[str, Any]
    rates: Mapping[str, float]
    is_given: bool = False

    @classmethod
    def of(
        cls,
        runner: Runner,
        averages: Mapping[str, Any],
        results: Mapping[str, Any],
        *,
        by_epoch: bool,
        ended: bool = False,
    ) -> Line:
        """Return a line at the present place of a run.

        Args:
            runner: The runner.
            averages: The averages of steps, or of a validation.
            results: The results of other hooks.
            by_epoch: Whether the logger counts iterations in the epoch.
            ended: Whether the line ends an epoch, or run, whose last iteration is counted by now.

        Raises:
            ValueError: for an unknown ``runner.mode``.
        """
        # a fit that has just begun, or that ends the epoch of its file, has no mode
        has_step, mode = has_rates(runner), "train" if ended else runner.mode or "train_epoch"
        if mode not in ("train", "val", "train_epoch", "test"):
            raise ValueError(f'runner.mode must be "train" or "val", got {shown(runner.mode)}')
        is_step = mode == "train"
        within = not is_step and runner.validates_within_epochs(by_epoch)
        step = runner.iter + (not within) - ended
        if not by_epoch:
            inner = step
        elif within or mode == "train_epoch":
            inner = max(progress.batches_done(runner.trainer), 1)
        else:
            inner = runner.inner_iter + 1
        is_train = averages or not results  # old hooks ask before a line and expect "train"
        return cls(
            mode=mode if mode in ("val", "test") else "train" if is_train else "val",
            epoch=runner.epoch + 1 if is_step else runner.evaluated_epoch,
            iter=inner,
            step=step,
            averages=averages,
            results=results,
            rates=runner.step_rates.tags() if has_step else {},
        )

    @property
    def lr(self) -> float | dict[str, float] | None:
        """The learning rate, or a dict by the optimizers' names; None without a step.

        >>> Line("train", 1, 4, 4, {}, {}, {"learning_rate": 0.1, "momentum": 0.9}).lr
        0.1
        >>> Line("train", 1, 4, 4, {}, {}, {"learning_rate/a": 0.1, "learning_rate/b": 0.2}).lr
        {'a': 0.1, 'b': 0.2}
        """
        rates = {
            name.partition("/")[2]: value
            for name, value in self.rates.items()
            if name.startswith("learning_rate")
        }
        return rates.get("", rates or None)
