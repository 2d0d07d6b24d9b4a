"""``Engine``: runs the batches of mmengine's Runner in a ``lightning.Trainer``."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.facade import scalars_of
from lightning_hooks.engine.lightning_api import data, progress, validation
from lightning_hooks.engine.lightning_api.loop_trainer import device_of, loop_trainer
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
"""Arguments of the Trainer set by mmengine's config, with the entry of the config."""


class Engine:
    """Runs the batches of a runner's loops in Lightning's loops.

    Args:
        runner: The runner.
        options: Arguments of the Trainer.

    Raises:
        ValueError: for an argument set by mmengine's config.
    """

    def __init__(self, runner: Any, options: dict[str, Any]) -> None:
        for name in options:
            if name in _CONFIGURED:
                raise ValueError(
                    f"trainer must not have {name}: as in mmengine, {_CONFIGURED[name]} sets it"
                )
        self._runner = runner
        self._options = options
        self.module: LoopModule | None = None
        """The module of the current training."""

    @functools.cached_property
    def trainer(self) -> L.Trainer:
        """The Trainer of training, validation and test."""
        options = {"default_root_dir": self._runner.work_dir, **self._options}
        return loop_trainer(device_of(self._runner.model), **options)

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
            next(loop.dataloader_iterator)  # skip the batches before a resumed run
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
        module: Any = self.module if fitting else LoopModule(unwrap(runner.model))
        evaluation = module.evaluation = EvaluationPass(runner, loop, stage)
        if fitting:
            validation.run_validation(trainer, evaluation)
        else:
            run = trainer.validate if stage == "val" else trainer.test
            run(module, evaluation, verbose=False)
            self._restore_device()
        runner.model.eval()  # mmengine leaves the model in eval mode; Lightning restored the flags
        runner.call_hook(f"after_{stage}")
        return evaluation.metrics

    def _fit(self, training: Training) -> None:
        self.module = LoopModule(unwrap(self._runner.model), training)
        wrapper = self._runner.optim_wrapper
        wrappers = wrapper.values() if isinstance(wrapper, dict) else [wrapper]
        self.module.all_optimizers = [each.optimizer for each in wrappers]
        counts = [
            optimizer.register_step_post_hook(lambda *_: progress.count_step(self.trainer))
            for optimizer in self.module.all_optimizers
        ]
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*have no `val_dataloader`")
                self.trainer.fit(self.module, training)
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


# -- mmengine's loops in Lightning's events --------------------------------------------------


def goes_on(loop: Any, *, by_epoch: bool) -> bool:
    """Return whether a training loop has remaining epochs or iterations."""
    done, length = (loop.epoch, loop.max_epochs) if by_epoch else (loop.iter, loop.max_iters)
    return bool(done < length and not getattr(loop, "stop_training", False))


class Training:
    """A training of mmengine: Lightning's events, and a loader of the batches.

    The class is no DataLoader, so that Lightning does not replace samplers.

    Args:
        runner: The runner.
        loop: Its training loop.
    """

    by_epoch = False

    def __init__(self, runner: Any, loop: Any) -> None:
        self._runner = runner
        self.loop = loop

    def begin_epoch(self, trainer: L.Trainer) -> None:
        """Start an epoch of the Trainer."""

    def end_batch(self, trainer: L.Trainer) -> None:
        """End an iteration."""

    def _validate(self, trainer: L.Trainer, done: int, length: int) -> None:
        """Validate if due: every ``val_interval``, and last; end a finished run."""
        loop = self.loop
        loop._decide_current_val_interval()
        is_due = done % loop.val_interval == 0 or done == length
        if self._runner.val_loop is not None and done >= loop.val_begin and is_due:
            self._runner.val_loop.run()
        if not goes_on(loop, by_epoch=self.by_epoch):
            trainer.should_stop = True


