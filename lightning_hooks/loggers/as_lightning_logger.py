"""``hooks_logger``: a Lightning ``Logger`` that hands all values to the logger hooks of the run."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import lightning as L
from lightning.pytorch.loggers.logger import DummyLogger, Logger
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import logged_values, progress
from lightning_hooks.utils.samples import is_scalar
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.warn import warn

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["HooksLogger", "hooks_logger"]


def hooks_logger() -> HooksLogger:
    """Return a Lightning ``Logger`` that hands all values to the logger hooks in ``callbacks``.

    ``Trainer(logger=hooks_logger(), callbacks=[WandbLoggerHook(), ThroughputMonitor(...)])`` brings
    what Lightning's ``ThroughputMonitor``, ``DeviceStatsMonitor``, ``LearningRateMonitor`` and the
    user's ``trainer.logger.log_metrics`` log to every logger hook of the list, the text log too.

    ===========================================  ===================================================
    call                                         what each logger hook gets
    ===========================================  ===================================================
    ``logger.log_metrics({"psnr": 30.1})``       ``psnr``, at the hook's own iteration, in a line of
                                                 its own once the iteration is over
    ``logger.log_hyperparams({"seed": 1})``      hyper-parameters, beside the module's
    ``logger.experiment.log_image("x", image)``  an image; ``logger.experiment`` is the ``Runner``
    ===========================================  ===================================================

    Values that the module logs with ``self.log`` come to the hooks without this logger, and come
    once. A name that a hook's own line has, such as ``train/loss``, ends with ``_2`` for a value of
    this logger, and a warning says so. Of several values of a name in an iteration or a validation
    the last one counts. The values so far are logged before a checkpoint is written, so that a
    resumed run keeps them. A ``step`` given to ``log_metrics`` is not kept: the values have the
    hooks' iteration.

    >>> from lightning_hooks import TextLoggerHook
    >>> trainer = L.Trainer(
    ...     logger=hooks_logger(), callbacks=[TextLoggerHook()], enable_progress_bar=False
    ... )
    >>> type(trainer.logger).__name__
    'HooksLogger'
    """
    return HooksLogger()


class HooksLogger(Logger):
    """The logger of :func:`hooks_logger`."""

    trainer: L.Trainer | None = None
    """The Trainer of the logger hooks; set by their ``setup``."""

    def __init__(self) -> None:
        super().__init__()
        self.params: dict[str, Any] = {}
        """The hyper-parameters of the run, for trackers that begin later."""

    # Lightning joins directory, name and version for a ModelCheckpoint's files
    name = ""
    version = ""

    @property
    def save_dir(self) -> str | None:
        """The Trainer's root directory, as without a logger."""
        return None if self.trainer is None else self.trainer.default_root_dir

    @property
    def experiment(self) -> Any:
        """The ``Runner``, with ``log_image`` and the like; a dummy without a logger hook."""
        return self._find_runner() or DummyLogger().experiment

    def begin(self, trainer: L.Trainer) -> None:
        """Serve a fit or evaluation of a Trainer with logger hooks."""
        if self.trainer not in (None, trainer):
            self.params = {}
        self.trainer = trainer

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Hand numbers to the logger hooks, but for those that the module logs itself."""
        runner = self._find_runner()
        if runner is None:
            warn(
                "hooks_logger: the Trainer has no logger hook, so nothing is logged; write "
                "Trainer(logger=hooks_logger(), callbacks=[TextLoggerHook()]), or another"
            )
        if runner is None or not _takes_values(runner):
            return
        own, _ = logged_values.names_for_loggers(runner.trainer)
        values = {
            name: value
            for name, value in metrics.items()
            if name != "epoch" and name.removeprefix(logged_values.RAW) not in own
        }
        numbers = {name: value for name, value in values.items() if is_scalar(value)}
        if others := values.keys() - numbers.keys():
            text = f"hooks_logger: only numbers are logged, {', '.join(sorted(others))} is none"
            runner.warn_once(text)
        if not numbers:
            return
        of_run = (None, progress.logged_step(runner.trainer), runner.trainer.global_step)
        if runner.trainer.training and step not in of_run:
            runner.warn_once(
                f"hooks_logger: the step given with {', '.join(numbers)} is not kept, the values "
                "have the hooks' iteration"
            )
        for hook in natives_with("_log_given", runner.hooks):
            hook._log_given(runner, numbers)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Hand hyper-parameters to the logger hooks."""
        given = vars(params) if isinstance(params, Namespace) else dict(params or {})
        given = dict(masked(given))
        self.params.update(given)
        runner = self._find_runner()
        if runner is not None and _takes_values(runner):
            for hook in natives_with("_log_params", runner.hooks):
                hook._log_params(runner, given)

    def _find_runner(self) -> Runner | None:
        if self.trainer is None:  # before the hooks' setup, too
            return None
        return Driver.of(self.trainer).runner_for(self.trainer, self.trainer.lightning_module)


def _takes_values(runner: Runner) -> bool:
    """Whether the hooks log at present: on the first rank, not in a sanity check."""
    trainer = runner.trainer
    if not trainer.is_global_zero or trainer.sanity_checking:
        return False
    if trainer.state.fn == TrainerFn.PREDICTING:
        runner.warn_once("hooks_logger logs in fit, validate and test, not in predict")
        return False
    return True
