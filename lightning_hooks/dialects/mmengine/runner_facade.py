"""``RunnerFacade``: the ``runner`` passed to mmengine's hooks in a ``HookAdapter``."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.hosting import (
    Facade,
    Hosted,
    has_base,
    load_state_of,
    scalars_of,
    state_of,
)
from lightning_hooks.dialects.mmengine.loops import TestLoop, TrainLoop, ValLoop
from lightning_hooks.dialects.mmengine.message_hub import MessageHub, library_hubs
from lightning_hooks.engine.hosted import class_name
from lightning_hooks.engine.lightning_api.model_state import keep_train_flags
from lightning_hooks.engine.lightning_api.validation import load_val_data
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import files, torch_files

__all__ = ["RunnerFacade"]


class OptimWrapper:
    """``runner.optim_wrapper``: the optimizer, with the methods of mmengine's OptimWrapper."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def __getattr__(self, name: str) -> Any:
        if name == "optimizer":  # missing during copy
            raise AttributeError(name)
        return getattr(self.optimizer, name)

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rate of every group."""
        return {"lr": [group["lr"] for group in self.optimizer.param_groups]}

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momentum, or Adam's first beta, of every group."""
        groups = self.optimizer.param_groups
        return {"momentum": [g.get("momentum", g.get("betas", [0])[0]) for g in groups]}

    def update_params(self, loss: Any, **kwargs: Any) -> None:
        """Run backward and step, for hooks that own both."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class OptimWrapperDict(dict[str, OptimWrapper]):
    """``runner.optim_wrapper`` of several optimizers, by name."""

    def get_lr(self) -> dict[str, list[float]]:
        """Return the learning rates of every group, as ``{name}.lr``."""
        return {f"{name}.lr": each.get_lr()["lr"] for name, each in self.items()}

    def get_momentum(self) -> dict[str, list[float]]:
        """Return the momenta of every group, as ``{name}.momentum``."""
        return {f"{name}.momentum": each.get_momentum()["momentum"] for name, each in self.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return the states of all optimizers."""
        return {name: each.state_dict() for name, each in self.items()}

    def zero_grad(self, **kwargs: Any) -> None:
        """Clear the gradients of all optimizers."""
        for wrapper in self.values():
            wrapper.zero_grad(**kwargs)


class Visualizer:
    """``runner.visualizer``, for the Trainer's loggers."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def add_scalar(self, name: str, value: Any, step: int = 0, **kwargs: Any) -> None:
        """Log a number."""
        self.add_scalars({name: value}, step)

    def add_scalars(self, scalar_dict: Mapping[str, Any], step: int = 0, **kwargs: Any) -> None:
        """Log several numbers."""
        for logger in self._runner.trainer.loggers:
            logger.log_metrics({k: float(v) for k, v in scalar_dict.items()}, step=step)

    def add_image(self, name: str, image: Any, step: int = 0, **kwargs: Any) -> None:
        """Log an image (height, width, channels) to TensorBoard loggers."""
        for logger in self._runner.trainer.loggers:
            experiment: Any = getattr(logger, "experiment", None)
            if hasattr(experiment, "add_image"):
                experiment.add_image(name, image, step, dataformats="HWC")

    def add_config(self, config: Any, **kwargs: Any) -> None:
        """Log a config."""
        for logger in self._runner.trainer.loggers:
            logger.log_hyperparams(dict(config))

    def add_graph(self, model: Any, data_batch: Any, **kwargs: Any) -> None:
        """Do nothing: Lightning's loggers have ``log_graph``."""

    def close(self) -> None:
        """Do nothing: the Trainer closes its loggers."""


