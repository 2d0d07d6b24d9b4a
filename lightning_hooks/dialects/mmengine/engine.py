"""``Engine``: the ``lightning.Trainer`` that runs the batches of mmengine's Runner."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.mmengine.loop_module import LoopModule
from lightning_hooks.dialects.mmengine.phases import Epochs, Evaluation, Iterations, goes_on
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.engine.runner.model_wrapper import unwrap

__all__ = ["Engine"]

_CONFIGURED = {
    "max_epochs": "train_cfg",
    "max_steps": "train_cfg",
    "min_epochs": "train_cfg",
    "min_steps": "train_cfg",
    "check_val_every_n_epoch": "train_cfg",
    "val_check_interval": "train_cfg",
    "accumulate_grad_batches": "optim_wrapper.accumulative_counts",
    "gradient_clip_val": "optim_wrapper.clip_grad",
    "accelerator": "the device of mmengine",
    "devices": "mmengine's launcher",
    "num_nodes": "mmengine's launcher",
    "strategy": "mmengine's launcher and model_wrapper_cfg",
}
"""Arguments of the Trainer that mmengine's config sets, and by which of its entries."""


class Engine:
    """Runs the batches of a runner's loops in Lightning's.

    Args:
        runner: The runner.
        options: Arguments of the Trainer.

    Raises:
        ValueError: for an argument that mmengine's config sets.
    """

    def __init__(self, runner: Any, options: dict[str, Any]) -> None:
        for name in options:
            if name in _CONFIGURED:
                raise ValueError(
                    f"trainer must not have {name}: as in mmengine, {_CONFIGURED[name]} sets it"
                )
        self._runner = runner
        self._options = options
        self._trainer: L.Trainer | None = None
        self.module: LoopModule | None = None
        """The module of a training that goes on."""

    @property
    def trainer(self) -> L.Trainer:
        """The Trainer; the same for training, validation and test."""
        if self._trainer is None:
            self._trainer = self._make_trainer()
        return self._trainer

    def _make_trainer(self) -> L.Trainer:
        device = next((p.device for p in self._runner.model.parameters()), torch.device("cpu"))
        index = 1 if device.type == "cpu" else [device.index or 0]
        arguments = {
            "accelerator": device.type if device.type != "cuda" else "gpu",
            "devices": index,
            "max_epochs": -1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "use_distributed_sampler": False,
            "inference_mode": False,
            "num_sanity_val_steps": 0,
            "default_root_dir": self._runner.work_dir,
            **self._options,
        }
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*available but not used")  # the model's device
            return L.Trainer(**arguments)

    # -- mmengine's loops ------------------------------------------------------------------

    def train_epochs(self, loop: Any) -> Any:
        """Train as mmengine's ``EpochBasedTrainLoop``; return the model."""
        runner = self._runner
        runner.call_hook("before_train")
        if goes_on(loop, by_epoch=True):
            self._fit(Epochs(runner, loop))
        runner.call_hook("after_train")
        return runner.model

    def train_iterations(self, loop: Any) -> Any:
        """Train as mmengine's ``IterBasedTrainLoop``; return the model."""
        runner = self._runner
        runner.call_hook("before_train")
        runner.call_hook("before_train_epoch")
        for _ in range(loop.iter):
            next(loop.dataloader_iterator)  # those before a resumed run
        if goes_on(loop, by_epoch=False):
            self._fit(Iterations(runner, loop))
        runner.call_hook("after_train_epoch")
        runner.call_hook("after_train")
        return runner.model

    def evaluate(self, loop: Any, stage: str) -> Any:
        """Validate or test as mmengine's ``ValLoop`` and ``TestLoop``; return the metrics."""
        runner, trainer = self._runner, self.trainer
        runner.call_hook(f"before_{stage}")
        runner.call_hook(f"before_{stage}_epoch")
        runner.model.eval()
        getattr(loop, f"{stage}_loss", {}).clear()
        fitting = trainer.state.fn == TrainerFn.FITTING and self.module is not None
        module = self.module if fitting else LoopModule(unwrap(runner.model))
        assert module is not None
        module.evaluation = Evaluation(runner, loop, stage)
        batches = Batches(lambda: len(loop.dataloader), lambda: iter(loop.dataloader))
        if fitting:
            validation.run_validation(trainer, batches)
        else:
            run = trainer.validate if stage == "val" else trainer.test
            run(module, batches, verbose=False)
            self._restore_device()
        runner.model.eval()  # Lightning has restored the flags: mmengine leaves it so
        runner.call_hook(f"after_{stage}")
        return module.evaluation.metrics

    def _fit(self, training: Epochs | Iterations) -> None:
        self.module = LoopModule(unwrap(self._runner.model), training)
        wrapper = self._runner.optim_wrapper
        wrappers = wrapper.values() if isinstance(wrapper, dict) else [wrapper]
        self.module.all_optimizers = [one.optimizer for one in wrappers]
        counts = [
            optimizer.register_step_post_hook(lambda *_: progress.count_step(self.trainer))
            for optimizer in self.module.all_optimizers
        ]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*have no `val_dataloader`")
                self.trainer.fit(self.module, Batches(training.length, training.batches))
        finally:
            self.module = None
            for count in counts:
                count.remove()
            self._restore_device()

    def _restore_device(self) -> None:
        """Move the model back: Lightning leaves it on the CPU."""
        device = self.trainer.strategy.root_device
        if device.type != "cpu":
            self._runner.model.to(device)


class Batches:
    """A loader for Lightning that is first iterated at the first batch, after the hooks.

    It is no DataLoader, so that Lightning does not replace samplers.
    """

    def __init__(self, length: Callable[[], int], batches: Callable[[], Iterator[Any]]) -> None:
        self._length = length
        self._batches = batches

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> Iterator[Any]:
        yield from self._batches()
