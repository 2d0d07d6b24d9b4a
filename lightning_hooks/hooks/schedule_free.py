"""``ScheduleFreeHook``: optimizers with ``train()`` and ``eval()``, as schedule-free ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import lightning as L

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.optimizers import with_modes
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["ScheduleFreeHook"]


@HOOKS.register_module()
class ScheduleFreeHook(Hook):
    """Calls ``train()`` and ``eval()`` of schedule-free optimizers where each belongs.

    A schedule-free optimizer trains with one set of weights and has another one to evaluate with,
    an average of its own. The module has the latter

    - from ``after_train_epoch`` to the end of the validation, also of a validation within an epoch,
      and in an ``EvalHook``'s evaluation;
    - in every checkpoint, by whatever callback: ``load_from_checkpoint`` gives the validation's
      score, and a resumed run trains on from the weights that ``train()`` makes of them;
    - after the fit, also after an error.

    Each switch rounds the weights. A resumed run is bit-equal with the run that wrote the file; a
    run with more validations or files differs in the last bits.

    Raises:
        ValueError: at the start of a fit, beside an average of this package: each would take the
            other's weights for the weights to train on with.

    Source: the package ``schedulefree``; optimizers of other packages with the two methods, as
    pytorch_optimizer's, are switched alike.

    Note:
        mmcv has no such hook.

    >>> ScheduleFreeHook().get_triggered_stages()
    ['before_run', 'before_train_epoch', 'after_train_epoch']
    """

    _reads_step = False
    priority = "ABOVE_NORMAL"
    """Before the hooks that evaluate at ``after_train_epoch``."""

    _transient = ("_runs", "_trains")
    _runs = False  # from before_run to the end of the fit, with an optimizer to switch
    _trains = False  # whether the module has the weights to train with

    def before_run(self, runner: Runner) -> None:
        """Switch to training; have saves switch to evaluation."""
        trainer, fit = runner.trainer, Driver.of(runner.trainer).fit
        if not with_modes(trainer.optimizers):
            runner.logger.warning(
                "ScheduleFreeHook does nothing: no optimizer has the methods train() and eval()"
            )
            return
        for average in map(class_name, natives_with("_averages_weights", runner.hooks)):
            raise ValueError(
                f"{average} and ScheduleFreeHook both change the weights for a validation; a "
                f"schedule-free optimizer has an average of its own, so leave out {average}"
            )
        for owner in (trainer, runner):
            save = partial(self._save, trainer, owner.save_checkpoint)
            fit.patch(owner, "save_checkpoint", instead=save)
        fit.callback(self._end, trainer)
        self._runs = True
        self._switch(trainer, to_train=True)

    def _end(self, trainer: L.Trainer) -> None:
        self._switch(trainer, to_train=False)
        self._runs = False

    def _switch(self, trainer: L.Trainer, *, to_train: bool) -> None:
        if not self._runs:
            return
        for optimizer in with_modes(trainer.optimizers):
            (optimizer.train if to_train else optimizer.eval)()
        self._trains = to_train

    @contextlib.contextmanager
    def _around_evaluation(self, trainer: L.Trainer) -> Iterator[None]:
        """Switch to evaluation in the block, for a file or an evaluation in an iteration."""
        trained = self._trains
        self._switch(trainer, to_train=False)
        try:
            yield
        finally:
            if trained:
                self._switch(trainer, to_train=True)

    def _save(self, trainer: L.Trainer, save: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with self._around_evaluation(trainer):
            return save(*args, **kwargs)

    def before_train_epoch(self, runner: Runner) -> None:
        """Switch to training."""
        self._switch(runner.trainer, to_train=True)

    def after_train_epoch(self, runner: Runner) -> None:
        """Switch to evaluation, until the validation or the epoch has ended."""
        self._switch(runner.trainer, to_train=False)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Switch to evaluation, also within an epoch."""
        self._switch(trainer, to_train=False)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Switch to training."""
        self._switch(trainer, to_train=True)

    on_train_epoch_end = on_validation_end

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Switch to evaluation for good."""
        self._end(trainer)
