"""``WatchHook``: histograms of parameters and gradients."""

from __future__ import annotations

from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.watch.histograms import histograms_of
from lightning_hooks.utils.arguments import check_choice, check_int

__all__ = ["WatchHook"]


@HOOKS.register_module()
class WatchHook(Hook):
    """Logs histograms of the parameters and their gradients every ``interval`` iterations.

    They are ``parameters/<name>`` and ``gradients/<name>`` in W&B, TensorBoard and ClearML, 64
    cells from the least to the greatest finite value. Gradients are those of the optimizer's step,
    parameters those before it; the first histograms are of the first step, so that a wrong
    initialisation is seen at once. Each optimizer's parameters come with its own step; while
    gradients are accumulated, the next step is taken. They are counted on the device and copied
    once. What is not finite, or beyond half of what its type holds, is left out and counted.

    Clipping by the Trainer comes after them, that of an ``OptimizerHook`` if it stands after this
    hook. Rank 0 counts; of a sharded model its part.

    Args:
        interval: Iterations from one histogram to the next.
        log: ``"gradients"``, ``"parameters"`` or ``"all"``.

    Raises:
        TypeError: if ``interval`` is no int.
        ValueError: if ``interval`` is below 1, or ``log`` another word.

    Note:
        mmcv has no such hook; W&B's ``watch`` counts in a hook of each gradient, in every step.
    """

    reads_step = False
    _last: dict[int, int]

    def __init__(self, interval: int = 1000, log: str = "all") -> None:
        super().__init__()
        check_int("interval", interval, 1)
        check_choice("log", log, ("gradients", "parameters", "all"))
        self.interval, self.which = interval, log
        self._last = {}

    def before_run(self, runner: Any) -> None:
        """Begin with the first step."""
        self._last = {}

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the histograms of this optimizer's parameters, if they are due."""
        runner = Driver.of(trainer).runner
        block = runner.iter // self.interval
        if self._last.get(id(optimizer)) == block or not trainer.is_global_zero:
            return
        if not runner.holds("histograms"):
            return
        self._last[id(optimizer)] = block
        stepped = {id(p) for group in optimizer.param_groups for p in group["params"]}
        tensors: dict[str, torch.Tensor] = {}
        for name, parameter in pl_module.named_parameters():
            if id(parameter) not in stepped:
                continue
            if self.which != "gradients":
                tensors[f"parameters/{name}"] = parameter
            if self.which != "parameters" and parameter.grad is not None:
                tensors[f"gradients/{name}"] = parameter.grad
        with torch.no_grad():
            for name, histogram in histograms_of(tensors).items():
                runner.log_histogram(name, histogram)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_last": {}}
