"""``RunnerFacade``: a run as mmengine's hooks see it."""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager
from typing import Any

from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.mmengine.loops import TestLoop, TrainLoop, ValLoop
from lightning_hooks.dialects.mmengine.message_hub import MessageHub, library_hubs
from lightning_hooks.dialects.mmengine.optim import (
    OptimWrapper,
    OptimWrapperDict,
    Visualizer,
    load_states_of,
    states_of,
)
from lightning_hooks.dialects.mmengine.runtime_info import EmptyConfig, RuntimeInfo
from lightning_hooks.dialects.mmengine.train_flags import BORDERS, TrainFlags
from lightning_hooks.storage import files, torch_files

__all__ = ["RunnerFacade"]


class RunnerFacade(Facade):
    """The attributes of mmengine's Runner that hooks use.

    ``cfg``, ``param_schedulers``, ``visualizer``, ``log_processor`` and ``experiment_name`` may be
    given by ``HookAdapter(attributes=...)``. In a run without a ``RuntimeInfoHook`` the message
    hub gets the entries of :class:`~lightning_hooks.dialects.mmengine.runtime_info.RuntimeInfo`.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._loops = TrainLoop(self), ValLoop(self), TestLoop(self)
        self.message_hub = MessageHub()
        self._visualizer = Visualizer(runner)
        self._info: RuntimeInfo | None = None
        self._flags = TrainFlags(runner)
        self._resume = False
        self.metrics: dict[str, float] = {}
        """The results of the last validation or test."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; those that mmengine's Runner computes raise AttributeError."""
        if name in _GIVEN:
            setattr(self._runner, name, value)
        elif name in _COMPUTED:
            raise AttributeError(f"{name!r} has no setter, as in mmengine's Runner")
        else:
            super().__setattr__(name, value)

    # -- attributes ------------------------------------------------------------------------

    @property
    def train_loop(self) -> TrainLoop:
        """The loop of training."""
        return self._loops[0]

    @property
    def _val_loop(self) -> ValLoop:
        return self._loops[1]

    @property
    def test_loop(self) -> TestLoop:
        """The loop of a test."""
        return self._loops[2]

    _train_loop, _test_loop = train_loop, test_loop

    @property
    def epoch(self) -> int:
        """Number of finished epochs; a run that is counted in iterations is one epoch."""
        return self.train_loop.epoch

    @property
    def max_epochs(self) -> Any:
        """Number of epochs of the run."""
        return self.train_loop.max_epochs

    @property
    def optim_wrapper(self) -> Any:
        """The optimizer in a wrapper, or a dict of several by name."""
        optimizer = self._runner.optimizer
        if isinstance(optimizer, dict):
            return OptimWrapperDict({name: OptimWrapper(one) for name, one in optimizer.items()})
        return OptimWrapper(optimizer)

    @property
    def train_dataloader(self) -> Any:
        """The training loader."""
        return self.train_loop.dataloader

    @property
    def val_loop(self) -> ValLoop | None:
        """The loop of validations; None in a run without any, as there."""
        trainer = self._runner.trainer
        validates = trainer.enable_validation or trainer.state.fn == TrainerFn.VALIDATING
        return self._val_loop if validates else None

    @property
    def val_dataloader(self) -> Any:
        """The validation loader."""
        return self._val_loop.dataloader

    @property
    def test_dataloader(self) -> Any:
        """The test loader."""
        return self.test_loop.dataloader

    @property
    def distributed(self) -> bool:
        """Whether several processes train the model."""
        return bool(self._runner.world_size > 1)

    @property
    def val_interval(self) -> Any:
        """Number of epochs, or iterations, between two validations."""
        return self.train_loop.val_interval

    @property
    def param_schedulers(self) -> Any:
        """Those of ``HookAdapter(attributes=...)``, else None: Lightning steps its own."""
        return self._user_attribute("param_schedulers")

    @property
    def visualizer(self) -> Any:
        """That of ``HookAdapter(attributes=...)``, else one for the Trainer's loggers."""
        return self._user_attribute("visualizer") or self._visualizer

    @property
    def log_processor(self) -> Any:
        """That of ``HookAdapter(attributes=...)``, else mmengine's own.

        Raises:
            ImportError: if none was given and mmengine is not installed.
        """
        if self._user_attribute("log_processor") is None:
            from mmengine.runner import LogProcessor

            by_epoch = self._runner.counts_epochs
            self._runner.log_processor = LogProcessor(by_epoch=by_epoch)
        return self._user_attribute("log_processor")

    @property
    def log_dir(self) -> str:
        """The directory of the run's logs."""
        folder = str(os.path.join(self._runner.work_dir, self._runner.timestamp))
        files.make_directory(folder)
        return folder

    _log_dir = log_dir

    @property
    def experiment_name(self) -> str:
        """The name of the run."""
        own = f"{os.path.basename(self._runner.work_dir)}_{self._runner.timestamp}"
        return str(self._user_attribute("experiment_name") or own)

    @property
    def seed(self) -> Any:
        """The seed of ``seed_everything``, if it was called."""
        seed = os.environ.get("PL_GLOBAL_SEED")
        return None if seed is None else int(seed)

    @property
    def cfg(self) -> Any:
        """The config of ``HookAdapter(attributes=...)``, else an empty one."""
        cfg = self._user_attribute("cfg")
        return EmptyConfig() if cfg is None else cfg

    # -- checkpoints -----------------------------------------------------------------------

    def save_checkpoint(
        self,
        out_dir: str,
        filename: str,
        file_client_args: Any = None,
        save_optimizer: bool = True,
        save_param_scheduler: bool = True,
        meta: dict[str, Any] | None = None,
        by_epoch: bool = True,
        backend_args: Any = None,
    ) -> None:
        """Write a checkpoint in mmengine's layout, after all hooks' ``before_save_checkpoint``."""
        counters = {"epoch": self.epoch + by_epoch, "iter": self.iter + (not by_epoch)}
        meta = {**counters, **(meta or {}), "cfg": getattr(self.cfg, "pretty_text", "")}
        meta |= {"seed": self.seed, "experiment_name": self.experiment_name}
        meta["time"] = time.strftime("%Y%m%d_%H%M%S")
        if self.train_loop.metainfo is not None:
            meta["dataset_meta"] = self.train_loop.metainfo
        checkpoint = {"meta": meta, "state_dict": torch_files.to_cpu(self.model.state_dict())}
        if save_optimizer:
            checkpoint["optimizer"] = self.optim_wrapper.state_dict()
        self.save(checkpoint)
        if not save_param_scheduler:
            checkpoint.pop("param_schedulers", None)
        self.call_hook("before_save_checkpoint", checkpoint=checkpoint)
        if self._runner.rank == 0:
            torch_files.save_torch(checkpoint, files.join(out_dir, filename))

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add message hub and schedulers to a checkpoint, as mmengine does."""
        checkpoint["message_hub"] = self.message_hub.state_dict()
        if self.param_schedulers:
            checkpoint["param_schedulers"] = states_of(self.param_schedulers)

    def load_states(self) -> None:
        """Restore hooks, message hub and schedulers from a checkpoint."""
        super().load_states()
        checkpoint = self._loaded_checkpoint()
        self._resume = checkpoint is not None
        if checkpoint is not None:
            self.message_hub.load_state_dict(checkpoint.get("message_hub", {}))
            states = checkpoint.get("param_schedulers")
            if self.param_schedulers and states:
                load_states_of(self.param_schedulers, states)

    def _loaded_checkpoint(self) -> dict[str, Any] | None:
        loaded = (hosted.loaded_checkpoint for hosted in self.hosted_hooks())
        return next((checkpoint for checkpoint in loaded if checkpoint is not None), None)

    # -- events ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach the hooks, and make the hub mmengine's current one, if mmengine is loaded."""
        super().begin()
        bases = [base for one in self.hosted_hooks() for base in type(one.foreign_hook).__mro__]
        has_hook = any(base.__name__ == "RuntimeInfoHook" for base in bases)
        self._info = None if has_hook else RuntimeInfo(self)
        library_hubs()[self.message_hub.instance_name] = self.message_hub

    def end(self) -> None:
        """Remove the message hub from the library's."""
        library_hubs().pop(self.message_hub.instance_name, None)
        super().end()

    def prepare(self, point: str) -> None:
        """Call the facade's own method for a point, then that of the runtime info."""
        super().prepare(point)
        self._flags.enter(point)
        self.write_info(point)

    def calling(self, point: str) -> AbstractContextManager[None]:
        """Show a hook at the border of a pass the model in mmengine's mode."""
        return self._flags.shown() if point in BORDERS else super().calling(point)

    def write_info(self, point: str) -> None:
        """Write the runtime info of a point, where no hook does."""
        write_info = getattr(self._info, point, None)
        if write_info is not None:
            write_info()

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` as mmengine does: between the first two points."""
        if any(hosted.implements("after_val_epoch") for hosted in self.hosted_hooks()):
            self.train_loop.warn_of_last_validation()
        checkpoint = self._loaded_checkpoint()
        called = [
            hosted for hosted in self.hosted_hooks() if hosted.implements("after_load_checkpoint")
        ]
        if checkpoint is not None and called:
            for hosted in called:
                hosted.call_with_checkpoint("after_load_checkpoint", checkpoint)
            # a hook may have changed the weights
            self._runner.module.load_state_dict(checkpoint["state_dict"], strict=False)
        for hosted in self.hosted_hooks():
            hosted.loaded_checkpoint = None

    def at_after_val_epoch(self) -> None:
        """Read the results of the validation."""
        self.metrics = self._validation_results()

    at_after_test_epoch = at_after_val_epoch


_GIVEN = ("cfg", "log_processor", "param_schedulers", "visualizer")
"""Attributes that a hook may assign, as ``HookAdapter(attributes=...)`` gives them."""

_COMPUTED = (
    *("max_iters", "work_dir", "model_name", "timestamp", "launcher", "rank", "world_size"),
    *("deterministic", "val_begin", "val_evaluator", "test_evaluator"),
)
"""Further properties of mmengine's runner."""
