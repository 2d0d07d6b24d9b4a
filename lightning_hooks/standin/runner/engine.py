"""Make the ``lightning.Trainer`` of a runner, and run the runner's loop inside a fit."""

from __future__ import annotations

import contextlib
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import RunningStage

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.driver.ownership import has_foreign
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.hook_callback import RunnerOptions
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.standin.runner.strategy import distributed_arguments
from lightning_hooks.train_step import TrainStepModule
from lightning_hooks.utils.arguments import shown

if TYPE_CHECKING:
    from lightning_hooks.standin.runner.base_runner import BaseRunner

__all__ = ["Engine", "RunnerModule", "check_workflow", "make_trainer"]

LOOP_ARGUMENTS = {
    *("max_epochs", "max_steps", "max_time", "min_epochs", "min_steps", "fast_dev_run"),
    *("limit_train_batches", "limit_val_batches", "overfit_batches", "val_check_interval"),
    *("check_val_every_n_epoch", "reload_dataloaders_every_n_epochs", "accumulate_grad_batches"),
    *("gradient_clip_val", "gradient_clip_algorithm", "logger", "log_every_n_steps"),
    *("enable_progress_bar", "enable_checkpointing", "profiler", "barebones"),
}
"""Arguments of the Trainer that the runner's loop and its hooks replace."""


def check_workflow(runner: BaseRunner, data_loaders: Any, workflow: Any) -> None:
    """Raise an error unless each ``(method of the runner, count)`` has a loader."""
    if not isinstance(data_loaders, list):
        raise TypeError(f"data_loaders must be a list, got {type(data_loaders).__name__}")
    if not (isinstance(workflow, list) and all(isinstance(w, tuple) for w in workflow)):
        raise TypeError(f"workflow must be a list of tuples, got {shown(workflow)}")
    if not workflow or len(data_loaders) != len(workflow):
        raise ValueError(
            f"there must be a data loader for each part of the workflow, got "
            f"{len(data_loaders)} for {workflow!r}"
        )
    for mode, _ in workflow:
        if not isinstance(mode, str):
            raise TypeError(f"mode in workflow must be a str, but got {type(mode)}")
        if not hasattr(runner, mode):
            raise ValueError(f'runner has no method named "{mode}" to run an epoch')


