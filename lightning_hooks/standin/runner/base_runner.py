"""mmcv's runner, with a ``lightning.Trainer`` as the engine."""

from __future__ import annotations

import copy
import functools
import inspect
import logging
import os
from abc import ABCMeta
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import lightning as L
import torch

from lightning_hooks.config.training_hooks import TIMER, with_type_of_policy
from lightning_hooks.dialects import detect
from lightning_hooks.engine.driver.ownership import runs_no_user_code
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.priority import get_priority
from lightning_hooks.engine.registry import build_with_order
from lightning_hooks.engine.runner.mmcv_checkpoint import (
    file_name,
    iterations_done,
    meta_to_resume,
    resume_optimizers,
)
from lightning_hooks.engine.runner.model_wrapper import StepOutputs, unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook
from lightning_hooks.standin._hooks.registry import HOOKS
from lightning_hooks.standin.runner.checkpoint import load_checkpoint, save_checkpoint
from lightning_hooks.standin.runner.engine import (
    Engine,
    RunnerModule,
    check_workflow,
    make_trainer,
)
from lightning_hooks.standin.runner.seed import get_host_info
from lightning_hooks.standin.runner.strategy import wait_for_threads
from lightning_hooks.standin.utils.dist import get_dist_info
from lightning_hooks.storage import checkpoints, files
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.suggestions import UnknownNameError
from lightning_hooks.utils.warn import warn

__all__ = ["BaseRunner"]


OUTSIDE_OF_RUN = (
    "the stand-in's runners train and validate in run(data_loaders, workflow), also in an "
    "overridden run, and not by train(loader), val(loader) or call_hook alone"
)
BATCH_POINTS = ("before_train_iter", "after_train_iter", "before_val_iter", "after_val_iter")


def _in_precision(run_iter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_iter)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        with self.trainer.precision_plugin.train_step_context():
            run_iter(self, *args, **kwargs)

    return run


