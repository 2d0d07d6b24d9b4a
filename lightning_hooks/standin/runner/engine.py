"""Drive a ``lightning.Trainer`` through a workflow of mmcv's."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.driver.join import JoinsTrainer
from lightning_hooks.engine.driver.ownership import is_ours
from lightning_hooks.engine.lightning_api import data, progress, validation
from lightning_hooks.engine.participant import RunnerOptions
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.standin.runner.strategy import distributed_arguments
from lightning_hooks.train_step import TrainStepModule

__all__ = ["Batches", "Engine", "LastValues", "RunnerModule", "check_workflow", "make_trainer"]

RUNNER_SETS = ("max_epochs", "max_steps", "min_epochs", "min_steps", "accumulate_grad_batches")
"""Arguments of the Trainer that the runner sets."""


class LastValues(LogBuffer):
    """A log buffer whose windows are the last values of each key, as in mmcv."""

    def window(self, n: int) -> dict[str, float]:
        """Return the averages of the last ``n`` values."""
        return self.means(dict.fromkeys(self.val_history, n))


def check_workflow(data_loaders: Any, workflow: Any) -> None:
    """Raise an error unless there is a loader for each ``("train" or "val", count)``."""
    if not isinstance(data_loaders, list):
        raise TypeError(f"data_loaders must be a list, got {type(data_loaders).__name__}")
    if not (isinstance(workflow, list) and all(isinstance(w, tuple) for w in workflow)):
        raise TypeError(f"workflow must be a list of tuples, got {workflow!r}")
    if not workflow or len(data_loaders) != len(workflow):
        raise ValueError(
            f"there must be a data loader for each part of the workflow, got "
            f"{len(data_loaders)} for {workflow!r}"
        )
    for mode, _ in workflow:
        if not isinstance(mode, str):
            raise TypeError(f"mode in workflow must be a str, but got {type(mode)}")
        if mode not in ("train", "val"):
            raise ValueError(
                f'runner has no method named "{mode}" to run an epoch; '
                'the stand-in has "train" and "val"'
            )


def make_trainer(
    model: torch.nn.Module, work_dir: str | None, engine: Engine, options: dict[str, Any]
) -> L.Trainer:
    """Make the Trainer of a runner: quiet, endless, on the model's device.

    Args:
        model: The model; in a process group, all ranks train together.
        work_dir: The Trainer's ``default_root_dir``.
        engine: The callback that drives it.
        options: Further arguments, which override these.

    Raises:
        ValueError: for an argument that the runner sets itself.
    """
    taken = [name for name in RUNNER_SETS if name in options]
    if taken:
        raise ValueError(
            f"trainer_kwargs must not have {', '.join(taken)}: the runner's max_epochs or "
            "max_iters, and its hooks, set the length of the run and how gradients accumulate"
        )
    arguments = {
        "max_epochs": -1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
        "inference_mode": False,
        "num_sanity_val_steps": 0,
        "default_root_dir": work_dir or os.getcwd(),
        **_device_arguments(model),
        **options,
        "callbacks": [engine, *options.get("callbacks", [])],
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*available but not used")  # the model chose the device
        return L.Trainer(**arguments)


def _device_arguments(model: torch.nn.Module) -> dict[str, Any]:
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    distributed = distributed_arguments(device)
    if distributed:
        return distributed
    if device.type == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    return {"accelerator": device.type, "devices": [device.index or 0]}


class RunnerModule(TrainStepModule):
    """The LightningModule of a runner: a step calls the runner's ``run_iter``.

    Args:
        runner: The runner, kept as a weak reference.
    """

    def __init__(self, runner: Any) -> None:
        L.LightningModule.__init__(self)
        optimizer = runner.optimizer
        named = isinstance(optimizer, dict)
        self.model = unwrap(runner.model)
        self._optimizers = dict(optimizer) if named else {"": optimizer}
        self.optimizer_names = list(self._optimizers) if named else None
        self.automatic_optimization = False
        self._runner = weakref.ref(runner)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """Run the runner's training iteration."""
        runner: Any = self._runner()
        runner.run_iter(batch, train_mode=True, **runner._step_kwargs)
        return runner.outputs

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        """Run the runner's validation iteration."""
        runner: Any = self._runner()
        runner.run_iter(batch, train_mode=False)
        return runner.outputs

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Leave the batch to the model's wrapper, as mmcv does."""
        return batch


