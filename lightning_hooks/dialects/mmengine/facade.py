"""``RunnerFacade``: what mmengine's hooks see of a run."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.mmengine.loops import TestLoop, TrainLoop, ValLoop
from lightning_hooks.dialects.mmengine.message_hub import MessageHub
from lightning_hooks.dialects.mmengine.optim import OptimWrapper, OptimWrapperDict, Visualizer
from lightning_hooks.dialects.mmengine.runtime_info import RuntimeInfo
from lightning_hooks.engine.lightning_api import validation
from lightning_hooks.storage import files, torch_files

__all__ = ["RunnerFacade"]


class RunnerFacade(Facade):
    """mmengine's Runner, as far as hooks touch it.

    ``cfg``, ``param_schedulers``, ``visualizer``, ``log_processor`` and ``experiment_name`` may be
    given by ``HookAdapter(attributes=...)``. Unless a ``RuntimeInfoHook`` is there to do it, the
    message hub is told what :class:`~lightning_hooks.dialects.mmengine.runtime_info.RuntimeInfo`
    lists.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self.train_loop = self._train_loop = TrainLoop(runner)
        self.val_loop = self._val_loop = ValLoop(runner)
        self.test_loop = self._test_loop = TestLoop(runner)
        self.message_hub = MessageHub()
        self._visualizer = Visualizer(runner)
        self._info: RuntimeInfo | None = None
        self._resume = False
        self.metrics: dict[str, float] = {}
        """What the last validation or test has found."""

    def _given(self, name: str) -> Any:
        return self._runner.__dict__.get(name)

    # -- attributes ------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """Epochs done; a run that is counted in iterations is one epoch."""
        return self.train_loop.epoch

    @property
    def max_epochs(self) -> Any:
        """Epochs to do."""
        return self.train_loop.max_epochs

    @property
    def optim_wrapper(self) -> Any:
        """The optimizer in a wrapper, or a dict of them by name."""
        optimizer = self._runner.optimizer
        if isinstance(optimizer, dict):
            return OptimWrapperDict({name: OptimWrapper(one) for name, one in optimizer.items()})
        return OptimWrapper(optimizer)

    @property
    def train_dataloader(self) -> Any:
        """The training loader."""
        return self.train_loop.dataloader

    @property
    def val_dataloader(self) -> Any:
        """The validation loader."""
        return self.val_loop.dataloader

    @property
    def test_dataloader(self) -> Any:
        """The test loader."""
        return self.test_loop.dataloader

    @property
    def distributed(self) -> bool:
        """Whether several processes train together."""
        return bool(self._runner.world_size > 1)

    @property
    def val_interval(self) -> Any:
        """Epochs, or iterations, from one validation to the next."""
        return self.train_loop.val_interval

    @property
    def param_schedulers(self) -> Any:
        """Those given by ``HookAdapter(attributes=...)``, else none: Lightning steps its own."""
        return self._given("param_schedulers")

    @property
    def visualizer(self) -> Any:
        """The one given by ``HookAdapter(attributes=...)``, else the Trainer's loggers."""
        return self._given("visualizer") or self._visualizer

    @property
    def log_processor(self) -> Any:
        """The one given by ``HookAdapter(attributes=...)``, else mmengine's own.

        Raises:
            ImportError: if there is none and mmengine is not installed.
        """
        if self._given("log_processor") is None:
            from mmengine.runner import LogProcessor

            by_epoch = self._runner.counts_epochs
            self._runner.log_processor = LogProcessor(by_epoch=by_epoch)
        return self._given("log_processor")

    @property
    def log_dir(self) -> str:
        """Where a run's logs belong."""
        folder = str(os.path.join(self._runner.work_dir, self._runner.timestamp))
        files.make_directory(folder)
        return folder

    _log_dir = log_dir

    @property
    def experiment_name(self) -> str:
        """A name for the run."""
        own = f"{os.path.basename(self._runner.work_dir)}_{self._runner.timestamp}"
        return str(self._given("experiment_name") or own)

    @property
    def seed(self) -> Any:
        """What ``seed_everything`` was called with, if it was."""
        seed = os.environ.get("PL_GLOBAL_SEED")
        return None if seed is None else int(seed)

    @property
    def cfg(self) -> Any:
        """The config given by ``HookAdapter(attributes=...)``, else an empty one."""
        given = self._given("cfg")
        return _NoConfig() if given is None else given

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
        """Write a file of mmengine's layout now, after ``before_save_checkpoint`` of all hooks."""
        here = {"epoch": self.epoch + by_epoch, "iter": self.iter + (not by_epoch)}
        meta = {**here, **(meta or {}), "cfg": getattr(self.cfg, "pretty_text", "")}
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
        """Put message hub and schedulers into a checkpoint, where mmengine has them."""
        checkpoint["message_hub"] = self.message_hub.state_dict()
        if self.param_schedulers:
            checkpoint["param_schedulers"] = _each(self.param_schedulers, _state)

    def load_states(self) -> None:
        """Note whether the run goes on from a checkpoint; the hooks hear of it later."""
        super().load_states()
        checkpoint = self._loaded()
        self._resume = checkpoint is not None
        if checkpoint is not None:
            self.message_hub.load_state_dict(checkpoint.get("message_hub", {}))
            states = checkpoint.get("param_schedulers")
            if self.param_schedulers and states:
                _each(self.param_schedulers, _load, states)

    def _loaded(self) -> dict[str, Any] | None:
        found = [hosted.loaded_checkpoint for hosted in self.hosted_hooks()]
        return next((one for one in found if one is not None), None)

    # -- on the way ------------------------------------------------------------------------

    def begin(self) -> None:
        """Let mmengine's own ``MessageHub.get_current_instance()`` be the run's, where it is."""
        super().begin()
        informs = (
            base.__name__ == "RuntimeInfoHook"
            for hosted in self.hosted_hooks()
            for base in type(hosted.foreign_hook).__mro__
        )
        self._info = None if any(informs) else RuntimeInfo(self)
        _librarys_hubs()[self.message_hub.instance_name] = self.message_hub

    def end(self) -> None:
        """Take the message hub out of the library's hands."""
        _librarys_hubs().pop(self.message_hub.instance_name, None)
        super().end()

    def prepare(self, point: str) -> None:
        """Do what comes before the first hook at a point, and tell the message hub."""
        super().prepare(point)
        tell = getattr(self._info, point, None)
        if tell is not None:
            tell()

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` where mmengine loads: between the two first points."""
        checkpoint = self._loaded()
        called = [
            hosted for hosted in self.hosted_hooks() if hosted.implements("after_load_checkpoint")
        ]
        if checkpoint is not None and called:
            for hosted in called:
                hosted.call_with_checkpoint("after_load_checkpoint", checkpoint)
            # a hook may have changed what the model was to get
            self._runner.module.load_state_dict(checkpoint["state_dict"], strict=False)
        for hosted in self.hosted_hooks():
            hosted.loaded_checkpoint = None

    def at_after_val_epoch(self) -> None:
        """Read what the validation has found."""
        found = validation.val_metrics(self._runner.trainer)
        self.metrics = {name: value.item() for name, value in found.items()}

    at_after_test_epoch = at_after_val_epoch


class _NoConfig(dict[str, Any]):
    """A config of nothing."""

    pretty_text = ""
    filename = None


def _librarys_hubs() -> dict[str, Any]:
    module: Any = sys.modules.get("mmengine.logging.message_hub")
    known: Any = getattr(getattr(module, "MessageHub", None), "_instance_dict", None)
    return known if isinstance(known, dict) else {}


def _state(scheduler: Any, _: Any = None) -> Any:
    return scheduler.state_dict()


def _load(scheduler: Any, state: Any) -> None:
    scheduler.load_state_dict(state)


def _each(schedulers: Any, function: Any, values: Any = None) -> Any:
    """Apply a function to every scheduler of a list, or of a dict of lists."""
    if isinstance(schedulers, dict):
        return {k: _each(v, function, values and values[k]) for k, v in schedulers.items()}
    values = [None] * len(schedulers) if values is None else values
    return [function(one, value) for one, value in zip(schedulers, values, strict=True)]
