"""Show hooks the optimizers of a run, and train with those that hooks assign."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.runner.backward import optimizers_of_hooks

__all__ = ["Optimizers", "first_group"]


class Optimizers:
    """The optimizers of a Runner; ``optimizer`` may be assigned."""

    trainer: L.Trainer
    module: L.LightningModule
    hooks_step: bool

    _known_optimizer: Any = None
    _keeps_optimizer = False  # it is not one of the Trainer's

    @functools.cached_property
    def optimizer(self) -> Any:
        """The optimizer, or a dict of them by name where there are several; may be replaced."""
        self._known_optimizer = self._find_optimizer()
        return self._known_optimizer

    def use_optimizer(self, optimizer: Any) -> None:
        """Show hooks the optimizer that they step; None: Lightning steps its own."""
        self.hooks_step = self._keeps_optimizer = optimizer is not None
        self.optimizer = self._known_optimizer = optimizer
        self.renew()

    def renew(self) -> None:
        """Look the Trainer's optimizer up anew, which is kept for an epoch."""
        known = vars(self).get("optimizer") is self._known_optimizer
        if known and not self._keeps_optimizer:
            vars(self).pop("optimizer", None)

    def take_optimizer(self) -> None:
        """Train with the optimizer, or dict of them, that a hook has assigned, if it has."""
        if self.optimizer is self._known_optimizer:
            return
        value = self._known_optimizer = self.optimizer
        many = list(value.values()) if isinstance(value, dict) else [value]
        many = [getattr(one, "optimizer", one) for one in many]  # out of Lightning's wrapper
        if not all(isinstance(one, torch.optim.Optimizer) for one in many):
            self._keeps_optimizer = True  # a hook's own kind, which the hooks step
            return
        self.trainer.optimizers = many
        if self.hooks_step:
            self.use_optimizer(optimizers_of_hooks(self.module))

    def _find_optimizer(self) -> Any:
        found = self.trainer.optimizers
        names = getattr(self.module, "optimizer_names", None) or [str(i) for i in range(len(found))]
        if len(found) == 1 and not getattr(self.module, "optimizer_names", None):
            return found[0]
        return dict(zip(names, found, strict=True)) if found else None

    def current_lr(self) -> list[float] | dict[str, list[float]]:
        """The learning rate of every parameter group (of every optimizer, by name)."""
        return self._of_groups(lambda group: group["lr"], "lr")

    def current_momentum(self) -> list[float] | dict[str, list[float]]:
        """The momentum, or Adam's first beta, of every parameter group; 0 where there is none."""
        return self._of_groups(
            lambda group: group["momentum"] if "momentum" in group else group.get("betas", [0])[0],
            "momentum",
        )

    def _of_groups(
        self, value: Callable[[dict[str, Any]], float], what: str
    ) -> list[float] | dict[str, list[float]]:
        optimizer = self.optimizer
        if optimizer is None:
            raise RuntimeError(f"{what} is not applicable because optimizer does not exist.")
        if isinstance(optimizer, dict):
            return {name: [value(g) for g in o.param_groups] for name, o in optimizer.items()}
        return [value(group) for group in optimizer.param_groups]


def first_group(rates: Any) -> Any:
    """Return the value of the first parameter group, or of each optimizer's first one.

    >>> first_group([0.1, 0.2]), first_group({"generator": [0.1, 0.2], "critic": [0.3]})
    (0.1, {'generator': 0.1, 'critic': 0.3})
    """
    if isinstance(rates, dict):
        return {name: of_groups[0] for name, of_groups in rates.items()}
    return rates[0] if rates else None
