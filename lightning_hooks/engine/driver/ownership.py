"""Decide whether Lightning or the hooks run backward, and switch the module accordingly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder

from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.hosted import HostedHook, class_name, is_one_of
from lightning_hooks.engine.lightning_api import precision, progress
from lightning_hooks.engine.lightning_api.events import adds_to_step, suspend_optimization
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.priority import is_family, of_family
from lightning_hooks.engine.runner.backward import (
    StrategyLoss,
    optimizers_of_hooks,
    strategy_loss_class,
)
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.fsdp import is_flattened
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "OPTIMIZER_HOOKS",
    "Call",
    "Ownership",
    "has_foreign",
    "runs_no_user_code",
    "trains_like_mmcv",
]


Call = tuple[Any, Callable[..., None]]
"""A hook and its method for a point."""


def runs_no_user_code(hook: object) -> bool:
    """Whether a hook's class is from this package and runs no code of the user."""
    return is_ours(type(hook)) and not getattr(hook, "_runs_user_code", False)


def has_foreign(hooks: Iterable[object]) -> bool:
    """Whether a hook's class is not from this package, or runs code of the user."""
    return not all(map(runs_no_user_code, hooks))


def trains_like_mmcv(module: torch.nn.Module) -> bool:
    """Whether a module is to be trained as in mmcv (``TrainStepModule``, the stand-in's)."""
    return bool(getattr(module, "trains_like_mmcv", False))


OPTIMIZER_HOOKS = ("OptimizerHook", "Fp16OptimizerHook", "GradientCumulativeOptimizerHook")


def _keep_gradients() -> None:
    """Stand in for ``on_validation_model_zero_grad`` while hooks own the gradients."""


