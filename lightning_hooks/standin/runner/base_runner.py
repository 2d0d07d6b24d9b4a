"""mmcv's runner, with a ``lightning.Trainer`` as its engine."""

from __future__ import annotations

import logging
import os
import warnings
from abc import ABCMeta
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import lightning as L
import torch

from lightning_hooks.dialects import detect
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.priority import get_priority
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.standin.runner.engine import Engine, RunnerModule, make_trainer
from lightning_hooks.standin.runner.inside_a_fit import InsideAFit
from lightning_hooks.standin.runner.register_hooks import HookRegistration
from lightning_hooks.standin.runner.runner_checkpoints import RunnerCheckpoints
from lightning_hooks.standin.runner.seed import get_host_info
from lightning_hooks.standin.runner.strategy import wait_for_threads
from lightning_hooks.standin.utils.dist import get_dist_info

__all__ = ["BaseRunner"]


class _Twins(ABCMeta):
    """Make ``isinstance(runner, EpochBasedRunner)`` true for a Trainer's own runner, too."""

    def __instancecheck__(cls, instance: Any) -> bool:
        twin = vars(cls).get("stands_for")
        return super().__instancecheck__(instance) or (
            twin is not None and isinstance(instance, twin)
        )

    def register(cls, subclass: Any) -> Any:
        """Register a virtual subclass; skip the class that this one stands for."""
        return subclass if subclass is vars(cls).get("stands_for") else super().register(subclass)