def _inside_a_fit(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def fit_and_run(self: Any, *args: Any, **kwargs: Any) -> None:
        self._engine.fit(functools.partial(run, self, *args, **kwargs))

    return fit_and_run


def _steps_in_a_run(hook: Any) -> bool:
    return isinstance(hook, OptimizerHook) and is_ours(type(hook))


def _has_a_loop(run: Any) -> bool:
    """Return whether a ``run`` calls hooks or ``train`` itself, without ``super().run``."""
    names = getattr(getattr(inspect.unwrap(run), "__code__", None), "co_names", ())
    return "run" not in names and not {"call_hook", "train"}.isdisjoint(names)


class BaseRunner(Runner, metaclass=ABCMeta):
    """The base of the stand-in's runners: mmcv's interface, with Lightning as the engine.

    ``run`` fits ``runner.trainer``, a ``lightning.Trainer`` made in the constructor, and runs
    mmcv's loop inside the fit: the loop counts, fetches batches and calls the hooks. A ``run_iter``
    runs in the Trainer's precision; ``loss.backward()`` and ``optimizer.step()`` go through its
    strategy. Subclasses may override ``run``, ``train``, ``val`` and ``run_iter``. Callbacks in
    ``trainer_kwargs`` get the events of batches, training epochs and validations.

    Args:
        model: The model, in a wrapper or not; ``runner.model`` is the same object.
        batch_processor: Deprecated in mmcv: ``f(model, data_batch, train_mode=...)``, called
            instead of the model's ``train_step`` and ``val_step``.
        optimizer: The model's optimizer, or a dict of optimizers.
        work_dir: The directory that hooks write to; created if missing.
        logger: A ``logging.Logger``.
        meta: A dict stored in checkpoints.
        max_iters: Number of iterations.
        max_epochs: Number of epochs.
        trainer_kwargs: Further arguments of the Trainer: ``dict(precision="bf16-mixed")``.

    Raises:
        TypeError: for an argument of the wrong type.
        AssertionError: for a model without ``train_step``, as in mmcv.
        ValueError: for both ``max_iters`` and ``max_epochs``.

    Note:
        Departures from mmcv: the runner does not sleep, except for 50 ms at the end of a run in a
        process group; ``[("val", 1)]`` alone is one pass (endless in mmcv); ``should_stop = True``
        ends the run after the iteration; configs passed to ``register_*_hook`` are not changed.
    """

    stands_for: ClassVar[Any] = Runner
    """The native runner class whose instances are instances of this class, too."""

    model: Any = None
    """The model passed to the constructor, or a hook's replacement."""

    loops_itself = True
    no_uploads = "this runner writes files of mmcv's own layout"
    is_last_batch: Any = None  # None: hooks compare with len(data_loader), as in mmcv
    _max_epochs: Any = None
    _max_iters: Any = None
    _data_loader: Any = None
    _given_optimizer: Any = None
    _workflow_and_limit: Any = None
    inner_iter_before_run: int = 0

    def __init__(
        self,
        model: torch.nn.Module,
        batch_processor: Callable[..., Any] | None = None,
        optimizer: Any = None,
        work_dir: str | None = None,
        logger: logging.Logger | None = None,
        meta: dict[str, Any] | None = None,
        max_iters: int | None = None,
        max_epochs: int | None = None,
        trainer_kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        _check(model, batch_processor, logger, meta)
        if max_epochs is not None and max_iters is not None:
            raise ValueError("Only one of `max_epochs` or `max_iters` can be set.")
        if work_dir is not None:
            if not isinstance(work_dir, str):
                raise TypeError(f'"work_dir" must be a str or None, got {shown(work_dir)}')
            work_dir = os.path.abspath(work_dir)
            os.makedirs(work_dir, exist_ok=True)
        assert logger is not None
        self._engine = Engine(self)
        trainer = make_trainer(model, work_dir, self._engine, dict(trainer_kwargs or {}))
        super().__init__(trainer, None, work_dir, logger)  # type: ignore[arg-type]
        self.model = model
        self.batch_processor = batch_processor
        self._given_optimizer = optimizer
        self.module = RunnerModule(self)
        self.meta = meta
        self._max_epochs = max_epochs
        self._max_iters = max_iters

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own: Any = vars(cls)
        if "run_iter" in own:
            cls.run_iter = _in_precision(own["run_iter"])  # type: ignore[method-assign]
        if not is_ours(cls) and _has_a_loop(own.get("run")):
            cls.run = _inside_a_fit(own["run"])  # type: ignore[method-assign]

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        """Count a Trainer's own runner as an ``EpochBasedRunner`` or ``IterBasedRunner``."""
        native = vars(cls).get("stands_for")
        return True if native is not None and issubclass(subclass, native) else NotImplemented

    def run(self, data_loaders: Any, workflow: Any, *args: Any, **kwargs: Any) -> None:
        """Train and validate by a workflow."""
        raise NotImplementedError(f"{type(self).__name__} must define run(data_loaders, workflow)")

    @_in_precision
    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Run the model on a batch; set ``outputs`` and add the ``log_vars`` to the log buffer."""
        if self.batch_processor is not None:
            outputs = self.batch_processor(self.model, data_batch, train_mode=train_mode, **kwargs)
        elif train_mode:
            outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        else:
            outputs = self._run_val_step(data_batch, **kwargs)
        if not isinstance(outputs, dict):
            raise TypeError(
                '"batch_processor()" or "model.train_step()" and "model.val_step()" must return a '
                f"dict, got {shown(outputs)}"
            )
        if "log_vars" in outputs:
            self.log_buffer.update(outputs["log_vars"], outputs["num_samples"])
        self.outputs = outputs

    def _run_val_step(self, data_batch: Any, **kwargs: Any) -> Any:
        return self.model.val_step(data_batch, self.optimizer, **kwargs)

    def _parts(
        self, data_loaders: Any, workflow: Any, name: str, value: int | None
    ) -> list[tuple[tuple[str, int], Any]]:
        """Return the parts of a workflow with their loaders, and set the length of the run.

        Args:
            data_loaders: A list of loaders.
            workflow: A list of ``(mode, number of passes)``.
            name: ``"max_epochs"`` or ``"max_iters"``.
            value: The length as an argument of ``run``, which mmcv deprecates.
        """
        check_workflow(self, data_loaders, workflow)
        if value is not None:
            warn(
                f"setting {name} in run is deprecated, please set {name} in runner_config",
                DeprecationWarning,
            )
            setattr(self, f"_{name}", value)
        if getattr(self, f"_{name}") is None:
            raise AssertionError(f"{name} must be specified during instantiation")
        return list(zip(workflow, data_loaders, strict=True))

    def _fit(self, workflow: Any, limit: str, loop: Callable[[], object], batches: int) -> None:
        self._workflow_and_limit = workflow, limit
        self._engine.fit(loop, batches)
        wait_for_threads()

    def _plan(
        self, parts: list[tuple[tuple[str, int], Any]], is_done: Callable[[], bool]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the mode and the loader of each pass of a workflow.

        Args:
            parts: Mode and number of passes, an epoch or an iteration each, with the loader.
            is_done: Whether the training has its length.
        """
        trains = any(mode != "val" for (mode, _), _ in parts)
        while not (is_done() or self.should_stop):
            for (mode, times), loader in parts:
                self._begin_part()
                for _ in range(times):
                    if self.should_stop or (mode == "train" and is_done()):
                        break
                    yield mode, loader
            if not trains:
                return

    def _begin_part(self) -> None:
        """Begin a part of the workflow."""

    def _run_batch(self, batch: Any, mode: str, **kwargs: Any) -> None:
        """Run an iteration between the points before and after the iteration."""
        event = "on_train_batch" if mode == "train" else "on_validation_batch"
        self.data_batch = batch
        self.call_hook(f"before_{mode}_iter")
        self._engine.call_event(f"{event}_start", batch, self.inner_iter)
        self.run_iter(batch, train_mode=mode == "train", **kwargs)
        self.call_hook(f"after_{mode}_iter")
        self._engine.call_event(f"{event}_end", self.outputs, batch, self.inner_iter)
        del self.data_batch

    def _begin_pass(self, mode: str, data_loader: Any) -> None:
        """Set the mode and the loader of a training or a validation."""
        if self._engine.driver is None:
            raise NotImplementedError(OUTSIDE_OF_RUN)
        self.model.train() if mode == "train" else self.model.eval()
        self.mode, self.data_loader = mode, data_loader

    def call_hook(self, fn_name: str) -> None:
        """Call a method of every hook that has it."""
        driver = self._engine.driver
        if driver is None:
            if fn_name == "after_train_iter" and any(map(_steps_in_a_run, self.hooks)):
                raise NotImplementedError(OUTSIDE_OF_RUN)
            super().call_hook(fn_name)
        elif fn_name in BATCH_POINTS:
            driver.calls.run(fn_name)
        else:
            super().call_hook(fn_name)
            driver.calls.restore()
            if fn_name in ("after_train_epoch", "after_val_epoch"):
                self.agree_to_stop()

    def announce(self) -> None:
        """Log the host, mmcv's table of the hooks, the workflow and the length of the run."""
        self._inner_iter = self.inner_iter_before_run  # mmcv's stays, Lightning's begins anew
        if self._workflow_and_limit is not None:  # a subclass's own run() logs them
            where = get_host_info(), "NONE" if self.work_dir is None else self.work_dir
            self.logger.info("Start running, host: %s, work_dir: %s", *where)
        table = self.get_hook_info()
        self.logger.info("Hooks will be executed in the following order:\n%s", table)
        self.announce_misspelt()
        if self._workflow_and_limit is not None:
            self.logger.info("workflow: %s, max: %s", *self._workflow_and_limit)

    def announce_end(self) -> None:
        """Log nothing, as mmcv."""

    def attach(self, module: L.LightningModule, inner: torch.nn.Module | None) -> None:
        """Set ``module``; ``model`` stays the object passed to the constructor."""
        self.module = module

    @property
    def outputs(self) -> Any:
        """The outputs of the last step."""
        try:
            return vars(self)["_outputs"]
        except KeyError:
            raise AttributeError("there are no outputs before the first step") from None

    @outputs.setter
    def outputs(self, value: Any) -> None:
        if isinstance(value, dict):
            if self._engine.driver is not None:
                value = self._engine.driver.ownership.with_strategy_loss(value)
            value = StepOutputs.of(self, value)
        vars(self)["_outputs"] = value

    def _find_optimizer(self) -> Any:
        return self._given_optimizer

    def added_groups(self, optimizer: Any, known: int) -> list[dict[str, Any]]:
        """Return no group: as in mmcv, a group added during the run keeps its own values."""
        return []

    def use_optimizer(self, optimizer: Any) -> None:
        """Show hooks the optimizer; None without an optimizer, as in mmcv."""
        super().use_optimizer(optimizer)
        if self._given_optimizer is None:  # hide Lightning's substitute
            self.optimizer = self.known_optimizer = None

    def adopt_optimizer(self) -> None:
        """Train with an optimizer assigned before the run, if the constructor got none."""
        if self._given_optimizer is None and self.optimizer is not None:
            self._given_optimizer = self.optimizer
            self.module = RunnerModule(self)

    def take_optimizer(self) -> None:
        """Train with the optimizer that a hook has assigned, also in later runs."""
        if self.optimizer is not self.known_optimizer:
            self._given_optimizer = self.optimizer
        super().take_optimizer()

    def _present_epoch(self) -> tuple[int, int]:
        return 0, 0  # all epochs are taken to be as long as the present

    @property
    def max_iters(self) -> Any:
        """Number of iterations of the run."""
        return self._max_iters

    @property
    def data_loader(self) -> Any:
        """The loader in use; a hook may set the epoch's loader in ``before_train_epoch``."""
        if self._data_loader is None:
            raise AttributeError("there is no data_loader before run()")
        return self._data_loader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self._data_loader = value

    @property
    def iter(self) -> int:
        """Training iterations done, without the current iteration."""
        return self._counts.completed  # type: ignore[no-any-return]

    @iter.setter
    def iter(self, value: int) -> None:
        progress.set_iteration(self.trainer, value)

    _iter = iter

    evaluated_epoch = property(lambda self: self.epoch)
    """The number of the epoch of a validation, from 1: the training has counted the epoch."""

    def validates_within_epochs(self, by_epoch: bool) -> bool:
        """Return False: as in mmcv, a validation follows an epoch and has the next iteration."""
        return False

    rank = _rank = property(lambda self: get_dist_info()[0])
    """The rank of this process."""
    world_size = _world_size = property(lambda self: get_dist_info()[1])
    """The number of processes in the process group."""

    # -- checkpoints -----------------------------------------------------------------------

    def save_checkpoint(
        self,
        out_dir: str | os.PathLike[str],
        filename_tmpl: str | None = "epoch_{}.pth",
        save_optimizer: bool = True,
        meta: dict[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint in mmcv's layout and link ``latest.pth`` to it.

        Args:
            out_dir: The directory.
            filename_tmpl: The file name, with ``{}`` for the number of completed epochs or
                iterations.
            save_optimizer: Whether the optimizer's state is saved.
            meta: Metadata besides ``runner.meta``.
            create_symlink: Whether ``latest.pth`` is updated.
        """
        if not (meta is None or isinstance(meta, dict)):
            raise TypeError(f"meta should be a dict or None, but got {type(meta)}")
        meta = {**(meta or {}), **(self.meta or {}), "epoch": self.epoch + 1, "iter": self.iter}
        out_dir = os.fspath(out_dir)
        filename = file_name(filename_tmpl or self.filename_tmpl, self.file_number)
        optimizer = self.optimizer if save_optimizer else None
        save_checkpoint(self.model, files.join(out_dir, filename), optimizer, meta)
        if create_symlink:
            checkpoints.link_latest(out_dir, filename)

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: Any = (("^module.", ""),),
    ) -> Any:
        """Load the weights of a file into the model; return the whole checkpoint."""
        return load_checkpoint(self.model, filename, map_location, strict, self.logger, revise_keys)

    def _load_for_resume(
        self, checkpoint: str, resume_optimizer: bool, map_location: Any
    ) -> dict[str, Any]:
        if map_location == "default":
            cuda = torch.cuda.is_available()
            map_location = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
        loaded: dict[str, Any] = self.load_checkpoint(checkpoint, map_location)
        meta = meta_to_resume(loaded, checkpoint)
        self._epoch = meta["epoch"]
        self._iter = iterations_done(self, meta)
        if resume_optimizer:
            resume_optimizers(self, loaded, checkpoint)
        return loaded

    def resume(
        self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Resume from a checkpoint: weights, counters, meta and optimizers."""
        loaded = self._load_for_resume(checkpoint, resume_optimizer, map_location)
        self.meta = copy.copy(loaded["meta"])
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)

    # -- hooks -----------------------------------------------------------------------------

    def register_hook(self, hook: Any, priority: Any = "NORMAL") -> None:
        """Add a hook by priority, after the hooks of equal priority."""
        if detect(hook) == "mmcv" and hasattr(hook, "priority") and not runs_no_user_code(hook):
            raise ValueError('"priority" is a reserved attribute for hooks')
        self._hooks.add((hook, get_priority(priority)))

    def register_hook_from_cfg(self, hook_cfg: Mapping[str, Any]) -> None:
        """Add a hook by ``dict(type=..., priority=...)``."""
        self._register(hook_cfg, "NORMAL")

    def register_lr_hook(self, lr_config: Any) -> None:
        """Add a learning rate policy: ``dict(policy="step", step=[8, 11])``."""
        self._register(_policy(lr_config, "LrUpdaterHook"), "VERY_HIGH")

    def register_momentum_hook(self, momentum_config: Any) -> None:
        """Add a momentum policy."""
        self._register(_policy(momentum_config, "MomentumUpdaterHook"), "HIGH")

    def register_optimizer_hook(self, optimizer_config: Any) -> None:
        """Add the hook that runs backward and step."""
        self._register(optimizer_config, "ABOVE_NORMAL", type="OptimizerHook")

    def register_checkpoint_hook(self, checkpoint_config: Any) -> None:
        """Add the hook that writes checkpoints."""
        self._register(checkpoint_config, "NORMAL", type="CheckpointHook")

    def register_logger_hooks(self, log_config: Mapping[str, Any] | None) -> None:
        """Add loggers: ``dict(interval=50, hooks=[dict(type="TextLoggerHook")])``."""
        if log_config is None:
            return
        if not {"interval", "hooks"} <= {*log_config}:
            raise KeyError(
                f"write log_config = dict(interval=50, hooks=[...]), got {shown(log_config)}"
            )
        for config in log_config["hooks"]:
            self._register(config, "VERY_LOW", interval=log_config["interval"])

    def register_timer_hook(self, timer_config: Any) -> None:
        """Add the timer hook."""
        self._register(timer_config, "LOW")

    def register_profiler_hook(self, profiler_config: Any) -> None:
        """Add the profiler hook."""
        self._register(profiler_config, "NORMAL", type="ProfilerHook")

    def register_custom_hooks(self, custom_config: Any) -> None:
        """Add the project's own hooks: configs, optionally with ``priority``, or objects."""
        several = custom_config if isinstance(custom_config, list) else [custom_config]
        for item in several:
            self._register(item, "NORMAL")

    def register_training_hooks(
        self,
        lr_config: Any,
        optimizer_config: Any = None,
        checkpoint_config: Any = None,
        log_config: Mapping[str, Any] | None = None,
        momentum_config: Any = None,
        timer_config: Any = TIMER,
        custom_hooks_config: Any = None,
    ) -> None:
        """Add the hooks of a training config by the ``register_*`` methods."""
        self.register_lr_hook(lr_config)
        self.register_momentum_hook(momentum_config)
        self.register_optimizer_hook(optimizer_config)
        self.register_checkpoint_hook(checkpoint_config)
        self.register_timer_hook(timer_config)
        self.register_logger_hooks(log_config)
        self.register_custom_hooks(custom_hooks_config)

    def _register(self, config: Any, priority: Any, **default: Any) -> None:
        if config is None:
            return
        hook = config
        if isinstance(config, Mapping):
            hook, priority = build_with_order(HOOKS, {**default, **config}, priority)
        self.register_hook(hook, priority)


def _check(model: Any, batch_processor: Any, logger: Any, meta: Any) -> None:
    inner = unwrap(model)
    if batch_processor is not None:
        if not callable(batch_processor):
            raise TypeError(f"batch_processor must be callable, got {shown(batch_processor)}")
        warn(
            "batch_processor is deprecated, please implement train_step() and val_step() in the "
            "model instead.",
            DeprecationWarning,
        )
        if hasattr(inner, "train_step") or hasattr(inner, "val_step"):
            raise RuntimeError(
                "batch_processor and model.train_step()/model.val_step() cannot be both available."
            )
    elif not callable(getattr(model, "train_step", None)):
        raise AssertionError(f"{type(inner).__name__} has no train_step(data, optimizer)")
    if not isinstance(logger, logging.Logger):
        raise TypeError(f"logger must be a logging.Logger object, but got {type(logger)}")
    if not (meta is None or isinstance(meta, dict)):
        raise TypeError(f"meta must be a dict or None, but got {type(meta)}")


def _policy(config: Any, family: str) -> Any:
    """Return a config with the hook's type, matched ignoring case, in place of ``policy``."""
    try:
        return with_type_of_policy(config, family)
    except UnknownNameError:
        raise  # a KeyError, as in mmcv
    except ValueError as error:  # as mmcv does
        raise AssertionError(*error.args) from None