class RuntimeInfo:
    """Writes the state of the run and the scalars of its steps to the message hub.

    ==========================  ==============================================================
    key                         value
    ==========================  ==============================================================
    ``epoch``, ``iter``         number of finished epochs and iterations
    ``max_epochs max_iters``    length of the run
    ``loop_stage``              ``train``, ``val`` or ``test``
    ``dataset_meta``            ``metainfo`` of the training set, if defined
    ``cfg``, ``seed``,          the config's text, the seed of ``seed_everything``, the run's name
    ``experiment_name``
    ``train/<lr>``              the first group's learning rate, by the names of ``get_lr()``
    ``train/<name>``            the scalars returned or logged by a step
    ``val/<name>``              the results of a validation, ``test/<name>`` of a test
    ==========================  ==============================================================
    """

    def __init__(self, facade: RunnerFacade) -> None:
        self._runner = facade
        self._hub = facade.message_hub
        self._outer_stage: Any = None  # the stage before a validation

    def before_run(self) -> None:
        """Write config, seed and name of the run."""
        self._hub.update_info_dict(origin_of(self._runner))

    def before_train(self) -> None:
        """Write the length of the run."""
        names = ("epoch", "iter", "max_epochs", "max_iters")
        counters = {name: getattr(self._runner, name) for name in names}
        self._hub.update_info_dict({"loop_stage": "train", **counters})
        if self._runner.train_loop.metainfo is not None:
            self._hub.update_info("dataset_meta", self._runner.train_loop.metainfo)

    def before_train_epoch(self) -> None:
        """Write the epoch."""
        self._hub.update_info("epoch", self._runner.epoch)

    def before_train_iter(self) -> None:
        """Write the iteration and its learning rate."""
        self._hub.update_info("iter", self._runner.iter)
        for name, rates in self._runner.optim_wrapper.get_lr().items():
            self._hub.update_scalar(f"train/{name}", rates[0])

    def after_train_iter(self) -> None:
        """Write the scalars of the step."""
        outputs = getattr(self._runner.native_runner, "outputs", None) or {}
        logged = self._runner.logged_in_step()
        values = {**outputs, **logged, **(outputs.get("log_vars") or {})}
        for name, value in scalars_of(values).items():
            self._hub.update_scalar(f"train/{name}", value)

    def after_run(self) -> None:
        """Remove the stage."""
        self._hub.pop_info("loop_stage")

    after_test = after_run

    def before_val_epoch(self) -> None:
        """Write the stage."""
        self._outer_stage = self._hub.get_info("loop_stage")
        self._hub.update_info("loop_stage", "val")

    def after_val_epoch(self, stage: str = "val") -> None:
        """Write the results of the validation."""
        for name, value in self._runner.metrics.items():
            self._hub.update_scalar(f"{stage}/{name}", value)

    def after_val(self) -> None:
        """Restore the stage before the validation."""
        self._hub.pop_info("loop_stage")
        if self._outer_stage is not None:
            self._hub.update_info("loop_stage", self._outer_stage)

    def before_test(self) -> None:
        """Write the stage."""
        self._hub.update_info("loop_stage", "test")

    def after_test_epoch(self) -> None:
        """Write the results of the test."""
        self.after_val_epoch("test")


def origin_of(runner: RunnerFacade) -> dict[str, Any]:
    """Return the config's text, the seed and the name of a run."""
    text = getattr(runner.cfg, "pretty_text", "")
    return {"cfg": text, "seed": runner.seed, "experiment_name": runner.experiment_name}


class EmptyConfig(dict[str, Any]):
    """A config without entries."""

    pretty_text = ""
    filename = None


_SWITCHES = {
    "before_train_iter": True,
    **dict.fromkeys(("before_val_iter", "after_val_epoch"), False),
    **dict.fromkeys(("before_test_iter", "after_test_epoch"), False),
}
"""``model.training`` from a point on; each switch has two points, since one may have no hook."""


@contextlib.contextmanager
def in_mode(module: torch.nn.Module, training: bool) -> Iterator[None]:
    """Set a module to train or eval mode in the block; restore all train flags afterwards.

    mmengine calls ``model.train()`` after ``before_train_epoch`` and ``model.eval()`` after
    ``before_val_epoch``: after a validation the model stays in eval mode until the next epoch.
    Lightning switches at other times.
    """
    with keep_train_flags(module):
        if module.training != training:
            module.train(training)
        yield


BORDERS = frozenset(
    f"{when}_{what}"
    for when in ("before", "after")
    for what in ("train", "train_epoch", "val", "val_epoch", "test", "test_epoch", "run")
)
"""The points before and after passes."""