class BaseRunner(InsideAFit, HookRegistration, RunnerCheckpoints, metaclass=_Twins):
    """The base of the stand-in's runners: mmcv's interface, trained by Lightning.

    ``run`` fits ``runner.trainer``, a ``lightning.Trainer`` made in the constructor, and runs
    mmcv's loop inside of this fit; hooks get this runner. Subclasses may override ``run``,
    ``train``, ``val`` and ``run_iter``. Callbacks in ``trainer_kwargs`` get the events of batches,
    training epochs and validations.

    Args:
        model: The model, in a wrapper or not; ``runner.model`` is this object itself.
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
    loops_itself = True
    writes_mmcv_files = True
    fills_log_buffer = True
    adopts_new_groups = False
    guards_model = False
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
        _check(model, batch_processor, optimizer, logger, meta)
        if max_epochs is not None and max_iters is not None:
            raise ValueError("Only one of `max_epochs` or `max_iters` can be set.")
        if work_dir is not None:
            if not isinstance(work_dir, str):
                raise TypeError(f'"work_dir" must be a str or None, got {work_dir!r}')
            work_dir = os.path.abspath(work_dir)
            os.makedirs(work_dir, exist_ok=True)
        assert logger is not None
        self._engine = Engine(self)
        trainer = make_trainer(model, work_dir, self._engine, dict(trainer_kwargs or {}))
        super().__init__(trainer, None, work_dir, logger)  # type: ignore[arg-type]
        self._model: Any = model
        self.batch_processor = batch_processor
        self._given_optimizer = optimizer
        self.module = RunnerModule(self)
        self.meta = meta
        self._max_epochs = max_epochs
        self._max_iters = max_iters

    def run(self, data_loaders: Any, workflow: Any, *args: Any, **kwargs: Any) -> None:
        """Train and validate by a workflow."""
        raise NotImplementedError(f"{type(self).__name__} must define run(data_loaders, workflow)")

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        """Run the model on a batch; set ``outputs`` and add its ``log_vars`` to the log buffer."""
        if self.batch_processor is not None:
            outputs = self.batch_processor(self.model, data_batch, train_mode=train_mode, **kwargs)
        elif train_mode:
            outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        else:
            outputs = self._run_val_step(data_batch, **kwargs)
        if not isinstance(outputs, dict):
            raise TypeError(
                '"batch_processor()" or "model.train_step()" and "model.val_step()" must return a '
                f"dict, got {outputs!r}"
            )
        if "log_vars" in outputs:
            self.log_buffer.update(outputs["log_vars"], outputs["num_samples"])
        self.outputs = outputs

    def _run_val_step(self, data_batch: Any, **kwargs: Any) -> Any:
        return self.model.val_step(data_batch, self.optimizer, **kwargs)

    def _set_limit(self, name: str, value: int | None) -> None:
        """Set the length of the run from an argument of ``run``, which mmcv deprecates."""
        if value is not None:
            warnings.warn(
                f"setting {name} in run is deprecated, please set {name} in runner_config",
                DeprecationWarning,
                stacklevel=3,
            )
            setattr(self, f"_{name}", value)
        if getattr(self, f"_{name}") is None:
            raise AssertionError(f"{name} must be specified during instantiation")

    def _fit(self, workflow: Any, limit: str, loop: Callable[[], object], batches: int) -> None:
        self._workflow_and_limit = workflow, limit
        self._engine.fit(loop, batches)
        wait_for_threads()

    def _run_batch(self, batch: Any, mode: str, **kwargs: Any) -> None:
        """Run an iteration between its two points."""
        event = "on_train_batch" if mode == "train" else "on_validation_batch"
        self.data_batch = batch
        self.call_hook(f"before_{mode}_iter")
        self._engine.call_event(f"{event}_start", batch, self.inner_iter)
        self.run_iter(batch, train_mode=mode == "train", **kwargs)
        self.call_hook(f"after_{mode}_iter")
        self._engine.call_event(f"{event}_end", self.outputs, batch, self.inner_iter)
        del self.data_batch

    def call_hook(self, fn_name: str) -> None:
        """Call a method of every hook that has it."""
        if not self._engine.call_in_batch(fn_name):
            super().call_hook(fn_name)
            self._engine.end_of_border()

    def announce(self) -> None:
        """Log the host, the hooks, the workflow and the length of the run."""
        self._inner_iter = self.inner_iter_before_run  # mmcv's stays, Lightning's begins anew
        if self._workflow_and_limit is None:  # the subclass's own run() does
            super().announce()
            return
        where = get_host_info(), "NONE" if self.work_dir is None else self.work_dir
        self.logger.info("Start running, host: %s, work_dir: %s", *where)
        super().announce()
        self.logger.info("workflow: %s, max: %s", *self._workflow_and_limit)

    def attach(self, module: L.LightningModule, inner: torch.nn.Module | None) -> None:
        """Set ``module``; ``model`` stays the object passed to the constructor."""
        self.module = module

    @property
    def model(self) -> Any:
        """The model passed to the constructor, or a hook's replacement."""
        return self._model

    @model.setter
    def model(self, value: Any) -> None:
        self._model = value

    def _find_optimizer(self) -> Any:
        return self._given_optimizer

    def use_optimizer(self, optimizer: Any) -> None:
        """Show hooks the optimizer that they step: None, as in mmcv, where none was given."""
        super().use_optimizer(optimizer)
        if self._given_optimizer is None:  # not what Lightning has in its place
            self.optimizer = self._known_optimizer = None

    def adopt_optimizer(self) -> None:
        """Train with the optimizer that was assigned before the run, where none was given."""
        if self._given_optimizer is None and self.optimizer is not None:
            self._given_optimizer = self.optimizer
            self.module = RunnerModule(self)

    def take_optimizer(self) -> None:
        """Train with the optimizer that a hook has assigned, in later runs too."""
        if self.optimizer is not self._known_optimizer:
            self._given_optimizer = self.optimizer
        super().take_optimizer()

    @property
    def max_iters(self) -> Any:
        """Number of iterations of the run."""
        return self._max_iters

    @property
    def data_loader(self) -> Any:
        """The loader in use; one that a hook sets before the epoch is used in it."""
        if self._data_loader is None:
            raise AttributeError("there is no data_loader before run()")
        return self._data_loader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self._data_loader = value

    @property
    def _iter(self) -> int:
        return self.iter

    @_iter.setter
    def _iter(self, value: int) -> None:
        progress.set_batches(self.trainer, value)
        self._iter_shift = 0

    _rank = property(lambda self: self.rank)
    _world_size = property(lambda self: self.world_size)

    @property
    def rank(self) -> int:
        """The rank of this process."""
        return get_dist_info()[0]

    @property
    def world_size(self) -> int:
        """The number of processes in the process group."""
        return get_dist_info()[1]

    def register_hook(self, hook: Any, priority: Any = "NORMAL") -> None:
        """Add a hook by priority, after the hooks of equal priority."""
        detect(hook)
        self._hooks.add(hook, get_priority(priority))


def _check(model: Any, batch_processor: Any, optimizer: Any, logger: Any, meta: Any) -> None:
    inner = unwrap(model)
    if batch_processor is not None:
        if not callable(batch_processor):
            raise TypeError(f"batch_processor must be callable, got {batch_processor!r}")
        warnings.warn(
            "batch_processor is deprecated, please implement train_step() and val_step() in the "
            "model instead.",
            DeprecationWarning,
            stacklevel=3,
        )
        if hasattr(inner, "train_step") or hasattr(inner, "val_step"):
            raise RuntimeError(
                "batch_processor and model.train_step()/model.val_step() cannot be both available."
            )
    elif not callable(getattr(model, "train_step", None)):
        raise AssertionError(f"{type(inner).__name__} has no train_step(data, optimizer)")
    named = optimizer if isinstance(optimizer, dict) else {"optimizer": optimizer}
    for name, one in named.items():
        if not (isinstance(one, torch.optim.Optimizer) or (one is None and optimizer is None)):
            where = f'optimizer["{name}"]' if named is optimizer else "optimizer"
            raise TypeError(f"{where} must be a torch.optim.Optimizer, got {one!r}")
    if not isinstance(logger, logging.Logger):
        raise TypeError(f"logger must be a logging.Logger object, but got {type(logger)}")
    if not (meta is None or isinstance(meta, dict)):
        raise TypeError(f"meta must be a dict or None, but got {type(meta)}")
