"""Show hooks the optimizers of a run, and train with optimizers assigned by hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.runner.backward import by_name, optimizers_of_hooks

__all__ = ["Optimizers", "first_group"]


class Optimizers:
    """The optimizers of a Runner; ``optimizer`` may be assigned."""

    trainer: L.Trainer
    module: L.LightningModule
    hooks_step: bool

    _counts: Any
    _groups_of_steps: Mapping[Any, tuple[int, list[dict[str, Any]]]] = MappingProxyType({})
    known_optimizer: Any = None
    steps_directly: bool = False
    """Whether Lightning adds nothing to the hooks' backward and step but the count of steps."""

    _keeps_optimizer = False  # whether a hook's own optimizer replaces the Trainer's

    @functools.cached_property
    def optimizer(self) -> Any:
        """The optimizer, or a dict of several optimizers by name; may be replaced."""
        self.known_optimizer = self._find_optimizer()
        return self.known_optimizer

    def use_optimizer(self, optimizer: Any) -> None:
        """Set the optimizer for hooks to step; None if Lightning steps."""
        self.hooks_step = self._keeps_optimizer = optimizer is not None
        self.steps_directly = False  # until the next step's result
        self.optimizer = self.known_optimizer = optimizer
        self.renew()

    def renew(self) -> None:
        """Forget the cached optimizer, which is kept for an epoch."""
        known = vars(self).get("optimizer") is self.known_optimizer
        if known and not self._keeps_optimizer:
            vars(self).pop("optimizer", None)

    def take_optimizer(self) -> None:
        """Train with an optimizer, or dict of optimizers, assigned by a hook, if any."""
        if self.optimizer is self.known_optimizer:
            return
        value = self.known_optimizer = self.optimizer
        many = list(value.values()) if isinstance(value, dict) else [value]
        many = [getattr(one, "optimizer", one) for one in many]  # out of Lightning's wrapper
        if not all(isinstance(one, torch.optim.Optimizer) for one in many):
            self._keeps_optimizer = True  # not one of torch's: hooks step the optimizer
            return
        self.trainer.optimizers = many
        if self.hooks_step:
            self.use_optimizer(optimizers_of_hooks(self))

    def _find_optimizer(self) -> Any:
        found = self.trainer.optimizers
        return by_name(self.module, found) if found else None

    def current_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rate of every parameter group (of every optimizer, by name)."""
        return self._of_groups(_lr, "lr", _groups)

    def current_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momentum, or Adam's first beta, of every parameter group; 0 without a momentum."""
        return self._of_groups(_momentum, "momentum", _groups)

    def _of_groups(
        self, value: Callable[[Any], float], what: str, groups_of: Callable[[Any], Any]
    ) -> list[float] | dict[str, list[float]]:
        optimizer = self.optimizer
        if optimizer is None:
            raise RuntimeError(f"{what} is not applicable because optimizer does not exist.")
        if isinstance(optimizer, dict):
            return {name: [*map(value, groups_of(one))] for name, one in optimizer.items()}
        return [*map(value, groups_of(optimizer))]

    # -- the rates of the last step ----------------------------------------------------------

    def watch_steps(self, fit: ExitStack) -> None:
        """Keep the rates of each step of a fit, if a scheduler changes rates before loggers read.

        Lightning steps the module's schedulers before ``on_train_batch_end``.
        """
        if self.trainer.lr_scheduler_configs:
            self._groups_of_steps = {}
            for optimizer in self.trainer.optimizers:
                if hasattr(optimizer, "register_step_pre_hook"):
                    fit.callback(optimizer.register_step_pre_hook(self._keep_rates).remove)

    def step_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rates of the last iteration's step; without a step the current rates.

        An iteration that only accumulates gradients makes no step.
        """
        return self._of_groups(_lr, "lr", self._groups_of_step)

    def step_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momenta of the last iteration's step; without a step the current momenta."""
        return self._of_groups(_momentum, "momentum", self._groups_of_step)

    def _keep_rates(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        groups = [
            {
                key: group[key].clone() if isinstance(group[key], torch.Tensor) else group[key]
                for key in ("lr", "momentum", "betas")
                if key in group
            }
            for group in optimizer.param_groups
        ]
        self._groups_of_steps = {
            **self._groups_of_steps,
            optimizer: (self._counts.completed, groups),
        }

    def _groups_of_step(self, optimizer: Any) -> Any:
        found = self._groups_of_steps.get(optimizer)
        if found is None:
            return optimizer.param_groups
        step, groups = found
        last = self._counts.completed - (not progress.batch_is_open(self.trainer))
        return groups if step == last else optimizer.param_groups


def _lr(group: Any) -> Any:
    return group["lr"]


def _momentum(group: Any) -> Any:
    return group["momentum"] if "momentum" in group else group.get("betas", [0])[0]


def _groups(optimizer: Any) -> Any:
    return optimizer.param_groups


def first_group(rates: Any) -> Any:
    """Return the value of the first parameter group; for several optimizers, a dict by name.

    >>> first_group([0.1, 0.2]), first_group({"generator": [0.1, 0.2], "critic": [0.3]})
    (0.1, {'generator': 0.1, 'critic': 0.3})
    """
    if isinstance(rates, dict):
        return {name: of_groups[0] for name, of_groups in rates.items()}
    return rates[0] if rates else None