def make_trainer(
    model: torch.nn.Module, work_dir: str | None, engine: Engine, options: dict[str, Any]
) -> L.Trainer:
    """Make the Trainer of a runner: quiet, on the model's device.

    Args:
        model: The model; in a process group, all ranks train together.
        work_dir: The Trainer's ``default_root_dir``.
        engine: The callback that runs the runner's loop.
        options: Further arguments of the Trainer, which override the defaults here.

    Raises:
        ValueError: for an argument in ``LOOP_ARGUMENTS``.
    """
    taken = sorted(LOOP_ARGUMENTS.intersection(options))
    if taken:
        raise ValueError(
            f"trainer_kwargs must not have {', '.join(taken)}: the runner's loop and its hooks set "
            "the length of the run, accumulate and clip gradients, log and save"
        )
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    arguments = {
        "accelerator": device.type,
        "devices": 1 if device.type == "cpu" else [device.index or 0],
        "max_epochs": -1,  # the loop ends
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "inference_mode": False,
        "num_sanity_val_steps": 0,
        "default_root_dir": work_dir or os.getcwd(),
        **distributed_arguments(device),
        **options,
        "callbacks": [LoopDriver(), engine, *options.get("callbacks", [])],
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*available but not used")  # the model's device counts
        return L.Trainer(**arguments)


@contextlib.contextmanager
def _raising_interrupts() -> Iterator[None]:
    """Let a KeyboardInterrupt out of a fit, as mmcv does.

    Lightning exits instead, and ignores further interrupts.
    """
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise error.__context__ from None


class RunnerModule(TrainStepModule):
    """The LightningModule of a runner; the runner's loop calls the model.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: BaseRunner) -> None:
        L.LightningModule.__init__(self)
        self._set_model(unwrap(runner.model), runner.optimizer)
        self.automatic_optimization = False

    def on_train_start(self) -> None:
        """Run the runner's loop instead of Lightning's: all callbacks have started."""
        callbacks: list[Any] = self.trainer.callbacks  # type: ignore[attr-defined]
        next(callback for callback in callbacks if isinstance(callback, Engine)).run(self.trainer)


class LoopDriver(Driver):
    """The driver of a runner whose own loop calls the hooks and counts.

    As in mmcv, no call of a hook is isolated from the model's state.
    """

    def begin_hooks(self, with_foreign: bool) -> None:
        """Leave the points to the loop, and the loss to the setter of the runner's ``outputs``."""
        self.runner.wrap_outputs = None

    def begin_cycle(self) -> None:
        """Do nothing: the loop opens the epochs."""

    def end_hooks(self) -> None:
        """Do nothing: the loop closes the epochs."""


class Engine(Hook):
    """The callback that connects a runner and the runner's hooks to the Trainer.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: BaseRunner) -> None:
        self._runner = runner
        self._loop: Callable[[], object] = list
        self.driver: Driver | None = None
        """The Trainer's driver; None outside of a run."""

    def _entries(self) -> Sequence[tuple[Any, int]]:
        """Return the runner's hooks with priorities."""
        return self._runner.hooks.entries()

    def _runner_options(self) -> RunnerOptions:
        """Return the driver's options; with foreign hooks, hooks own backward and step."""
        owned = True if has_foreign(self._runner.hooks) else None
        return RunnerOptions(runner=self._runner, owns_backward=owned)

    def fit(self, loop: Callable[[], object], batches: int = 1) -> None:
        """Run a loop inside a fit.

        Args:
            loop: The loop.
            batches: Number of batches of an epoch.
        """
        runner, self._loop = self._runner, loop
        runner.inner_iter_before_run = runner.inner_iter
        runner.adopt_optimizer()
        runner.trainer.should_stop = False  # of an earlier run: Lightning 2.4 and 2.5.0 keep it
        devices = [(t, t.device) for t in (*runner.module.parameters(), *runner.module.buffers())]
        with warnings.catch_warnings():
            # a run without training needs no optimizer; the loop runs validations
            warnings.filterwarnings("ignore", ".*configure_optimizers.*returned `None`")
            warnings.filterwarnings("ignore", ".*have no `val_dataloader`")
            with _raising_interrupts():
                runner.trainer.fit(runner.module, train_dataloaders=range(max(batches, 1)))
        if devices and devices[0][1].type != "cpu":  # Lightning has moved the model to the CPU
            unwrap(runner.model).to(devices[0][1])

    def run(self, trainer: L.Trainer) -> None:
        """Run the runner's loop; then end the fit."""
        self.driver = Driver.of(trainer)
        counting: Any = trainer.fit_loop.epoch_loop.manual_optimization
        counting.on_run_start()  # the optimizer's steps are then the Trainer's, too
        try:
            self._loop()
        finally:
            counting.on_run_end()
            self.driver = None
        trainer.should_stop = True

    def call_event(self, event: str, *arguments: Any) -> None:
        """Call an event of the Trainer's callbacks, native hooks included, as Lightning does.

        A native hook without use for the event has None in place of the method.
        """
        trainer, module = self._runner.trainer, self._runner.module
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            call = getattr(callback, event)
            if callable(call) and callback is not self and callback is not self.driver:
                call(trainer, module, *arguments)

    @contextlib.contextmanager
    def validation(self) -> Iterator[None]:
        """Call a validation's events around the block."""
        with setting(self._runner.trainer.state, stage=RunningStage.VALIDATING):
            self.call_event("on_validation_start")
            self.call_event("on_validation_epoch_start")
            yield
            self.call_event("on_validation_epoch_end")
            self.call_event("on_validation_end")