class Epochs(Training):
    """A training by epoch, with mmengine's ``EpochBasedTrainLoop``."""

    by_epoch = True

    def __len__(self) -> int:
        return len(self.loop.dataloader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loop.dataloader  # after the hooks, which may replace the loader

    def begin_epoch(self, trainer: L.Trainer) -> None:
        """Call ``before_train_epoch``, then start the loader; hooks may replace the loader."""
        self._runner.call_hook("before_train_epoch")
        self._runner.model.train()
        if trainer.limit_train_batches == 1.0:
            data.set_train_length(trainer, len(self))
        data.renew_iterator(trainer)

    def run_iter(self, batch: Any, batch_idx: int) -> None:
        """Run one batch."""
        self.loop.run_iter(batch_idx, batch)

    def end_epoch(self, trainer: L.Trainer) -> None:
        """Call ``after_train_epoch``, validate if due, and end a finished run."""
        self._runner.call_hook("after_train_epoch")
        self.loop._epoch += 1
        self._validate(trainer, self.loop.epoch, self.loop.max_epochs)


class Iterations(Training):
    """A training by iteration, with mmengine's ``IterBasedTrainLoop``: one epoch in Lightning."""

    def __len__(self) -> int:
        return int(self.loop.max_iters - self.loop.iter)

    def __iter__(self) -> Iterator[Any]:
        while True:
            self._runner.model.train()
            yield next(self.loop.dataloader_iterator)  # hooks may replace the iterator

    def run_iter(self, batch: Any, batch_idx: int) -> None:
        """Run one batch."""
        self.loop.run_iter(batch)

    def end_batch(self, trainer: L.Trainer) -> None:
        """Validate if due, and end a finished run."""
        self._validate(trainer, self.loop.iter, self.loop.max_iters)

    def end_epoch(self, trainer: L.Trainer) -> None:
        """End the run."""
        trainer.should_stop = True


class EvaluationPass:
    """A pass of mmengine's ``ValLoop`` or ``TestLoop``, and a loader of the batches.

    Args:
        runner: The runner.
        loop: The loop.
        stage: ``val`` or ``test``.
    """

    def __init__(self, runner: Any, loop: Any, stage: str) -> None:
        self._runner = runner
        self.loop = loop
        self._stage = stage
        self.metrics: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.loop.dataloader)

    def __iter__(self) -> Iterator[Any]:
        yield from self.loop.dataloader

    def finish(self) -> dict[str, Any]:
        """Evaluate, and call ``after_{stage}_epoch`` with the metrics; return the metrics."""
        from mmengine.runner import loops

        self.metrics = self.loop.evaluator.evaluate(len(self.loop.dataloader.dataset))
        losses = getattr(self.loop, f"{self._stage}_loss", None)
        if losses:
            self.metrics.update(loops._parse_losses(losses, self._stage))
        self._runner.call_hook(f"after_{self._stage}_epoch", metrics=self.metrics)
        return self.metrics


class LoopModule(L.LightningModule):
    """The LightningModule of a runner, with the iterations of mmengine's loops as steps.

    Args:
        model: The model.
        training: The training; None in a validation or test outside of a training.
    """

    def __init__(self, model: torch.nn.Module, training: Any = None) -> None:
        super().__init__()
        self.automatic_optimization = False  # mmengine's optimizer wrapper does backward and step
        self.model = model
        self._loops = training
        self.evaluation: Any = None
        """The ``EvaluationPass`` of a validation or test."""
        self.all_optimizers: list[torch.optim.Optimizer] = []
        self.outputs: Any = None
        """The result of the training step, as passed to hooks."""

    def configure_optimizers(self) -> Any:
        """Return the optimizers inside mmengine's wrappers."""
        return self.all_optimizers

    def transfer_batch_to_device(
        self, batch: Any, device: torch.device, dataloader_idx: int
    ) -> Any:
        """Return the batch unchanged, for the model's data preprocessor."""
        return batch

    def on_train_start(self) -> None:
        """Set Lightning's counters in a resumed run."""
        loop = self._loops.loop
        progress.set_batches(self.trainer, loop.iter)
        if isinstance(self._loops, Epochs):
            progress.set_epoch(self.trainer, loop.epoch)

    def on_train_epoch_start(self) -> None:
        """Start the epoch of mmengine's loop."""
        self._loops.begin_epoch(self.trainer)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Run an iteration of mmengine's loop; log the losses for Lightning's callbacks."""
        self._loops.run_iter(batch, batch_idx)
        if isinstance(self.outputs, dict):
            self.log_dict(scalars_of(self.outputs), batch_size=1)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the iteration."""
        self._loops.end_batch(self.trainer)

    def on_train_epoch_end(self) -> None:
        """End the epoch of mmengine's loop."""
        self._loops.end_epoch(self.trainer)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Run an iteration of mmengine's validation or test."""
        self.evaluation.loop.run_iter(batch_idx, batch)

    def on_validation_epoch_end(self) -> None:
        """Evaluate; log the metrics for Lightning's callbacks."""
        self.log_dict(scalars_of(self.evaluation.finish()), batch_size=1)

    test_step = validation_step
    on_test_epoch_end = on_validation_epoch_end
