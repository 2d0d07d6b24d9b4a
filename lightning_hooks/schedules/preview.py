"""``sample``: the values set by a hook in every iteration of a run, without the run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType, SimpleNamespace
from typing import Any

from lightning_hooks.engine.priority import is_family
from lightning_hooks.utils.arguments import check_count, check_object

__all__ = ["Bases", "columns_of", "hooks_of", "quantity_of", "sample"]

Bases = float | Sequence[float] | Mapping[str, float | Sequence[float]]
"""The value of a parameter group, of several groups, or of several optimizers by name."""


class Optimizer:
    """An optimizer for a hook without a run: groups of numbers.

    Args:
        key: ``"lr"``, ``"momentum"`` or another entry; ``"betas.1"`` is the second of ``betas``.
        values: A value, or a value for each parameter group.
    """

    def __init__(self, key: str, values: float | Sequence[float]) -> None:
        self._single = isinstance(values, (int, float))
        numbers: Any = [values] if self._single else values
        self.defaults = {"lr": 0.0, "momentum": 0.0}
        name, _, item = key.partition(".")
        self._name, self._item = name, int(item) if item else None
        self.param_groups: list[dict[str, Any]] = [
            {"lr": 0.1, "momentum": 0.9, name: (0.9,) * int(item) + (number,) if item else number}
            for number in numbers
        ]

    def values(self) -> float | list[float]:
        """Return the present value, or the value of each group."""
        entries = [group[self._name] for group in self.param_groups]
        numbers = entries if self._item is None else [entry[self._item] for entry in entries]
        return numbers[0] if self._single else numbers


class Run:
    """A runner for a hook without a run: counters and optimizers."""

    mode = "train"
    counts_epochs = True

    def __init__(
        self, max_epochs: int, iters_per_epoch: int, optimizer: Any, accumulate: int = 1
    ) -> None:
        self.optimizer = optimizer
        self.optimizer_steps = 0
        self._accumulate, self._iters_per_epoch = accumulate, iters_per_epoch
        self.max_optimizer_steps = self.optimizer_steps_until(max_epochs)
        self.epoch = self.iter = self.inner_iter = 0
        self.max_epochs = self._max_epochs = max_epochs
        self.max_iters = self._max_iters = max_epochs * iters_per_epoch
        self.data_loader = range(iters_per_epoch)
        self.trainer = SimpleNamespace(
            num_training_batches=iters_per_epoch,
            fast_dev_run=False,
            optimizers=[],
            global_step=0,
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"there is no runner.{name} without a run: sample() and plot() are for hooks that set "
            "learning rates or momenta"
        )

    def iters_until(self, epochs: int) -> int:
        """Return the iterations of the first epochs."""
        return epochs * self._iters_per_epoch

    def optimizer_steps_until(self, epochs: int) -> int:
        """Return the optimizer steps of the first epochs; an epoch's last batch always steps."""
        return epochs * -(-self._iters_per_epoch // self._accumulate)

    def advance(self) -> None:
        """Count an iteration, and the optimizer step at the end of an accumulation."""
        self.iter += 1
        done = self.inner_iter + 1
        self.optimizer_steps += done % self._accumulate == 0 or done == self._iters_per_epoch


def sample(
    hook: Any,
    *,
    max_epochs: int,
    iters_per_epoch: int,
    base_lr: Bases = 0.1,
    base_momentum: Bases = 0.9,
    accumulate_grad_batches: int = 1,
    fields: Mapping[str, Bases] = MappingProxyType({}),
) -> list[Any]:
    """Return the learning rate, momentum or field, set by a hook in each iteration of a run.

    A copy of the hook runs with counters only, and raises the same errors as at the start of a real
    run.

    Args:
        hook: A hook for learning rates or momenta: ours, a subclass, or mmcv's own.
        max_epochs: Epochs of the run; 1 for a run counted in iterations.
        iters_per_epoch: Iterations of an epoch.
        base_lr: The optimizer's learning rate; a list of rates for several parameter groups; a dict
            of either for several optimizers. Each item of the result has the same form.
        base_momentum: The optimizer's momentum, in the same forms.
        accumulate_grad_batches: Iterations of an optimizer step, for hooks with ``by_step=True``.
        fields: The optimizer's value of each field that a ``FieldUpdaterHook`` sets.

    Raises:
        TypeError: for a class in place of a hook.
        AttributeError: for a hook that needs more than counters and an optimizer.
        ValueError: for a length below 1, a field without a value in ``fields``, or if the hook
            refuses the run.

    >>> from lightning_hooks.hooks.updaters.decay import StepLrUpdaterHook
    >>> sample(StepLrUpdaterHook(step=1, gamma=0.5), max_epochs=3, iters_per_epoch=2, base_lr=1.0)
    [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    check_object(hook)
    check_count("max_epochs", max_epochs)
    check_count("iters_per_epoch", iters_per_epoch)
    check_count("accumulate_grad_batches", accumulate_grad_batches)
    key = quantity_of(hook)
    given: dict[str, Bases] = {**fields, "lr": base_lr, "momentum": base_momentum}
    if key not in given:
        raise ValueError(f"fields has no value of {key}: give fields={{{key!r}: ...}}")
    bases = given[key]
    several = isinstance(bases, Mapping)
    named: Any = bases if several else {"": bases}
    optimizers = {name: Optimizer(key, values) for name, values in named.items()}
    optimizer: Any = optimizers if several else optimizers[""]
    run = Run(max_epochs, iters_per_epoch, optimizer, accumulate_grad_batches)
    hook, rows = copy.deepcopy(hook), []
    hook.before_run(run)
    for run.epoch in range(max_epochs):
        hook.before_train_epoch(run)
        for run.inner_iter in range(iters_per_epoch):
            hook.before_train_iter(run)
            row = {name: shown.values() for name, shown in optimizers.items()}
            rows.append(row if several else row[""])
            run.advance()
    return rows


def quantity_of(hook: Any) -> str:
    """Return what a hook sets: ``"lr"``, ``"momentum"`` or the name of a field."""
    if is_family(hook, "FieldUpdaterHook"):
        return str(hook.name)
    return "momentum" if is_family(hook, "MomentumUpdaterHook") else "lr"


def hooks_of(hooks: Any) -> list[Any]:
    """Return a hook or several hooks as a list.

    Raises:
        ValueError: for no hook.
    """
    listed = list(hooks) if isinstance(hooks, Sequence) else [hooks]
    if not listed:
        raise ValueError("hooks must have at least one hook for learning rates or momenta")
    return listed


def columns_of(rows: list[Any]) -> dict[tuple[str, ...], list[float]]:
    """Return a column for each group from the rows of ``sample``, with names for several groups."""
    if isinstance(rows[0], dict):
        return {
            (name, *label): values
            for name in rows[0]
            for label, values in columns_of([row[name] for row in rows]).items()
        }
    if isinstance(rows[0], list):
        columns = list(zip(*rows, strict=True))
        if len(columns) == 1:
            return {(): list(columns[0])}
        return {(f"group {i}",): list(column) for i, column in enumerate(columns)}
    return {(): rows}
