"""A minimal schedule-free optimizer, and a module for schedule-free optimizers of any package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from support.training import TinyModule, make_loader

__all__ = ["FreeModule", "ScheduleFreeSGD", "by_hand"]


class ScheduleFreeSGD(torch.optim.Optimizer):
    """Trains with ``y`` between the average ``x``, to evaluate with, and the step's own ``z``."""

    def __init__(self, params: Any, lr: float = 0.1, beta: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "beta": beta, "k": 0, "train_mode": False})

    def train(self) -> None:
        self._switch(True, lambda group: 1 - group["beta"])

    def eval(self) -> None:
        self._switch(False, lambda group: 1 - 1 / group["beta"])

    @torch.no_grad()
    def _switch(self, to_train: bool, weight: Callable[[Any], float]) -> None:
        for group in self.param_groups:
            for p in group["params"] if group["train_mode"] is not to_train else ():
                if "z" in self.state[p]:
                    p.lerp_(self.state[p]["z"], weight(group))
            group["train_mode"] = to_train

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        if not self.param_groups[0]["train_mode"]:
            raise RuntimeError("Optimizer was not in train mode when step is called")
        with torch.enable_grad():
            loss = closure() if closure is not None else None
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                z = self.state[p].setdefault("z", p.clone())
                p.lerp_(z, 1 / group["k"])
                p.add_(p.grad, alpha=group["lr"] * (group["beta"] * (1 - 1 / group["k"]) - 1))
                z.sub_(p.grad, alpha=group["lr"])
        return loss


class FreeModule(TinyModule):
    """Trains with a schedule-free optimizer, and keeps the weights of each validation."""

    def __init__(self, make: Callable[..., Any] = ScheduleFreeSGD) -> None:
        super().__init__()
        self.make = make
        self.validated: list[torch.Tensor] = []

    def configure_optimizers(self) -> Any:
        return self.make(self.parameters(), lr=0.1)

    def on_validation_epoch_start(self) -> None:
        if not self.trainer.sanity_checking:
            self.validated.append(self.net.weight.detach().clone())


def by_hand(make: Callable[..., Any], epochs: int, every: int = 4) -> list[torch.Tensor]:
    """Return the weights to evaluate with after every so many steps of a plain loop."""
    module, weights = TinyModule(), []
    optimizer = make(module.parameters(), lr=0.1)
    optimizer.train()
    for step, batch in enumerate([batch for _ in range(epochs) for batch in make_loader()], 1):
        optimizer.zero_grad()
        module.loss(batch).backward()
        optimizer.step()
        if step % every == 0:
            optimizer.eval()
            weights.append(module.net.weight.detach().clone())
            optimizer.train()
    return weights