class Batches:
    """The training loader for Lightning: one epoch yields the runner's batches.

    It is no DataLoader, so that Lightning does not replace samplers. The runner's loader is first
    iterated at the first batch, after hooks have prepared their data.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner

    def __len__(self) -> int:
        return int(self._runner.number_of_batches())

    def __iter__(self) -> Iterator[Any]:
        yield from self._runner.batches()


class Portion:
    """The loader of one validation: a whole loader, or ``number`` batches of an iterator."""

    def __init__(self, runner: Any, number: int | None = None) -> None:
        self._runner = runner
        self._number = number
        self._rest: Iterator[Any] = iter(())

    def __len__(self) -> int:
        return len(self._runner.data_loader) if self._number is None else self._number

    def __iter__(self) -> Iterator[Any]:
        loader = self._runner.data_loader
        if self._number is None:
            self._rest = iter(loader)
            yield from self._rest
        for _ in range(self._number or 0):
            yield next(loader)

    def finish(self) -> None:
        """Exhaust the loader, as a ``for`` loop does."""
        next(self._rest, None)


class Engine(JoinsTrainer):
    """The callback that connects a runner and its hooks to the Trainer.

    Args:
        runner: The runner.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._loop: Callable[[], object] | None = None

    def entries(self) -> Sequence[tuple[Any, int]]:
        """Return the runner's hooks with their priorities."""
        hooks = self._runner.hooks
        return [(hook, hooks.priority_of(hook)) for hook in hooks]

    def options(self) -> RunnerOptions:
        """Return the runner as an option; foreign hooks may own backward and step."""
        has_foreign = any(not is_ours(hook) for hook in self._runner.hooks)
        return RunnerOptions(runner=self._runner, owns_backward=True if has_foreign else None)

    def fit(self, loop: Callable[[], object] | None = None) -> None:
        """Run the whole workflow, or a loop of the runner's own."""
        runner, self._loop = self._runner, loop
        runner.inner_iter_before_run = runner.inner_iter
        runner.adopt_optimizer()
        devices = [(t, t.device) for t in (*runner.module.parameters(), *runner.module.buffers())]
        with warnings.catch_warnings():
            # validation alone needs no optimizer; the workflow runs the validations
            warnings.filterwarnings("ignore", ".*configure_optimizers.*returned `None`")
            warnings.filterwarnings("ignore", ".*have no `val_dataloader`")
            batches = Batches(runner) if loop is None else range(1)  # a loop has its own
            runner.trainer.fit(runner.module, train_dataloaders=batches)
        if devices and devices[0][1].type != "cpu":  # Lightning has moved it to the CPU
            unwrap(runner.model).to(devices[0][1])

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Run the part of the workflow before the first training epoch; or the runner's loop."""
        if self._loop is None:
            self._runner.begin_workflow()
            return
        with progress.counting_steps(trainer):
            self._loop()
        trainer.should_stop = True

    def with_strategy_loss(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Return a step's outputs with a loss whose backward goes through the strategy."""
        return Driver.of(self._runner.trainer).with_strategy_loss(outputs)

    def precision(self) -> AbstractContextManager[None]:
        """Return the context of the Trainer's precision for a step."""
        return self._runner.trainer.precision_plugin.train_step_context()  # type: ignore[no-any-return]

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Iterate the loader that hooks may have replaced."""
        if trainer.limit_train_batches == 1.0:
            data.set_train_length(trainer, self._runner.number_of_batches())
        data.renew_iterator(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Run the part of the workflow before the next training epoch."""
        if not trainer.should_stop:
            self._runner.go_on()

    def validate(self, number: int | None = None) -> None:
        """Validate with Lightning on the runner's loader: all of it, or ``number`` batches."""
        runner = self._runner
        runner.model.eval()  # the wrapper too: Lightning switches the model inside only
        portion = Portion(runner, number)
        validation.run_validation(runner.trainer, portion)
        portion.finish()
        runner.model.eval()  # as mmcv leaves it
