"""``OptimizerHook``: backward and step as in mmcv, or clipping and reports beside Lightning's."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import lightning as L
import torch

from lightning_hooks import loops
from lightning_hooks.arguments import check_bool, check_dict
from lightning_hooks.driver import Driver
from lightning_hooks.hook import Hook
from lightning_hooks.hooks.clipping import check_clip, clip, clip_flattened, is_flattened
from lightning_hooks.ownership import trains_like_mmcv
from lightning_hooks.registry import HOOKS
from lightning_hooks.step import OrphanLoss

__all__ = ["OptimizerHook", "optimizers_of", "parameters_in_graph"]


def parameters_in_graph(loss: torch.Tensor) -> set[torch.Tensor]:
    """Return the parameters (leaves) that a loss was computed from.

    >>> used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> found = parameters_in_graph((2 * used).sum())
    >>> used in found, unused in found
    (True, False)
    """
    leaves: set[torch.Tensor] = set()
    seen: set[Any] = {None}
    waiting: list[Any] = [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            leaves.add(node.variable)
        waiting.extend(parent for parent, _ in node.next_functions)
    return leaves


@HOOKS.register_module()
class OptimizerHook(Hook):
    """Does backward and the optimizer's step, or clips the gradients of Lightning's.

    For a ``TrainStepModule`` (or where ``HookAdapter(owns_backward=True)`` says so) it runs
    ``zero_grad``, ``backward``, the clipping and ``step`` as mmcv does. With any other module
    Lightning runs them, and the hook clips before each step of an optimizer that optimizer's
    gradients: unscaled, and of all accumulated batches. In both cases:

    =========  ==================================================================
    key        in the log
    =========  ==================================================================
    grad_norm  the norm of all gradients before clipping, if ``grad_clip`` is set
    =========  ==================================================================

    Args:
        grad_clip: The arguments of :func:`torch.nn.utils.clip_grad_norm_`: ``max_norm``, perhaps
            ``norm_type`` (2 by default); None for no clipping.
        detect_anomalous_params: Log an error, in every step, for each parameter that the loss was
            not computed from. It slows training down: for debugging only.

    Raises:
        TypeError: if ``grad_clip`` is not a dict.
        ValueError: if it has no ``max_norm``, one that is not positive, or an unknown key; when
            training starts, if the Trainer is to clip too, or its ``precision="16-mixed"`` meets
            an optimizer that unscales gradients itself (``fused=True``).

    Source: mmcv's ``OptimizerHook``.

    Note:
        Departures from mmcv: ``grad_norm`` stays a tensor on its device until it is logged; the
        search for unused parameters does not recurse (mmcv's fails on deep graphs), and runs in
        ``GradientCumulativeOptimizerHook`` too (mmcv ignores the argument there); of a dict of
        optimizers each takes its step after the one backward (mmcv fails).
    """

    reads_step = False

    # for subclasses that do not call super().__init__()
    grad_clip: dict[str, Any] | None = None
    detect_anomalous_params: bool = False
    _norms: tuple[Any, ...] = ()

    def __init__(
        self, grad_clip: dict[str, Any] | None = None, detect_anomalous_params: bool = False
    ) -> None:
        super().__init__()
        check_bool(detect_anomalous_params=detect_anomalous_params)
        grad_clip = check_dict("grad_clip", grad_clip)
        if grad_clip is not None and type(self).clip_grads is OptimizerHook.clip_grads:
            check_clip(grad_clip)
        self.grad_clip = grad_clip
        self.detect_anomalous_params = detect_anomalous_params

    def owns_backward(self, module: torch.nn.Module) -> bool:
        """Whether this hook is to do backward and step, rather than Lightning."""
        overridden = type(self).after_train_iter is not OptimizerHook.after_train_iter
        return overridden or trains_like_mmcv(module)

    # -- what mmcv's subclasses call and override --------------------------------------------

    def clip_grads(self, params: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Clip the gradients of ``params`` and return their norm; None if there are none."""
        found = [p for p in params if p.requires_grad and p.grad is not None]
        if not found:
            return None
        return clip(found, self.grad_clip or {})

    def detect_anomalous_parameters(self, loss: torch.Tensor, runner: Any) -> None:
        """Log the parameters that ``loss`` was not computed from."""
        found = parameters_in_graph(loss)
        for name, parameter in runner.model.named_parameters():
            if parameter.requires_grad and parameter not in found:
                runner.logger.log(
                    logging.ERROR,
                    f"{name} with shape {parameter.size()} is not in the computational graph \n",
                )

    def after_train_iter(self, runner: Any) -> None:
        """Do zero_grad, backward, clipping and step; or log what was clipped in Lightning's."""
        if not _owned(runner):
            self._log_norms(runner)
            return
        self._zero_grad(runner)
        self._backward(runner, runner.outputs["loss"])
        self._clip_and_step(runner)

    # -- the parts of an owned step ----------------------------------------------------------

    def _zero_grad(self, runner: Any) -> None:
        for optimizer in optimizers_of(runner):
            optimizer.zero_grad()

    def _backward(self, runner: Any, loss: torch.Tensor) -> None:
        if self.detect_anomalous_params:
            self.detect_anomalous_parameters(loss, runner)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's has no types

    def _clip_and_step(self, runner: Any) -> None:
        if self.grad_clip is not None and not loops.has_grad_scaler(runner.trainer):
            self._log_norm(self.clip_grads(runner.module.parameters()), runner)
        for optimizer in optimizers_of(runner):
            optimizer.step()  # with a scaler of the Trainer's, clipped in here
        self._log_norms(runner)

    def _log_norms(self, runner: Any) -> None:
        norms, self._norms = self._norms, ()
        for norm in norms:
            self._log_norm(norm, runner)

    def _log_norm(self, norm: torch.Tensor | None, runner: Any) -> None:
        if norm is not None:
            outputs = getattr(runner, "outputs", {})
            runner.log_buffer.update({"grad_norm": norm}, outputs.get("num_samples", 1))

    # -- beside Lightning's backward and step ------------------------------------------------

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse to clip twice, or gradients that are not unscaled."""
        self._norms = ()
        if self.grad_clip is not None and trainer.gradient_clip_val:
            raise ValueError(
                f"Trainer(gradient_clip_val={trainer.gradient_clip_val}) beside "
                f"{type(self).__name__}(grad_clip={self.grad_clip}): gradients would be clipped "
                "twice; give one of them"
            )
        if self.grad_clip is not None and loops.has_grad_scaler(trainer):
            for optimizer in trainer.optimizers:
                if loops.unscales_itself(optimizer):
                    raise ValueError(
                        f"{type(self).__name__}(grad_clip=...) cannot clip for "
                        f"{type(optimizer).__name__}(fused=True), which unscales the gradients of "
                        f"precision={trainer.precision!r} inside its step; give fused=False"
                    )

    def on_before_backward(
        self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor
    ) -> None:
        """Look for unused parameters before Lightning's backward."""
        if self.detect_anomalous_params:
            runner = Driver.of(trainer).runner
            if not _owned(runner):
                self.detect_anomalous_parameters(loss, runner)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Clip before Lightning's step, and where its scaler has just unscaled for a hook's."""
        if self.grad_clip is None:
            return
        if not _owned(Driver.of(trainer).runner) or loops.has_grad_scaler(trainer):
            own = type(self).clip_grads is not OptimizerHook.clip_grads
            if is_flattened(trainer.model) and not own:
                norm: torch.Tensor | None = clip_flattened(trainer.model, self.grad_clip)
            else:
                norm = self.clip_grads(p for g in optimizer.param_groups for p in g["params"])
            self._norms = (*self._norms, norm)


def optimizers_of(runner: Any) -> list[Any]:
    """The optimizers that an owned step is made with."""
    found = runner.optimizer
    return list(found.values()) if isinstance(found, dict) else [found]


def _owned(runner: Any) -> bool:
    """Whether the hooks own the step that runs now: its loss can be given a backward by them."""
    if runner.module.automatic_optimization:
        return False
    loss = getattr(runner, "outputs", {}).get("loss")
    return loss is not None and not isinstance(loss, OrphanLoss)
