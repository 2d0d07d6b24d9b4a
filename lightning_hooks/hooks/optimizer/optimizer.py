"""``OptimizerHook``: run backward and step as mmcv does, or clip before Lightning's step."""

from __future__ import annotations

import copy
import logging
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.driver.ownership import trains_like_mmcv
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import precision
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.backward import OrphanLoss
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.optimizer import clipping
from lightning_hooks.hooks.optimizer.clipping import Clipped, GradClip, is_recipe
from lightning_hooks.hooks.optimizer.norm_history import NormHistory
from lightning_hooks.hooks.updaters import param_groups
from lightning_hooks.utils.arguments import check_bool
from lightning_hooks.utils.fsdp import is_flattened
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["OptimizerHook", "optimizers_of", "parameters_in_graph"]


def parameters_in_graph(loss: torch.Tensor) -> set[torch.Tensor]:
    """Return the parameters (leaves) in the graph of a loss.

    >>> used, unused = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
    >>> in_graph = parameters_in_graph((2 * used).sum())
    >>> used in in_graph, unused in in_graph
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
    """Runs backward and the optimizer's step, or clips the gradients before Lightning's step.

    For a ``TrainStepModule`` (or with ``HookAdapter(owns_backward=True)``) the hook runs
    ``zero_grad``, ``backward``, the clipping and ``step``, as in mmcv. With any other module
    Lightning runs backward and step, and before each step the hook clips the gradients of the
    optimizer: unscaled, and of all accumulated batches. In both cases:

    =============  ============================================================================
    key            in the log
    =============  ============================================================================
    grad_norm      the norm of all gradients before clipping, if ``grad_clip`` is set; once for
                   all optimizers that step in an iteration, of each the last gradients (LBFGS has
                   several in a step)
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
    ``"auto"``                  ``percentile`` (10), ``window`` (1000): scales all together to a
                                percentile of the last norms (AutoClip)
    ``"zclip"``                 ``z_thresh`` (2.5), ``alpha`` (0.97), ``warmup_steps`` (25),
                                ``max_norm`` (none): scales outliers among the norms (ZClip)
    ==========================  ===============================================================

    ``"auto"`` and ``"zclip"`` keep the norms of earlier steps, in checkpoints too; the norm, and so
    the limit, is the same on all ranks.

    Args:
        grad_clip: A dict of ``type`` and arguments, as in the table, for all gradients of a step; a
            list of dicts (or None) by parameter group; a dict of either by the name of the
            optimizer, for several optimizers. None for no clipping.
        detect_anomalous_params: Log an error, in every step, for each parameter outside of the
            loss' graph. Slow, for debugging only.

    Raises:
        TypeError: for a ``grad_clip`` that is no dict or list.
        ValueError: for a recipe without ``max_norm`` or ``clip_value``, with a number that is not
            positive, or an unknown type or key; when training starts, if the Trainer clips too, for
            ``precision="16-mixed"`` with an optimizer that unscales gradients itself
            (``fused=True``), for other optimizers or groups than in ``grad_clip``, for DeepSpeed,
            for FSDP (except with a single dict by norm or value and a module wrapped as a whole),
            and for a hook that would own the backward under either strategy.

    Source: mmcv's ``OptimizerHook``; ``type`` is MMEngine's idea, for the functions see
    :mod:`~lightning_hooks.hooks.optimizer.clipping`.

    Note:
        Departures from mmcv: ``grad_norm`` stays a tensor on its device until it is logged; the
        search for unused parameters does not recurse (mmcv's fails on deep graphs), and runs in
        ``GradientCumulativeOptimizerHook`` too (mmcv ignores the argument); all optimizers of a
        dict step after a single backward (mmcv fails).
    """

    _reads_step = False
    _transient = ("_clipped", "_histories", "_saved")

    # for subclasses that do not call super().__init__()
    grad_clip: GradClip | None = None
    detect_anomalous_params: bool = False
    _clipped: Mapping[str, tuple[Clipped, ...]] = MappingProxyType({})  # in this iteration
    _histories: Mapping[str, NormHistory] = MappingProxyType({})  # by the optimizer's name
    _saved: Mapping[str, Any] = MappingProxyType({})  # of the file that a run goes on from

    def __init__(
        self,
        grad_clip: GradClip | None = None,
        detect_anomalous_params: bool = False,
    ) -> None:
        super().__init__()
        if grad_clip is not None and not self._overrides_clipping():
            clipping.check_grad_clip(grad_clip)
        self.grad_clip = copy.deepcopy(grad_clip)
        check_bool(detect_anomalous_params=detect_anomalous_params)
        self.detect_anomalous_params = detect_anomalous_params

    def _owns_backward(self, module: torch.nn.Module) -> bool:
        """Whether this hook runs backward and step, rather than Lightning."""
        overridden = type(self).after_train_iter is not OptimizerHook.after_train_iter
        return overridden or trains_like_mmcv(module)

    # -- mmcv's interface for subclasses -----------------------------------------------------

    def detect_anomalous_parameters(self, loss: torch.Tensor, runner: Runner) -> None:
        """Log the parameters outside of the graph of ``loss``."""
        in_graph = parameters_in_graph(loss)
        for name, parameter in runner.model.named_parameters():
            if parameter.requires_grad and parameter not in in_graph:
                runner.logger.log(  # mmcv's call: an old logger may have no error()
                    level=logging.ERROR,
                    msg=f"{name} with shape {parameter.size()} is not in the computational graph "
                    "\n",
                )

    def _unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the events of Lightning's backward and step without use."""
        if Driver.of(trainer).ownership.is_taken and not precision.has_grad_scaler(trainer):
            return ("on_before_backward", "on_before_optimizer_step")
        return () if self.detect_anomalous_params else ("on_before_backward",)

    def after_train_iter(self, runner: Runner) -> None:
        """Run zero_grad, backward, clipping and step; or log the clipping of Lightning's step."""
        if not runner.hooks_own_step:  # Lightning or the module steps
            self._log_clipped(runner)
            return
        self._zero_grad(runner)
        self._backward(runner, runner.outputs["loss"])
        self._clip_and_step(runner)

    # -- the parts of an owned step ----------------------------------------------------------

    def _owns_step(self, runner: Runner) -> bool:
        """Whether hooks own the running step and can run the backward of the loss."""
        if not runner.hooks_own_step:
            return False
        loss = getattr(runner, "outputs", {}).get("loss")
        return loss is not None and not isinstance(loss, OrphanLoss)

    def _zero_grad(self, runner: Runner) -> None:
        for optimizer in optimizers_of(runner):
            optimizer.zero_grad()

    def _backward(self, runner: Runner, loss: torch.Tensor) -> None:
        if self.detect_anomalous_params:
            self.detect_anomalous_parameters(loss, runner)
        loss.backward()  # type: ignore[no-untyped-call]  # torch's has no types

    def _clip_and_step(self, runner: Runner) -> None:
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
        """Clip before a step by Lightning or by the Trainer's scaler."""
        if self.grad_clip is not None:
            runner = Driver.of(trainer).runner
            if not self._owns_step(runner) or precision.has_grad_scaler(trainer):
                self._clip_for(runner, optimizer)

    # -- clipping: mmcv's method, the checks of a fit, and the parts -------------------------

    def clip_grads(self, params: Iterable[torch.Tensor]) -> torch.Tensor | None:
        """Clip the gradients of ``params`` and return the norm; None without gradients."""
        if not is_recipe(self.grad_clip):
            raise ValueError(
                f"{type(self).__name__}.clip_grads() clips all gradients together, by one dict; "
                f"grad_clip is {self.grad_clip}"
            )
        clipped = clipping.clip(params, self.grad_clip, history=self._history_of(""))
        return None if clipped is None else clipped.norm

    # -- checks at the start of a fit --------------------------------------------------------

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Forget the norms of an earlier fit."""
        super().setup(trainer, pl_module, stage)
        self._histories, self._saved = {}, {}

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse to clip gradients twice, before they are unscaled, or out of reach."""
        self._clipped = {}
        if self.grad_clip is None:
            return
        name = f"{type(self).__name__}(grad_clip={self.grad_clip})"
        self._check_trainer(trainer, name)
        hooks = Driver.of(trainer).roster.hooks
        clips = [hook for hook in hooks if getattr(hook, "grad_clip", None) is not None]
        if len(clips) > 1 and clips[0] is self:
            both = " and ".join(type(hook).__name__ for hook in clips)
            rank_zero_warn(f"{both} each clip the gradients, one after the other; leave one out")
        if not self._overrides_clipping():
            if isinstance(trainer.strategy, FSDPStrategy):
                self._check_fsdp(trainer, name)
            optimizers = param_groups.optimizers_of(Driver.of(trainer).runner.optimizer)
            clipping.check_optimizers(self.grad_clip, optimizers)

    def _check_trainer(self, trainer: L.Trainer, name: str) -> None:
        if trainer.gradient_clip_val:
            raise ValueError(
                f"Trainer(gradient_clip_val={trainer.gradient_clip_val}) beside {name}: gradients "
                "would be clipped twice; give one of them"
            )
        for optimizer in trainer.optimizers if precision.has_grad_scaler(trainer) else ():
            if getattr(optimizer, "_step_supports_amp_scaling", False):
                raise ValueError(
                    f"{type(self).__name__}(grad_clip=...) cannot clip for "
                    f"{type(optimizer).__name__}(fused=True), which unscales the gradients of "
                    f"precision={trainer.precision!r} inside its step; give fused=False"
                )
        if isinstance(trainer.strategy, DeepSpeedStrategy):
            raise ValueError(
                f"{name} does not reach the gradients of DeepSpeed, which clips by itself: "
                "give Trainer(gradient_clip_val=...)"
            )

    def _check_fsdp(self, trainer: L.Trainer, name: str) -> None:
        strategy = type(trainer.strategy).__name__
        if not is_recipe(self.grad_clip) or self.grad_clip.get("type") == "adaptive":
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
        return type(self).clip_grads is not OptimizerHook.clip_grads

    def _clip_all(self, runner: Runner) -> None:
        """Clip the gradients of all optimizers; with one dict of the whole module, as mmcv."""
        if self.grad_clip is None:
            return
        if self._overrides_clipping() or is_recipe(self.grad_clip):
            self._clip(runner, runner.module.parameters(), self.grad_clip)
        else:
            for optimizer in optimizers_of(runner):
                self._clip_for(runner, optimizer)

    def _clip_for(self, runner: Runner, optimizer: Any) -> None:
        """Clip the gradients of one optimizer."""
        name = _name_of(optimizer, runner)
        self._clipped = {**self._clipped, name: ()}  # without an earlier step's of this iteration
        if self._overrides_clipping():
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            self._clip(runner, parameters, self.grad_clip, name)
        else:
            for parameters, recipe in clipping.recipes_for(self.grad_clip, name, optimizer):
                self._clip(runner, parameters, recipe, name)

    def _history_of(self, name: str) -> NormHistory | None:
        """Return the history of an optimizer's norms, if the recipe has one."""
        if name not in self._histories:
            history = clipping.make_history(self.grad_clip)  # type: ignore[arg-type]
            if history is None:
                return None
            if name in self._saved:
                try:
                    history.load_state_dict(self._saved[name])
                except ValueError as error:
                    rank_zero_warn(f"{type(self).__name__} begins anew with the norms: {error}")
            self._histories = {**self._histories, name: history}
        return self._histories[name]

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the norms of earlier steps."""
        if self._histories and file.is_whole:
            states = {name: history.state_dict() for name, history in self._histories.items()}
            file.own_part["grad_norms"] = states

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Keep the norms of earlier steps until the next step."""
        if file.resumes:
            self._saved = file.own_part.get("grad_norms", {})

    def _clip(
        self, runner: Runner, parameters: Iterable[torch.Tensor], recipe: Any, name: str = ""
    ) -> None:
        """Clip gradients together, by a recipe or a subclass's ``clip_grads``; keep the result."""
        if self._overrides_clipping():
            norm = self.clip_grads(parameters)
            clipped = None if norm is None else Clipped(torch.as_tensor(norm))
        else:
            history = self._history_of(name) if is_recipe(self.grad_clip) else None
            clipped = clipping.clip(parameters, recipe, runner.trainer.model, history)
        if clipped is not None:
            self._clipped = {**self._clipped, name: (*self._clipped.get(name, ()), clipped)}

    def _log_clipped(self, runner: Runner) -> None:
        """Log the results of this iteration's clipping, once."""
        parts = [part for of_optimizer in self._clipped.values() for part in of_optimizer]
        self._clipped = {}
        if not parts:
            return
        clipped = clipping.combined(parts)
        count = getattr(runner, "outputs", {}).get("num_samples", 1)
        runner.log_buffer.update({"grad_norm": clipped.norm}, count)
        if not clipping.is_mmcv_recipe(self.grad_clip):
            runner.log_buffer.update({"clip_fraction": clipped.exceeded()})


def optimizers_of(runner: Runner) -> list[Any]:
    """Return the optimizers of a step owned by hooks."""
    return [optimizer for _, optimizer in param_groups.optimizers_of(runner.optimizer)]


def _name_of(optimizer: Any, runner: Runner) -> str:
    """Return the name of an optimizer, also of one wrapped by Lightning."""
    inner = getattr(optimizer, "optimizer", optimizer)
    named = param_groups.optimizers_of(runner.optimizer)
    names = (
        name for name, optimizer in named if getattr(optimizer, "optimizer", optimizer) is inner
    )
    return next(names, type(inner).__name__)
