"""``OptimizerHook``: run backward and step as mmcv does, or clip before Lightning's step."""

from __future__ import annotations

import logging
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.driver.ownership import trains_like_mmcv
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.engine.lightning_api.events import restore_events, skip_events
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.hooks.optimizer.base import ClippingHook, optimizers_of
from lightning_hooks.hooks.optimizer.clip_config import GradClip
from lightning_hooks.utils.arguments import check_bool

__all__ = ["OptimizerHook", "parameters_in_graph"]


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
class OptimizerHook(ClippingHook):
    """Runs backward and the optimizer's step, or clips the gradients before Lightning's step.

    For a ``TrainStepModule`` (or with ``HookAdapter(owns_backward=True)``) it runs ``zero_grad``,
    ``backward``, the clipping and ``step`` as mmcv does. With any other module Lightning runs
    them, and the hook clips before each step of an optimizer that optimizer's gradients: unscaled,
    and of all accumulated batches. In both cases:

    =============  ============================================================================
    key            in the log
    =============  ============================================================================
    grad_norm      the norm of all gradients before clipping, if ``grad_clip`` is set; once for
                   all optimizers that step in an iteration
    clip_fraction  the share of the steps whose gradients were clipped, if ``grad_clip`` is more
                   than mmcv's (a ``type``, a list, names)
    =============  ============================================================================

    ==========================  ===============================================================
    type                        arguments and effect
    ==========================  ===============================================================
    ``"norm"``, also without    ``max_norm``, perhaps ``norm_type`` (2): scales all together
    ``"value"``                 ``clip_value``: limits each number
    ``"adaptive"``              ``clip_factor`` (0.01), ``eps`` (0.001): scales the rows whose
                                gradient is large beside their weights
    ==========================  ===============================================================

    Args:
        grad_clip: A dict of ``type`` and arguments, as in the table, for all gradients that are
            stepped with together; a list of such dicts (or None), one for each parameter group; a
            dict of these by the optimizer's name, where there are several. None for no clipping.
        detect_anomalous_params: Log an error, in every step, for each parameter that the loss was
            not computed from. For debugging only: it is slow.

    Raises:
        TypeError: if ``grad_clip`` is no dict or list.
        ValueError: if it has no ``max_norm`` or ``clip_value``, a number that is not positive, an
            unknown type or key; when training starts, if the Trainer is to clip too, its
            ``precision="16-mixed"`` meets an optimizer that unscales gradients itself
            (``fused=True``), optimizers or their groups are others, or with a strategy whose
            gradients cannot be clipped so: DeepSpeed, and FSDP but for one dict by norm or value
            of a module that is wrapped as a whole; when it would own backward in such a one.

    Source: mmcv's ``OptimizerHook``; ``type`` is MMEngine's idea, for the functions see
    :mod:`~lightning_hooks.hooks.optimizer.clipping`.

    Note:
        Departures from mmcv: ``grad_norm`` stays a tensor on its device until it is logged; the
        search for unused parameters does not recurse (mmcv's fails on deep graphs), and runs in
        ``GradientCumulativeOptimizerHook`` too (mmcv ignores the argument there); of a dict of
        optimizers each takes its step after the one backward (mmcv fails).
    """

    reads_step = False

    # for subclasses that do not call super().__init__()
    detect_anomalous_params: bool = False

    def __init__(
        self,
        grad_clip: GradClip | None = None,
        detect_anomalous_params: bool = False,
    ) -> None:
        super().__init__(grad_clip)
        check_bool(detect_anomalous_params=detect_anomalous_params)
        self.detect_anomalous_params = detect_anomalous_params

    def owns_backward(self, module: torch.nn.Module) -> bool:
        """Whether this hook runs backward and step, rather than Lightning."""
        overridden = type(self).after_train_iter is not OptimizerHook.after_train_iter
        return overridden or trains_like_mmcv(module)

    # -- mmcv's interface for subclasses -----------------------------------------------------

    def detect_anomalous_parameters(self, loss: torch.Tensor, runner: Any) -> None:
        """Log the parameters that ``loss`` was not computed from."""
        found = parameters_in_graph(loss)
        for name, parameter in runner.model.named_parameters():
            if parameter.requires_grad and parameter not in found:
                runner.logger.log(  # as mmcv calls it: an old logger may have no error()
                    level=logging.ERROR,
                    msg=f"{name} with shape {parameter.size()} is not in the computational graph "
                    "\n",
                )

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Skip the events of Lightning's backward that have nothing to do."""
        owned = Driver.of(trainer).ownership.is_taken and not precision.has_grad_scaler(trainer)
        if owned or not self.detect_anomalous_params:
            skip_events(self, OptimizerHook, "on_before_backward")
        if owned or self.grad_clip is None:
            skip_events(self, OptimizerHook, "on_before_optimizer_step")

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in ("detect_anomalous_params", "grad_clip"):  # perhaps within a fit
            restore_events([self], ("on_before_backward", "on_before_optimizer_step"))

    def after_train_iter(self, runner: Any) -> None:
        """Run zero_grad, backward, clipping and step; or log the clipping before Lightning's."""
        if not runner.hooks_step:  # Lightning or the module steps
            self._log_clipped(runner)
            return
        self._zero_grad(runner)
        self._backward(runner, runner.outputs["loss"])
        self._clip_and_step(runner)

    # -- the parts of an owned step ----------------------------------------------------------

    def _owns_step(self, runner: Any) -> bool:
        """Whether hooks own the running step, so that they can run the backward of its loss."""
        if not runner.hooks_step:
            return False
        loss = getattr(runner, "outputs", {}).get("loss")
        return loss is not None and not isinstance(loss, OrphanLoss)

    def _zero_grad(self, runner: Any) -> None:
        for optimizer in optimizers_of(runner):
            optimizer.zero_grad()

    def _backward(self, runner: Any, loss: torch.Tensor) -> None:
        if self.detect_anomalous_params:
            self.detect_anomalous_parameters(loss, runner)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's has no types

    def _clip_and_step(self, runner: Any) -> None:
        if not precision.has_grad_scaler(runner.trainer):
            self._clip_all(runner)
        for optimizer in optimizers_of(runner):
            optimizer.step()  # with the Trainer's scaler, on_before_optimizer_step clips in here
        self._log_clipped(runner)

    # -- beside Lightning's backward and step ------------------------------------------------

    def on_before_backward(
        self, trainer: L.Trainer, pl_module: L.LightningModule, loss: torch.Tensor
    ) -> None:
        """Report unused parameters before Lightning's backward."""
        if self.detect_anomalous_params:
            runner = Driver.of(trainer).runner
            if not self._owns_step(runner):
                self.detect_anomalous_parameters(loss, runner)

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        """Clip before Lightning's step, or a hook's that the Trainer's scaler makes."""
        if self.grad_clip is not None:
            runner = Driver.of(trainer).runner
            if not self._owns_step(runner) or precision.has_grad_scaler(trainer):
                self._clip_for(runner, optimizer)
