"""``FreezeHook``: keep parts of a model from training, for good or for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

import lightning as L
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api.model_state import set_train_flags, train_flags
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.reached import warn_unless_reached
from lightning_hooks.optim.layers import matches
from lightning_hooks.utils.arguments import check_bool, check_int, shown
from lightning_hooks.utils.dtensors import uncompiled_key
from lightning_hooks.utils.suggestions import suggest

__all__ = ["FreezeHook"]

T = TypeVar("T")


@HOOKS.register_module()
class FreezeHook(Hook):
    """Keeps parts of a model from training: the parameters get no gradients.

    Frozen modules are in eval mode, so BatchNorm keeps its statistics and dropout is off. Without
    ``until_epoch`` and ``until_iter``, parameters are frozen before ``configure_optimizers``. With
    either, parameters are frozen after the optimizer is built, so the optimizer already holds
    them. A resumed run keeps the parts frozen; after the run everything is restored.

    Args:
        names: The name of a module or parameter, as in ``named_modules()``, or a list of names;
            ``*`` matches a single part of a name, as in ``"backbone.layers.*"``. The names of parts
            that ``torch.compile`` has wrapped stay the same.
        until_epoch: The first epoch, counted from 0, of training the frozen parts.
        until_iter: The first iteration of training the frozen parts; instead of ``until_epoch``.
        eval_mode: Whether frozen modules are in eval mode.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for values out of range; when the fit starts, for a name missing in the module,
            and for ``until_epoch`` or ``until_iter`` with DDP without ``find_unused_parameters``.

    Source: ``frozen_stages`` of the models of mmcv's projects, as a hook for any model.

    >>> FreezeHook(["backbone.conv1", "backbone.bn1", "backbone.layer1"]).names
    ['backbone.conv1', 'backbone.bn1', 'backbone.layer1']
    """

    _reads_step = False
    _transient = ("_frozen", "_flags")
    _frozen: Sequence[nn.Parameter] = ()
    """The frozen parameters; parameters frozen by the user are not listed."""
    _flags: Mapping[nn.Module, bool] = MappingProxyType({})
    """The modules in eval mode, each with the earlier train flag."""

    def __init__(
        self,
        names: str | list[str],
        until_epoch: int | None = None,
        until_iter: int | None = None,
        eval_mode: bool = True,
    ) -> None:
        super().__init__()
        given = [names] if isinstance(names, str) else names
        if not (isinstance(given, (list, tuple)) and all(isinstance(n, str) for n in given)):
            raise TypeError(f"names must be a str or a list of str, got {shown(names)}")
        if not given:
            raise ValueError("names must have a name, got none")
        if until_epoch is not None:
            check_int("until_epoch", until_epoch, 1)
        if until_iter is not None:
            check_int("until_iter", until_iter, 1)
        if not (until_epoch is None or until_iter is None):
            raise ValueError(
                "give until_epoch or until_iter, not both, "
                f"got until_epoch={shown(until_epoch)} and until_iter={shown(until_iter)}"
            )
        check_bool(eval_mode=eval_mode)
        self.names = [*given]
        self.until_epoch, self.until_iter = until_epoch, until_iter
        self.eval_mode = eval_mode

    @property
    def _is_for_good(self) -> bool:
        return self.until_epoch is None and self.until_iter is None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Freeze for good now, before the optimizer and DDP are made."""
        super().setup(trainer, pl_module, stage)
        if stage == "fit":
            Driver.of(trainer).fit.callback(self._restore, pl_module)
            if self._is_for_good and self._missing(pl_module) is None:
                self._freeze(pl_module)

    def before_run(self, runner: Runner) -> None:
        """Freeze for a while; also freeze modules made in ``configure_model``."""
        missing = self._missing(runner.module)
        if missing is not None:
            raise ValueError(
                f"FreezeHook: {missing!r} is neither a module nor a parameter of "
                f"{type(runner.module).__name__}; {suggest(missing, _names_in(runner.module))}"
            )
        if not self._frozen and not self._is_over(runner):
            wrapper = runner.trainer.strategy.model
            if isinstance(wrapper, DistributedDataParallel) and not wrapper.find_unused_parameters:
                raise ValueError(
                    "FreezeHook: DDP waits for the gradients of parts that train later; write "
                    'Trainer(strategy="ddp_find_unused_parameters_true")'
                )
            self._freeze(runner.module)
        if self._frozen:
            if not any(parameter.requires_grad for parameter in runner.module.parameters()):
                raise ValueError(f"FreezeHook: names={self.names} leave nothing to train")
            frozen = sum(parameter.numel() for parameter in self._frozen)
            whole = sum(parameter.numel() for parameter in runner.module.parameters())
            runner.logger.info("%s of %s parameters are frozen%s", frozen, whole, self._until())
        for unit in ("epoch", "iter"):
            until = {f"until_{unit}": getattr(self, f"until_{unit}")}
            warn_unless_reached(self, runner, "the parts stay frozen", unit=unit, **until)
        self._switch_flags()  # not before: Lightning warns of modules that begin in eval mode

    def before_train_epoch(self, runner: Runner) -> None:
        """Begin to train the parts at epoch ``until_epoch``, or put the parts into eval mode."""
        self._end_if_over(runner)
        self._switch_flags()

    def before_train_iter(self, runner: Runner) -> None:
        """Begin to train the parts at iteration ``until_iter``."""
        if not self._is_for_good:
            self._end_if_over(runner)

    def _missing(self, module: nn.Module) -> str | None:
        known = _names_in(module)
        unknown = (n for n in self.names if not any(matches(name, n) for name in known))
        return next(unknown, None)

    def _freeze(self, module: nn.Module) -> None:
        parts = self._named(module.named_modules(remove_duplicate=False))
        single = self._named(module.named_parameters(remove_duplicate=False))
        parameters = [*single, *(parameter for part in parts for parameter in part.parameters())]
        self._frozen = [p for p in dict.fromkeys(parameters) if p.requires_grad]
        for parameter in self._frozen:
            parameter.requires_grad_(False)
            parameter.grad = None  # the optimizer skips the parameter, weight decay included
        if self.eval_mode:
            self._flags = train_flags(*parts)

    def _named(self, parts: Iterable[tuple[str, T]]) -> list[T]:
        """Return the parts with one of the names."""
        return [part for name, part in parts if any(matches(name, wanted) for wanted in self.names)]

    def _switch_flags(self) -> None:
        set_train_flags(dict.fromkeys(self._flags, False))

    def _is_over(self, runner: Runner) -> bool:
        by_epoch = self.until_epoch is not None and runner.trainer.current_epoch >= self.until_epoch
        return by_epoch or (self.until_iter is not None and runner.iter >= self.until_iter)

    def _end_if_over(self, runner: Runner) -> None:
        if self._frozen and self._is_over(runner):
            self._restore(runner.module)
            for hook in natives_with("_look_before_step", runner.hooks):
                hook._look_before_step(runner)
            trains = "trains" if len(self.names) == 1 else "train"
            runner.logger.info("%s %s from now on", ", ".join(self.names), trains)

    def _restore(self, module: nn.Module) -> None:
        for parameter in self._frozen:
            parameter.requires_grad_(True)
        if module.training:  # else Lightning's validation was interrupted
            set_train_flags(self._flags)
        self._frozen, self._flags = (), {}

    def _until(self) -> str:
        if self.until_epoch is not None:
            return f" until epoch {self.until_epoch}"
        return "" if self.until_iter is None else f" until iteration {self.until_iter}"


def _names_in(module: nn.Module) -> list[str]:
    """Return the names of a module's parts and parameters."""
    names = *dict(module.named_modules()), *dict(module.named_parameters())
    return [name for name in dict.fromkeys(map(uncompiled_key, names)) if name]
