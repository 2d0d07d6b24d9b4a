"""The learning rates and momenta of a run's optimizers, now and at the last step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.utils.plain_types import plain

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["Rates", "StepRates", "by_optimizer", "moved_values", "number_in", "rates", "with_modes"]

_RATES = ("lr", "momentum", "betas")

Rates: TypeAlias = list[float] | dict[str, list[float]]
"""A value for each parameter group; for several optimizers by the optimizer's name."""


def by_optimizer(function: Callable[[Any], Any], optimizer: Any) -> Any:
    """Return a function's result for an optimizer; for several optimizers, a dict by name."""
    if isinstance(optimizer, dict):
        return {name: function(single) for name, single in optimizer.items()}
    return function(optimizer)


def rates(optimizer: Any, what: str) -> Rates:
    """Return the ``"lr"`` or ``"momentum"`` (or Adam's first beta) of every parameter group.

    Args:
        optimizer: An optimizer, or a dict of optimizers by name.
        what: ``"lr"`` or ``"momentum"``; a momentum is 0 without a momentum.

    Raises:
        RuntimeError: without an optimizer.
    """
    if optimizer is None:
        raise RuntimeError(f"{what} is not applicable because optimizer does not exist.")
    rates: Rates = by_optimizer(
        lambda single: [_value(group, what) for group in single.param_groups], optimizer
    )
    return rates


def _value(group: dict[str, Any], what: str) -> Any:
    return group[what] if what == "lr" or what in group else group.get("betas", [0])[0]


def moved_values(optimizer: Any) -> Iterator[tuple[str, float, float]]:
    """Yield name, first and present value of each value that a schedule has moved, by group."""
    for group in optimizer.param_groups:
        for key in group:
            name = str(key).removeprefix("initial_")
            first, now = group[key], number_in(group, name)
            is_first = name != key and isinstance(first, (int, float, torch.Tensor))
            if is_first and now is not None and float(now) != float(first):
                yield name, float(first), float(now)


def number_in(group: dict[str, Any], name: str) -> Any:
    """Return a number of a parameter group; None without the number.

    The name ``"betas.1"`` is the second of ``betas``; ``"momentum"`` is the first of ``betas`` in a
    group without ``momentum``.

    >>> number_in({"betas": (0.9, 0.99)}, "momentum"), number_in({"mode": "fast"}, "mode")
    (0.9, None)
    """
    if name == "momentum" and name not in group:
        name = "betas.0"
    key, _, item = name.partition(".")
    entry = group.get(key)
    if item:
        items = enumerate(entry) if isinstance(entry, (tuple, list)) else ()
        entry = next((each for i, each in items if str(i) == item), None)
    is_number = isinstance(entry, (Real, torch.Tensor)) and not isinstance(entry, bool)
    return entry if is_number else None


def with_modes(optimizers: Iterable[Any]) -> list[Any]:
    """Return the optimizers with the methods ``train()`` and ``eval()``, as schedule-free ones."""
    modes = ("train", "eval")
    return [
        optimizer
        for optimizer in optimizers
        if all(callable(getattr(optimizer, m, None)) for m in modes)
    ]


class StepRates:
    """The rates of the last iteration's step; without a step the present rates.

    An iteration that only accumulates gradients makes no step.

    Args:
        runner: The runner with the optimizers.
    """

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._at_step: dict[Any, tuple[int, list[dict[str, Any]]]] = {}  # by optimizer

    def watch(self, fit: ExitStack) -> None:
        """Keep the rates of each step of a fit, if a scheduler changes rates before loggers read.

        Lightning steps the module's schedulers before ``on_train_batch_end``.
        """
        self._at_step.clear()
        trainer = self._runner.trainer
        self._counts = progress.batches(trainer).total
        for optimizer in trainer.optimizers if trainer.lr_scheduler_configs else ():
            if hasattr(optimizer, "register_step_pre_hook"):
                fit.callback(optimizer.register_step_pre_hook(self._keep).remove)

    def state(self) -> list[list[dict[str, Any]]]:
        """Return the rates of each optimizer's last step, for the line of a validation.

        A resumed run that begins with the validation may have set other rates already.
        """
        return [
            [{key: plain(group[key]) for key in _RATES if key in group} for group in groups]
            for groups in map(self._groups, self._runner.trainer.optimizers)
        ]

    def resume(self, state: list[list[dict[str, Any]]]) -> None:
        """Go on after a step, in ``on_train_start``."""
        trainer = self._runner.trainer
        self._counts = progress.batches(trainer).total
        for optimizer, groups in zip(trainer.optimizers, state, strict=False):
            self._at_step[optimizer] = self._counts.completed - 1, groups

    def tags(self) -> dict[str, float]:
        """Return ``learning_rate`` and ``momentum``, as :meth:`first` names and chooses them."""
        return {**self.first("lr", "learning_rate"), **self.first("momentum", "momentum")}

    def first(self, what: str, tag: str = "") -> dict[str, float]:
        """Return the first group's value by tag; with several optimizers one value for each.

        The keys are ``learning_rate`` or, with several optimizers, ``learning_rate/generator`` ...;
        without a tag ``""`` or ``generator`` ...

        Args:
            what: ``"lr"`` or ``"momentum"``.
            tag: The name of the value.
        """
        every = self._by_name(what, tag)
        return {name: next(iter(values.values())) for name, values in every.items() if values}

    def of_groups(self, what: str, tag: str) -> dict[str, float]:
        """Return the value of every parameter group, by the group's name or number.

        The keys are ``learning_rate/backbone`` or ``learning_rate/1``; with several optimizers the
        optimizer's name is in between: ``learning_rate/generator/0``.

        Args:
            what: ``"lr"`` or ``"momentum"``.
            tag: The beginning of the names.
        """
        return {
            f"{name}/{group}": value
            for name, values in self._by_name(what, tag).items()
            for group, value in values.items()
        }

    def _by_name(self, what: str, tag: str) -> dict[str, dict[Any, float]]:
        """Return by optimizer the value of each group that has one, by the group's name."""
        optimizer = self._runner.optimizer
        if optimizer is None:
            return {}
        named = optimizer if isinstance(optimizer, dict) else {"": optimizer}
        return {
            f"{tag}/{name}".strip("/"): {
                group.get("name", index): _value(at_step, what)
                # a group added after the step has no value of the step
                for index, (group, at_step) in enumerate(
                    zip(each.param_groups, self._groups(each), strict=False)
                )
                if what != "lr" or "lr" in at_step  # an optimizer may have no rate
            }
            for name, each in named.items()
        }

    def _keep(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        groups = [
            {
                key: group[key].clone() if isinstance(group[key], torch.Tensor) else group[key]
                for key in _RATES
                if key in group
            }
            for group in optimizer.param_groups
        ]
        self._at_step[optimizer] = self._counts.completed, groups

    def _groups(self, optimizer: Any) -> Any:
        if optimizer not in self._at_step:
            return optimizer.param_groups
        step, groups = self._at_step[optimizer]
        last = self._counts.completed - (not self._runner.batch_is_open)
        return groups if step == last else optimizer.param_groups