class RunnerFacade(Facade):
    """The ``runner`` passed to mmengine's hooks, with the attributes of mmengine's Runner.

    ``HookAdapter(attributes=...)`` may set ``cfg``, ``param_schedulers``, ``visualizer``,
    ``log_processor`` and ``experiment_name``. In a run without a ``RuntimeInfoHook`` the message
    hub gets the entries of ``RuntimeInfo``.
    """

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._loops = TrainLoop(self), ValLoop(self), TestLoop(self)
        self.message_hub = MessageHub()
        self._visualizer = Visualizer(runner)
        self._info: RuntimeInfo | None = None
        self._training = True  # mmengine's mode
        self._resume = False
        self.metrics: dict[str, float] = {}
        """The results of the last validation or test."""

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; AttributeError for computed attributes of mmengine's Runner."""
        if name in _GIVEN:
            setattr(self.native_runner, name, value)
        elif name in _COMPUTED:
            raise AttributeError(f"{name!r} has no setter, as in mmengine's Runner")
        else:
            super().__setattr__(name, value)

    # -- attributes ------------------------------------------------------------------------

    train_loop = _train_loop = property(lambda self: self._loops[0])
    """The loop of training."""
    test_loop = _test_loop = property(lambda self: self._loops[2])
    """The loop of a test."""
    _val_loop = property(lambda self: self._loops[1])
    epoch = property(attrgetter("_train_loop.epoch"))
    """Number of finished epochs; 0 in a run counted in iterations."""
    max_epochs = property(attrgetter("_train_loop.max_epochs"))
    """Number of epochs of the run."""
    max_iters = property(attrgetter("_train_loop.max_iters"))
    """Number of iterations of the run; in epochs, with the loader of the run's start."""
    val_begin = property(attrgetter("_train_loop.val_begin"))
    """The first epoch, or iteration, that may be validated."""
    val_interval = property(attrgetter("_train_loop.val_interval"))
    """Number of epochs, or iterations, between two validations."""
    train_dataloader = property(attrgetter("_train_loop.dataloader"))
    """The training loader."""
    val_dataloader = property(attrgetter("_val_loop.dataloader"))
    """The validation loader."""
    test_dataloader = property(attrgetter("_test_loop.dataloader"))
    """The test loader."""
    distributed = property(lambda self: self.native_runner.world_size > 1)
    """Whether several processes train the model."""
    param_schedulers = property(lambda self: self._user_attribute("param_schedulers"))
    """The schedulers of ``HookAdapter(attributes=...)``, without Lightning's schedulers."""
    visualizer = property(lambda self: self._user_attribute("visualizer") or self._visualizer)
    """The visualizer of ``HookAdapter(attributes=...)``, else of the Trainer's loggers."""

    @property
    def optim_wrapper(self) -> Any:
        """The optimizer in a wrapper, or a dict of several by name."""
        optimizer = self.native_runner.optimizer
        if isinstance(optimizer, dict):
            return OptimWrapperDict({name: OptimWrapper(each) for name, each in optimizer.items()})
        return OptimWrapper(optimizer)

    @property
    def val_loop(self) -> ValLoop | None:
        """The loop of validations; None in a run without validation, as in mmengine."""
        trainer = self.native_runner.trainer
        validates = trainer.enable_validation or trainer.state.fn == TrainerFn.VALIDATING
        return self._val_loop if validates else None

    @property
    def log_processor(self) -> Any:
        """The processor of ``HookAdapter(attributes=...)``, else mmengine's ``LogProcessor``.

        Raises:
            ImportError: without a given processor and without mmengine.
        """
        if self._user_attribute("log_processor") is None:
            from mmengine.runner import LogProcessor

            by_epoch = self.native_runner.counts_epochs
            vars(self.native_runner)["log_processor"] = LogProcessor(by_epoch=by_epoch)
        return self._user_attribute("log_processor")

    @property
    def log_dir(self) -> str:
        """The directory of the run's logs."""
        folder = str(os.path.join(self.native_runner.work_dir, self.native_runner.timestamp))
        files.make_directory(folder)
        return folder

    _log_dir = log_dir

    @property
    def experiment_name(self) -> str:
        """The name of the run."""
        own = f"{os.path.basename(self.native_runner.work_dir)}_{self.native_runner.timestamp}"
        return str(self._user_attribute("experiment_name") or own)

    @property
    def seed(self) -> Any:
        """The seed of ``seed_everything``; None without a seed."""
        seed = os.environ.get("PL_GLOBAL_SEED")
        return None if seed is None else int(seed)

    @property
    def cfg(self) -> Any:
        """The config of ``HookAdapter(attributes=...)``, else an empty config."""
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
        meta = {**counters, **(meta or {}), **origin_of(self)}
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
        if self.is_writer:
            torch_files.save_torch(checkpoint, files.join(out_dir, filename))

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add message hub and schedulers to a checkpoint, as mmengine does."""
        checkpoint["message_hub"] = self.message_hub.plain_state()
        if self.param_schedulers:
            checkpoint["param_schedulers"] = _without_functions(state_of(self.param_schedulers))

    def load_states(self) -> None:
        """Restore hooks, message hub and schedulers from a checkpoint."""
        super().load_states()
        checkpoint = self._loaded_checkpoint()
        self._resume = checkpoint is not None
        if checkpoint is not None:
            self.message_hub.load_state_dict(checkpoint.get("message_hub", {}))
            states = checkpoint.get("param_schedulers")
            if self.param_schedulers and states:
                load_state_of(self.param_schedulers, states)

    def _loaded_checkpoint(self) -> dict[str, Any] | None:
        loaded = (hosted.loaded_checkpoint for hosted in self.hosted_hooks())
        return next((checkpoint for checkpoint in loaded if checkpoint is not None), None)

    # -- events ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Attach the hooks, and register the message hub in mmengine, if loaded."""
        super().begin()
        has_hook = False
        for hosted in self.hosted_hooks():
            has_hook |= has_base(hosted.foreign_hook, "RuntimeInfoHook")
            if has_base(hosted.foreign_hook, "ParamSchedulerHook"):
                self._check_schedulers(hosted)
        self._info = None if has_hook else RuntimeInfo(self)
        library_hubs()[self.message_hub.instance_name] = self.message_hub

    def _check_schedulers(self, hosted: Hosted) -> None:
        """Check that a hook steps each scheduler alone; warn where no scheduler is stepped."""
        if self.param_schedulers:
            self.check_stepped_once(hosted, _each(self.param_schedulers))
        elif not self.native_runner.trainer.lr_scheduler_configs:
            self.native_runner.logger.warning(
                "%s steps no scheduler: HookAdapter(attributes={'param_schedulers': [...]}) gives "
                "it the schedulers",
                class_name(hosted),
            )

    def end(self) -> None:
        """Remove the message hub from mmengine."""
        library_hubs().pop(self.message_hub.instance_name, None)
        super().end()

    def prepare(self, point: str) -> None:
        """Call the facade's method for a point, and write the runtime info."""
        super().prepare(point)
        self._training = _SWITCHES.get(point, self._training)
        self.write_info(point)

    def calling(self, point: str) -> AbstractContextManager[None]:
        """Set the model to mmengine's mode during calls before and after a pass."""
        if point in BORDERS:
            return in_mode(self.native_runner.module, self._training)
        return super().calling(point)

    def write_info(self, point: str) -> None:
        """Write the runtime info of a point, unless a ``RuntimeInfoHook`` does."""
        write_info = getattr(self._info, point, None)
        if write_info is not None:
            write_info()

    def at_before_run(self) -> None:
        """Load the validation data, which hooks may read from the start."""
        if self.native_runner.trainer.state.fn == TrainerFn.FITTING:
            load_val_data(self.native_runner.trainer)

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` between ``before_run`` and ``before_train``."""
        if any(hosted.implements("after_val_epoch") for hosted in self.hosted_hooks()):
            self.train_loop.warn_of_last_validation()
        checkpoint = self._loaded_checkpoint()
        self.pass_loaded_checkpoint()
        changes = any(each.implements("after_load_checkpoint") for each in self.hosted_hooks())
        if checkpoint is not None and changes:  # hooks may change the weights in the checkpoint
            self.native_runner.module.load_state_dict(checkpoint["state_dict"], strict=False)

    def at_before_train_epoch(self) -> None:
        """Begin an epoch of the loop."""
        self.train_loop.begin_epoch()

    def at_after_train_epoch(self) -> None:
        """End the epoch of the loop."""
        self.train_loop.end_epoch()

    def at_after_val_epoch(self) -> None:
        """Read the results of the validation."""
        self.metrics = self._validation_results()

    at_after_test_epoch = at_after_val_epoch


def _each(schedulers: Any) -> Iterator[Any]:
    """Yield the schedulers of a list, or of a dict of lists by optimizer."""
    for group in schedulers.values() if isinstance(schedulers, Mapping) else [schedulers or []]:
        yield from group


def _without_functions(states: Any) -> Any:
    """Return states without functions, such as the annealing of a OneCycleLR, set at construction.

    A file with a function could not be loaded safely.
    """
    if isinstance(states, Mapping):
        return {k: _without_functions(each) for k, each in states.items() if not callable(each)}
    return [*map(_without_functions, states)] if isinstance(states, list) else states


_GIVEN = ("cfg", "log_processor", "param_schedulers", "visualizer")
"""Attributes set by ``HookAdapter(attributes=...)`` or by a hook."""

_COMPUTED = (
    *("max_iters", "work_dir", "model_name", "timestamp", "launcher", "rank", "world_size"),
    *("deterministic", "val_evaluator", "test_evaluator"),
)
"""Properties of mmengine's runner without a property here."""
