"""``ClippingHook``: clip gradients and log their norm; the base of all optimizer hooks."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.engine.driver.collect import hooks_of
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.hooks.optimizer.clip_config import (
    GradClip,
    Recipe,
    check_grad_clip,
    is_mmcv_recipe,
    is_recipe,
    recipes_for,
    recipes_in,
)
from lightning_hooks.hooks.optimizer.clipping import KINDS, Clipped, clip_flattened, combined
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.utils.fsdp import is_flattened
from lightning_hooks.utils.suggestions import suggest

__all__ = ["ClippingHook", "optimizers_of"]


class ClippingHook(Hook):
    """Clips gradients by ``grad_clip``; a subclass decides when.

    Args:
        grad_clip: See :class:`~lightning_hooks.hooks.optimizer.optimizer.OptimizerHook`.

    Raises:
        TypeError: if it is no dict or list.
        ValueError: as described there.
    """

    # for subclasses that do not call super().__init__()
    grad_clip: GradClip | None = None
    _clipped: tuple[Clipped, ...] = ()  # in this iteration

    def __init__(self, grad_clip: GradClip | None = None) -> None:
        super().__init__()
        if grad_clip is not None and not self._overrides_clipping():
            check_grad_clip(grad_clip)
        self.grad_clip = copy.deepcopy(grad_clip)

    def clip_grads(self, params: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Clip the gradients of ``params`` and return their norm; None if there are none."""
        if not is_recipe(self.grad_clip):
            raise ValueError(
                f"{type(self).__name__}.clip_grads() clips all gradients together, by one dict; "
                f"grad_clip is {self.grad_clip}"
            )
        clipped = _clip(params, self.grad_clip)
        return None if clipped is None else clipped.norm

    # -- checks at the start of a fit --------------------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse to clip gradients twice, before they are unscaled, or out of reach."""
        self._clipped = ()
        if self.grad_clip is None:
            return
        kind = type(self).__name__
        name = f"{kind}(grad_clip={self.grad_clip})"
        if trainer.gradient_clip_val:
            raise ValueError(
                f"Trainer(gradient_clip_val={trainer.gradient_clip_val}) beside {name}: gradients "
                "would be clipped twice; give one of them"
            )
        for optimizer in trainer.optimizers if precision.has_grad_scaler(trainer) else ():
            if precision.unscales_itself(optimizer):
                raise ValueError(
                    f"{kind}(grad_clip=...) cannot clip for "
                    f"{type(optimizer).__name__}(fused=True), which unscales the gradients of "
                    f"precision={trainer.precision!r} inside its step; give fused=False"
                )
        if isinstance(trainer.strategy, DeepSpeedStrategy):
            raise ValueError(
                f"{name} does not reach the gradients of DeepSpeed, which clips by itself: "
                "give Trainer(gradient_clip_val=...)"
            )
        clipping = [h for h in hooks_of(trainer) if getattr(h, "grad_clip", None) is not None]
        if len(clipping) > 1 and clipping[0] is self:
            both = " and ".join(type(hook).__name__ for hook in clipping)
            rank_zero_warn(f"{both} each clip the gradients, one after the other; leave one out")
        if self._overrides_clipping():
            return
        if isinstance(trainer.strategy, FSDPStrategy):
            self._check_fsdp(trainer, name)
        optimizers = param_groups.optimizers_of(Driver.of(trainer).runner.optimizer)
        if isinstance(self.grad_clip, Mapping) and not is_recipe(self.grad_clip):
            names = [each for each, _ in optimizers]
            for given in self.grad_clip:
                if given not in names:
                    raise ValueError(
                        f"grad_clip has a recipe for {given!r}, which is no optimizer of this "
                        f"run: {suggest(given, names)}"
                    )
        for each, optimizer in optimizers:
            list(recipes_for(self.grad_clip, each, optimizer))

    def _check_fsdp(self, trainer: L.Trainer, name: str) -> None:
        strategy = type(trainer.strategy).__name__
        is_adaptive = any(one.get("type") == "adaptive" for one in recipes_in(self.grad_clip))
        if is_adaptive or not is_recipe(self.grad_clip):
            raise ValueError(
                f"{name} does not work with {strategy}, each rank of which has slices of "
                "flattened gradients: clip all of them by norm or value, or use "
                "ModelParallelStrategy"
            )
        if not is_flattened(trainer.model):
            raise ValueError(
                f"{name} does not work where configure_model() has wrapped parts of the module by "
                "itself: no rank has the gradients of all parts. Leave the wrapping to "
                f"{strategy}(auto_wrap_policy=...), or use ModelParallelStrategy"
            )

    # -- clipping ----------------------------------------------------------------------------

    def _overrides_clipping(self) -> bool:
        return type(self).clip_grads is not ClippingHook.clip_grads

    def _clips_together(self) -> bool:
        return self._overrides_clipping() or is_recipe(self.grad_clip)

    def _clip_all(self, runner: Any) -> None:
        """Clip the gradients of all optimizers; with one dict all of the module's, as mmcv."""
        if self._clips_together():
            self._clip_together(runner, runner.module.parameters())
        else:
            for optimizer in optimizers_of(runner):
                self._clip_for(runner, optimizer)

    def _clip_for(self, runner: Any, optimizer: Any) -> None:
        """Clip the gradients of one optimizer."""
        if self.grad_clip is None:
            return
        if self._clips_together():
            self._clip_together(runner, [p for g in optimizer.param_groups for p in g["params"]])
        else:
            name = _name_of(optimizer, runner)
            for parameters, recipe in recipes_for(self.grad_clip, name, optimizer):
                self._record(_clip(parameters, recipe))

    def _clip_together(self, runner: Any, parameters: Iterable[torch.Tensor]) -> None:
        if self.grad_clip is None:
            return
        if self._overrides_clipping():
            norm = self.clip_grads(parameters)
            self._record(None if norm is None else Clipped(torch.as_tensor(norm)))
        elif is_recipe(self.grad_clip):
            self._record(_clip(parameters, self.grad_clip, runner.trainer.model))

    def _record(self, clipped: Clipped | None) -> None:
        if clipped is not None:
            self._clipped = (*self._clipped, clipped)

    def _log_clipped(self, runner: Any) -> None:
        """Log the results of this iteration's clipping, once."""
        if not self._clipped:
            return
        parts, self._clipped = self._clipped, ()
        clipped = combined(parts)
        count = getattr(runner, "outputs", {}).get("num_samples", 1)
        runner.log_buffer.update({"grad_norm": clipped.norm}, count)
        if not is_mmcv_recipe(self.grad_clip):
            runner.log_buffer.update({"clip_fraction": clipped.exceeded()})


def _clip(parameters: Iterable[torch.Tensor], recipe: Recipe, model: Any = None) -> Clipped | None:
    """Clip gradients by a recipe; of a model that FSDP has flattened all. None without any."""
    found = [p for p in parameters if p.requires_grad and p.grad is not None]
    if is_flattened(model):
        return clip_flattened(model, found, recipe)
    arguments = {key: value for key, value in recipe.items() if key != "type"}
    return KINDS[recipe.get("type", "norm")](found, **arguments) if found else None


def optimizers_of(runner: Any) -> list[Any]:
    """Return the optimizers of a step that hooks own."""
    return [optimizer for _, optimizer in param_groups.optimizers_of(runner.optimizer)]


def _name_of(optimizer: Any, runner: Any) -> str:
    """Return an optimizer's name, whether Lightning has wrapped it or not."""
    inner = getattr(optimizer, "optimizer", optimizer)
    for name, one in param_groups.optimizers_of(runner.optimizer):
        if getattr(one, "optimizer", one) is inner:
            return name
    return type(inner).__name__
