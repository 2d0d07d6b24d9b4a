"""``Fp16OptimizerHook``: train in half precision, with the loss scaled against underflow.

``GradientCumulativeFp16OptimizerHook`` makes a single step for several batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import FSDPStrategy

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.driver.ownership import trains_like_mmcv
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.optimizer.accumulation import GradientCumulativeOptimizerHook
from lightning_hooks.hooks.optimizer.clipping import GradClip
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook, optimizers_of
from lightning_hooks.utils.arguments import check_bool, check_int, shown
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["Fp16OptimizerHook", "GradientCumulativeFp16OptimizerHook"]

LossScale = float | str | Mapping[str, Any]
"""A number for a constant scale, ``"dynamic"``, or the arguments of a GradScaler."""

FLOAT32_MAX = torch.finfo(torch.float32).max

ARGUMENTS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")


@HOOKS.register_module()
class Fp16OptimizerHook(OptimizerHook):
    """Scales the loss, so that small gradients survive in half precision.

    Gradients of ``scale * loss`` are divided by ``scale`` before they are clipped; a step with an
    infinite or NaN gradient is skipped. The scaler depends on the Trainer:

    ==================  ======================================================================
    precision           scaler
    ==================  ======================================================================
    ``"16-mixed"``      the Trainer's, set up from ``loss_scale``; on a CPU, where Lightning
                        trains in bfloat16, none, with a warning
    ``"32-true"``       for a ``TrainStepModule``, or if hooks own the backward: the hook's own, on
                        any device, as in mmcv: the forward is in half precision where the model
                        has ``fp16_enabled``
    any other           refused
    ==================  ======================================================================

    ``runner.meta["fp16"]["loss_scaler"]`` is the scaler's state, also in checkpoints; a resumed
    run continues with it.

    Args:
        grad_clip: See ``OptimizerHook``; applied to the unscaled gradients.
        coalesce: Unused; mmcv's own all-reduce needed it.
        bucket_size_mb: Unused, as ``coalesce``.
        loss_scale: A number for a constant scale; ``"dynamic"`` for a scale that halves at a
            skipped step and doubles after 2000 steps without a skip; a dict of the arguments
            ``init_scale``, ``growth_factor``, ``backoff_factor``, ``growth_interval`` of
            ``torch.amp.GradScaler``.
        distributed: Unused, as ``coalesce``.

    Raises:
        TypeError: for a ``loss_scale`` of another type.
        ValueError: for a ``loss_scale`` that is not positive, an unknown word, or has unknown keys;
            when training starts, for another precision of the Trainer, and for clipping with an
            optimizer that unscales gradients itself (``fused=True``).

    Source: mmcv's ``Fp16OptimizerHook``.

    Note:
        Departures from mmcv: ``loss_scale`` may be an int (mmcv raises); several optimizers step
        together; the state is in ``runner.meta`` from the start of the run; a given static scale
        counts, not a checkpoint's (mmcv's first step has the checkpoint's scale); with an ordinary
        LightningModule the Trainer scales.
    """

    # for subclasses that do not call super().__init__()
    _loss_scale: LossScale = 512.0
    loss_scaler: torch.amp.GradScaler | None = None
    _has_own_scaler = False  # in this run; otherwise the Trainer scales, or nothing does

    def __init__(
        self,
        grad_clip: GradClip | None = None,
        coalesce: bool = True,
        bucket_size_mb: int = -1,
        loss_scale: LossScale = 512.0,
        distributed: bool = True,
    ) -> None:
        super().__init__(grad_clip=grad_clip)
        scaler_arguments(loss_scale)
        check_bool(coalesce=coalesce, distributed=distributed)
        check_int("bucket_size_mb", bucket_size_mb)
        self.coalesce = coalesce
        self.bucket_size_mb = bucket_size_mb
        self._loss_scale = loss_scale
        self.distributed = distributed

    @property
    def _scale_update_param(self) -> float | None:
        """mmcv's argument of ``loss_scaler.update()``: a static scale, else None."""
        return float(self._loss_scale) if isinstance(self._loss_scale, (int, float)) else None

    def _owns_backward(self, module: torch.nn.Module) -> bool:
        """Whether this hook runs backward and step, rather than Lightning."""
        if _replaces_step(self):
            return True
        trainer: Any = module.trainer
        return trains_like_mmcv(module) and not precision.has_grad_scaler(trainer)

    # -- the scaler --------------------------------------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Set up the Trainer's scaler, or check whether the hook may have its own scaler."""
        super().on_fit_start(trainer, pl_module)
        self._has_own_scaler = False
        if precision.has_grad_scaler(trainer):
            self._use_scaler_of(trainer)
        elif trainer.precision == "bf16-mixed" and pl_module.device.type == "cpu":
            self.loss_scaler = None
            rank_zero_warn(
                f"{type(self).__name__}: on a CPU Lightning trains in bfloat16, also with "
                'precision="16-mixed"; it needs no loss scale, and has none'
            )
        else:
            self._check_own_scaler(trainer, pl_module)
            self._has_own_scaler = True

    def _use_scaler_of(self, trainer: L.Trainer) -> None:
        if _replaces_step(self):
            raise ValueError(
                f"{type(self).__name__} scales the loss itself, and so does "
                f'precision={trainer.precision!r}: give Trainer(precision="32-true")'
            )
        scaler = precision.grad_scaler(trainer)
        if scaler is not self.loss_scaler:  # the same scaler: the run goes on
            configure(scaler, self._loss_scale)
        self.loss_scaler = scaler

    def _check_own_scaler(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        name = type(self).__name__
        owns_step = (
            Driver.of(trainer).ownership.requested is True
            or trains_like_mmcv(pl_module)
            or _replaces_step(self)
        )
        if trainer.precision not in ("32-true", "64-true") or not owns_step:
            raise ValueError(
                f"{name} trains in half precision with a loss scale, but the Trainer has "
                f'precision={trainer.precision!r}: give Trainer(precision="16-mixed")'
            )
        if isinstance(trainer.strategy, FSDPStrategy):
            raise ValueError(
                f"{name} scales the loss itself, and each rank of "
                f"{type(trainer.strategy).__name__} would judge its own slices of the gradients: "
                'give Trainer(precision="16-mixed") and a LightningModule, or use '
                "ModelParallelStrategy"
            )

    def before_run(self, runner: Runner) -> None:
        """Make the hook's own scaler, with the state of a checkpoint; publish the state."""
        if self._has_own_scaler:
            self._make_scaler(runner)
        elif self.loss_scaler is not None and is_static(self._loss_scale):
            configure(self.loss_scaler, self._loss_scale)  # a checkpoint had another scale
        if self.loss_scaler is not None:
            if runner.meta is None:
                runner.meta = {}
            runner.meta.setdefault("fp16", {})["loss_scaler"] = ScalerState(self.loss_scaler)

    def _make_scaler(self, runner: Runner) -> None:
        arguments = scaler_arguments(self._loss_scale)
        self.loss_scaler = torch.amp.GradScaler(runner.module.device.type, **arguments)
        saved = ((runner.meta or {}).get("fp16") or {}).get("loss_scaler")
        if saved and self.loss_scaler.is_enabled():
            static = {"scale": self._scale_update_param} if is_static(self._loss_scale) else {}
            self.loss_scaler.load_state_dict({**saved, **static})
        for part in runner.model.modules():
            if hasattr(part, "fp16_enabled"):  # set by mmcv's auto_fp16
                part.fp16_enabled = True

    # -- a step with the hook's own scaler -----------------------------------------------------

    def _owns_step(self, runner: Runner) -> bool:
        return self._has_own_scaler or super()._owns_step(runner)

    def _zero_grad(self, runner: Runner) -> None:
        if self._has_own_scaler:
            runner.module.zero_grad()
        super()._zero_grad(runner)

    def _backward(self, runner: Runner, loss: torch.Tensor) -> None:
        if self._has_own_scaler and self.loss_scaler is not None:
            loss = self.loss_scaler.scale(loss)
        super()._backward(runner, loss)

    def _clip_and_step(self, runner: Runner) -> None:
        scaler = self.loss_scaler
        if not self._has_own_scaler or scaler is None:
            super()._clip_and_step(runner)
            return
        optimizers = optimizers_of(runner)
        for optimizer in optimizers:
            scaler.unscale_(optimizer)
        self._clip_all(runner)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update(self._scale_update_param)
        self._log_clipped(runner)


def _replaces_step(hook: OptimizerHook) -> bool:
    """Whether a subclass of another package overrides the step, with its own scaler."""
    definer = next(c for c in type(hook).__mro__ if "after_train_iter" in vars(c))
    return not is_ours(definer)


@HOOKS.register_module()
class GradientCumulativeFp16OptimizerHook(GradientCumulativeOptimizerHook, Fp16OptimizerHook):
    """Steps every ``cumulative_iters`` iterations, with the loss scaled.

    For the groups of iterations see
    :class:`~lightning_hooks.hooks.optimizer.accumulation.GradientCumulativeOptimizerHook`, for
    scaler and precision :class:`~lightning_hooks.hooks.optimizer.fp16.Fp16OptimizerHook`. The scale
    changes with a step only, so the gradients of a group share a scale. The hook owns backward and
    step with any module.

    Args:
        cumulative_iters: Iterations to a step.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.optimizer.fp16.Fp16OptimizerHook`.

    Source: mmcv's ``GradientCumulativeFp16OptimizerHook``.

    Note:
        Departures from mmcv: as both classes.
    """

    def _owns_backward(self, module: torch.nn.Module) -> bool:
        """Return True: Lightning's own accumulation would end with every epoch."""
        return True


# -- the loss scale ----------------------------------------------------------------------------


def is_static(loss_scale: LossScale) -> bool:
    """Whether the scale never changes."""
    return isinstance(loss_scale, (int, float))


def scaler_arguments(loss_scale: LossScale) -> dict[str, Any]:
    """Return the arguments of :class:`torch.amp.GradScaler` for a loss scale.

    Raises:
        TypeError: for anything but a number, str or dict.
        ValueError: for a number that is not positive, a str other than ``"dynamic"`` and an unknown
            key.

    >>> scaler_arguments(512), scaler_arguments("dynamic"), scaler_arguments({"growth_interval": 9})
    ({'init_scale': 512.0}, {}, {'growth_interval': 9})
    """
    allowed = "a positive number, 'dynamic' or a dict of GradScaler's arguments"
    if isinstance(loss_scale, Mapping):
        unknown = [key for key in loss_scale if key not in ARGUMENTS]
        if unknown:
            raise ValueError(f"loss_scale has unknown keys {unknown}; known: {list(ARGUMENTS)}")
        if "init_scale" in loss_scale:
            scaler_arguments(loss_scale["init_scale"])
        return dict(loss_scale)
    if isinstance(loss_scale, str) and loss_scale == "dynamic":
        return {}
    if isinstance(loss_scale, bool) or not isinstance(loss_scale, (int, float, str)):
        raise TypeError(f"loss_scale must be {allowed}, got {shown(loss_scale)}")
    if isinstance(loss_scale, str) or not 0 < loss_scale <= FLOAT32_MAX:  # as the scaler stores it
        raise ValueError(f"loss_scale must be {allowed}, got {shown(loss_scale)}")
    return {"init_scale": float(loss_scale)}


def configure(scaler: torch.amp.GradScaler, loss_scale: LossScale) -> None:
    """Set an existing scaler, the Trainer's, to a loss scale.

    A static scale gets factors of 1, so no update changes the scale.
    """
    if not scaler.is_enabled():
        return
    defaults = torch.amp.GradScaler("cpu").state_dict()
    wanted = {"init_scale": defaults["scale"], **defaults, **scaler_arguments(loss_scale)}
    if is_static(loss_scale):
        wanted.update(growth_factor=1.0, backoff_factor=1.0)
    factors = {key: wanted[key] for key in ("growth_factor", "backoff_factor", "growth_interval")}
    scaler.load_state_dict({"scale": wanted["init_scale"], **factors, "_growth_tracker": 0})


class ScalerState(Mapping[str, Any]):
    """A scaler's ``state_dict()``, read on access only: a read waits for the device.

    >>> ScalerState(torch.amp.GradScaler("cpu", init_scale=8.0))["scale"]
    8.0
    """

    def __init__(self, scaler: torch.amp.GradScaler) -> None:
        self._scaler = scaler

    def __getitem__(self, key: str) -> Any:
        return self._scaler.state_dict()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scaler.state_dict())

    def __len__(self) -> int:
        return len(self._scaler.state_dict())

    def items(self) -> Any:
        """Return all items with a single read of the device."""
        return self._scaler.state_dict().items()

    def __repr__(self) -> str:
        return repr(self._scaler.state_dict())

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self._scaler.state_dict(),)
