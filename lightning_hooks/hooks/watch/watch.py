"""``WatchHook``: histograms of parameters and gradients."""

from __future__ import annotations

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.watch.histograms import histograms_of
from lightning_hooks.utils.arguments import check_choice, check_int

__all__ = ["WatchHook"]


@HOOKS.register_module()
class WatchHook(Hook):
    """Logs histograms of the parameters and gradients every ``interval`` iterations.

    The histograms are ``parameters/<name>`` and ``gradients/<name>`` in W&B, TensorBoard and
    ClearML, with 64 cells from the least to the greatest finite value. Gradients are taken for the
    optimizer's step, parameters just before; the first histograms show the first step and so a
    wrong initialisation. Parameters come with the step of their optimizer; with accumulated
    gradients, with the next step. The values are counted on the device and copied once. Infinite
    values, NaN and values beyond half of the type's maximum are left out and counted apart.

    The histograms show gradients before clipping by the Trainer, and before clipping by an
    ``OptimizerHook`` listed after this hook. Rank 0 counts, of a sharded model its own part.

    Args:
        interval: Iterations between two histograms.
        log: ``"gradients"``, ``"parameters"`` or ``"all"``.

    Raises:
        TypeError: if ``interval`` is no int.
        ValueError: for an ``interval`` below 1, or another word for ``log``.

    Note:
        mmcv has no such hook; W&B's ``watch`` counts in a hook of each gradient, in every step.
    """

    reads_step = False
    transient = ("_last",)
    _last: dict[int, int]

    def __init__(self, interval: int = 1000, log: str = "all") -> None:
        super().__init__()
        check_int("interval", interval, 1)
        check_choice("log", log, ("gradients", "parameters", "all"))
        self.interval, self.which = interval, log

    def before_run(self, runner: Runner) -> None:
        """Begin with the first step."""
        self._last = {}

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Log the histograms of the optimizer's parameters, if due."""
        runner = Driver.of(trainer).runner
        block = runner.iter // self.interval
        if self._last.get(id(optimizer)) == block or not trainer.is_global_zero:
            return
        if not runner.samples.holds("histograms"):
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