class Ownership:
    """The owner of backward in a fit: Lightning, or some hooks.

    With ``owns_backward=True`` hooks own backward. With ``"auto"`` hooks own backward if an
    OptimizerHook is foreign or overrides ``after_train_iter``, or if a hook's
    ``owns_backward(module)`` says so, as every OptimizerHook does for a ``TrainStepModule``.
    """

    def __init__(self, runner: Runner, requested: bool | Literal["auto"] | None) -> None:
        self._runner = runner
        self.requested = requested
        kinds = OPTIMIZER_HOOKS
        asked = [h for h in runner.hooks if isinstance(h, HostedHook) or is_family(h, *kinds)]
        owners = [h for h in asked if self._owns(h)]
        if requested is True and not owners:
            owners = of_family(runner.hooks, *kinds) or [
                h for h in runner.hooks if not runs_no_user_code(h)
            ]
        self.owners: list[Any] = [] if requested is False else owners
        self.is_taken = bool(self.owners)
        """Whether hooks own backward in the fit."""
        if requested is True and not self.owners:
            raise ValueError(
                "owns_backward=True, but no hook can call loss.backward(): add an OptimizerHook"
            )
        self._loss_class: type[StrategyLoss] | None = None
        self._optimizers: Any = None  # the Trainer's list behind the hooks' optimizers

    def _owns(self, hook: Any) -> bool:
        """Whether an optimizer hook, or a hook of another library, runs backward and steps."""
        if isinstance(hook, (HostedHook, HookCallback)):
            return bool(hook._owns_backward(self._runner.module))
        return True

    def inside_and_after_step(self, calls: Sequence[Call]) -> tuple[Sequence[Call], Sequence[Call]]:
        """Return the calls inside the step, up to the last owner of backward, and the others."""
        owned = [i for i, (hook, _) in enumerate(calls) if is_one_of(hook, self.owners)]
        end = owned[-1] + 1 if owned else 0
        return calls[:end], calls[end:]

    def suspend_lightning(self, fit: FitChanges) -> None:
        """Switch the module to manual optimization for the length of a fit.

        Raises:
            ValueError: if the Trainer is to clip or accumulate too, or to search for a learning
                rate or batch size; if the module steps by itself and ``owns_backward=True`` was
                not given.
        """
        fit.callback(self._hide_optimizers)
        if not self.is_taken:
            return
        trainer, names = self._runner.trainer, self._names()
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, (LearningRateFinder, BatchSizeFinder)):
                raise ValueError(
                    f"{class_name(callback)} trains without callbacks, and {names} owns backward "
                    "and step: nothing would be trained; search in a Trainer without the hook"
                )
        if trainer.gradient_clip_val:
            raise ValueError(
                f"Trainer(gradient_clip_val={trainer.gradient_clip_val}) beside {names}: the hook "
                "owns backward and step; clip there, with grad_clip=dict(max_norm=...)"
            )
        if trainer.accumulate_grad_batches != 1:
            raise ValueError(
                f"Trainer(accumulate_grad_batches={trainer.accumulate_grad_batches}) beside "
                f"{names}: the hook owns backward and step; accumulate there, with "
                "GradientCumulativeOptimizerHook(cumulative_iters=...)"
            )
        module = self._runner.module
        manual = not (module.automatic_optimization or trains_like_mmcv(module))
        if manual and self.requested is not True:
            raise ValueError(
                f"{type(module).__name__} has automatic_optimization=False and does backward and "
                f"step itself, as {names} would: leave both to one of them; if its training_step "
                "only returns the loss, give HookAdapter(owns_backward=True)"
            )
        if module.automatic_optimization:
            suspend_optimization(module, fit)
            fit.callback(progress.keep_global_step, trainer)
        # Lightning clears the gradients before validation; hooks may accumulate across epochs
        fit.patch(module, "on_validation_model_zero_grad", instead=_keep_gradients)

    def hand_over_optimizers(self) -> None:
        """Give the hooks optimizers with counted steps, and make the loss class.

        Raises:
            ValueError: if a hook would clip gradients scaled by the Trainer's precision, or FSDP
                wraps the module as a whole.
        """
        runner = self._runner
        if not self.is_taken:
            alone = trains_like_mmcv(runner.module) and not runner.module.automatic_optimization
            if alone and runner.world_size > 1:
                rank_zero_warn(
                    f"{runner.model_name} does backward in its own train_step: its gradients are "
                    "not synchronised over the ranks; leave backward to an OptimizerHook, or wrap "
                    "its parts in DistributedDataParallel"
                )
            return
        if is_flattened(runner.trainer.model):
            raise ValueError(
                f"{self._names()} would do backward inside of the training step, and so inside of "
                f"the forward pass that {type(runner.trainer.strategy).__name__} wraps, where FSDP "
                "cannot: use ModelParallelStrategy with torch's fully_shard(), or a "
                "LightningModule with an OptimizerHook and Trainer(accumulate_grad_batches=...)"
            )
        for config in runner.trainer.lr_scheduler_configs:
            rank_zero_warn(
                f"{type(config.scheduler).__name__} is never stepped where hooks own backward; "
                "use a LrUpdaterHook in its place"
            )
        clipping = [  # ours clip inside the step, where the gradients are unscaled
            h
            for h in self.owners
            if getattr(h, "grad_clip", None) is not None and not runs_no_user_code(h)
        ]
        if clipping and precision.has_grad_scaler(runner.trainer):
            raise ValueError(
                f"{type(clipping[0]).__name__}(grad_clip=...) would clip gradients scaled by "
                'precision="16-mixed"; use precision="bf16-mixed" or "32-true", or no grad_clip'
            )
        self._loss_class = strategy_loss_class(runner.trainer.strategy)
        self._show_optimizers()
        runner.wrap_outputs = self.with_strategy_loss

    def _show_optimizers(self) -> None:
        self._optimizers = self._runner.trainer.strategy.optimizers
        self._runner.use_optimizer(optimizers_of_hooks(self._runner))

    def with_strategy_loss(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Return a step's outputs with a loss that runs backward through the strategy.

        Also update the hooks' optimizers if the module has replaced the Trainer's optimizers.
        """
        trainer = self._runner.trainer
        if trainer.strategy.optimizers is not self._optimizers:
            self._show_optimizers()
        loss = outputs.get("loss")
        if not isinstance(loss, torch.Tensor) or self._loss_class is None:
            return outputs
        self._runner.steps_directly = not adds_to_step(trainer)
        if self._runner.steps_directly:
            return outputs
        return {**outputs, "loss": self._loss_class.of(loss)}

    def _hide_optimizers(self) -> None:
        self._runner.use_optimizer(None)
        self._runner.wrap_outputs = None

    def _names(self) -> str:
        return ", ".join(class_name(hook) for hook in self.owners) or "owns_backward=True"
