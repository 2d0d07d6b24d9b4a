"""The state of a run for hooks, under mmcv's names."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4

import lightning as L
import torch

from lightning_hooks.engine.error_notes import calling, class_name
from lightning_hooks.engine.hook_list import HookList, hook_info
from lightning_hooks.engine.hosted import HostedHook, foreign
from lightning_hooks.engine.lightning_api import data, logged_values, progress
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.points import POINTS
from lightning_hooks.engine.priority import default_priority, get_priority, is_family
from lightning_hooks.engine.runner.counters import Counters
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.engine.runner.mmcv_checkpoint import MmcvCheckpoints
from lightning_hooks.engine.runner.model_wrapper import ModelWrapper, StepOutputs, as_outputs
from lightning_hooks.engine.runner.optimizers import Optimizers
from lightning_hooks.engine.sample_log import SampleLog
from lightning_hooks.engine.usage_errors import misspelt_points
from lightning_hooks.utils.arguments import check_object

__all__ = ["EpochRunner", "IterLoader", "IterRunner", "Runner"]


class Runner(Counters, Optimizers, MmcvCheckpoints, SampleLog):
    """The state of a run under mmcv's names, derived from Lightning's state.

    All hooks of a Trainer share a single runner. Any attribute may be set: old hooks pass values to
    each other on the runner. Writing mmcv's attributes takes effect: ``_iter``, ``_epoch``,
    ``_max_epochs``, ``_max_iters``, ``should_stop``, ``model``, ``data_loader``, ``logger``,
    ``meta``, ``hooks``. ``max_iters`` and ``optimizer`` are looked up once per epoch, and again
    after a hook changes a limit or the optimizers.

    Note:
        Departures from mmcv: ``should_stop = True`` ends training after the iteration, on several
        ranks at the next border (ignored in mmcv); ``call_hook`` skips hooks without the method
        (mmcv raises AttributeError); calls of the model by a hook, outside of a training step owned
        by hooks, leave the random state unchanged (in mmcv the training draws on); a model assigned
        in training on several ranks is refused (in mmcv the ranks drift apart); a ``StopIteration``
        raised by a hook becomes a RuntimeError (the epoch would end); ``register_hook`` without a
        priority uses the priority of the hook's family (mmcv: NORMAL).
    """

    outputs: dict[str, Any]
    """The result of the last step; unset before the first step."""

    result: Any = None
    """The result of the last validation or test step, a dict or not."""

    data_batch: Any
    """The batch; set only within an iteration."""

    fills_log_buffer: bool = False
    """Whether steps fill the log buffer themselves, as in the stand-in's runners."""

    log_buffer_class: type[LogBuffer] = LogBuffer
    """The class of the training's log buffer."""

    adopts_new_groups: bool = True
    """Whether schedules set parameter groups added during the run, unlike mmcv's."""

    guards_model: bool = True
    """Whether calls of the model by hooks are isolated."""

    given_attributes: frozenset[str] = frozenset()
    """The names of the user's own attributes, ``HookAdapter(attributes=...)``."""

    calls_hooks: bool = False
    """Whether a hook runs: a call of the model is then not the training's."""

    common_dialects: frozenset[str] = frozenset()
    """The dialects, besides mmcv's, with a hook on every rank."""

    step_results: Any
    """Lightning's collection of the module's logged values in training."""

    run_id: str
    """The run's name in manifests; a resumed run keeps the name."""

    unclaimed_timestamp: str
    """The timestamp until a logger has made the first file with the name: two runs may collide."""

    loops_itself: ClassVar[bool] = False
    """Whether the runner's own loop counts and calls the hooks, instead of Lightning's events."""

    writes_mmcv_files: ClassVar[bool] = False
    """Whether checkpoints have mmcv's layout, not Lightning's."""

    def __init__(
        self, trainer: L.Trainer, module: L.LightningModule, work_dir: str, logger: logging.Logger
    ) -> None:
        self.trainer = trainer
        self.module = module
        self.work_dir = work_dir
        self.logger = logger
        self.meta = {}
        self.mode: str | None = None
        self.run_id = uuid4().hex[:12]
        self.timestamp = time.strftime("%Y%m%d_%H%M%S", time.localtime())
        self.unclaimed_timestamp = self.timestamp
        self._hook_list = HookList()
        self.on_model_change: Callable[[], None] | None = None
        self._watch(trainer)
        self.log_buffer = self.train_log = self.log_buffer_class(self._counts)
        self.stop_requested = False
        self.flags_before_eval: dict[torch.nn.Module, bool] | None = None
        """The train flags of ``model`` before a hook's switch to evaluation."""
        self.seen_metrics: dict[str, torch.Tensor] = {}
        self.published: dict[str, Any] = {}
        """The logged values passed on to Lightning's callbacks."""
        self.dialect_facades: dict[str, Any] = {}
        """The run for hooks of other dialects, by dialect."""
        self._register_virtually()

    def _watch(self, trainer: L.Trainer) -> None:
        super()._watch(trainer)
        self.step_results = logged_values.step_results(trainer)

    def attach(self, module: L.LightningModule, inner: torch.nn.Module | None) -> None:
        """Set the module of a fit; ``inner`` becomes ``runner.model.module``."""
        self.module = module
        self._watch(self.trainer)
        self.renew()
        if inner is None:
            inner = getattr(module, "inner_model", module)
        self._model = self.wrapped(inner)

    def wrapped(self, model: torch.nn.Module) -> ModelWrapper:
        """Return a model in mmcv's wrapper."""
        return ModelWrapper(model, self)

    def _register_virtually(self) -> None:
        """Make ``isinstance(runner, EpochBasedRunner)`` true for mmcv's class, if imported."""
        mmcv_runner = sys.modules.get("mmcv.runner")
        twin = getattr(mmcv_runner, self.twin, None)
        if twin is not None and hasattr(twin, "register"):
            twin.register(type(self))

    new_data_loader: Any = None  # a training loader set by a hook, until iterated
    new_val_loader: Any = None
    loader_of_run: Any = None  # a training loader set for the rest of the run, not for an epoch

    twin: str = "BaseRunner"
    """The class of mmcv.runner with the runner's class as a virtual subclass."""

    def renew(self) -> None:
        """Forget the limits and the optimizer, which are cached for an epoch as in mmcv."""
        Counters.renew(self)
        Optimizers.renew(self)

    # -- the run ---------------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The model in mmcv's wrapper; an assigned model is trained from then on."""
        return self._model

    @model.setter
    def model(self, value: Any) -> None:
        self._model = value
        if self.on_model_change is not None:
            self.on_model_change()

    @property
    def rank(self) -> int:
        """The global rank of the process."""
        return self.trainer.global_rank

    @property
    def world_size(self) -> int:
        """The number of processes of the training."""
        return self.trainer.world_size

    @property
    def writes_files(self) -> bool:
        """Whether hooks may write files and to trackers: not in ``Trainer(fast_dev_run=True)``."""
        return not self.trainer.fast_dev_run  # type: ignore[attr-defined]

    @property
    def model_name(self) -> str:
        """The class name of the model inside."""
        return type(getattr(self.model, "module", self.model)).__name__

    _model_name = model_name

    @property
    def should_stop(self) -> bool:
        """Whether training ends after the current iteration; may be set.

        On several ranks training ends on all of them, from the next border on: the end of an epoch
        or a pass over the data, a validation, a checkpoint.
        """
        return bool(self.trainer.should_stop)

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self.stop_requested = bool(value)
        if self.world_size == 1:
            self.trainer.should_stop = bool(value)

    @property
    def data_loader(self) -> Any:
        """The current DataLoader, of the training or, in a validation, of the validation.

        A loader set before the epoch's iteration starts is iterated in the epoch.
        """
        if self.mode == "val":
            if self.new_val_loader is not None:
                return self.new_val_loader
            loaders = self.trainer.val_dataloaders
            return loaders[0] if isinstance(loaders, list) and len(loaders) == 1 else loaders
        if self.new_data_loader is not None:
            return self.new_data_loader
        loaders = data.train_loaders(self.trainer)
        return loaders[0] if len(loaders) == 1 else self.trainer.train_dataloader

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        if self.mode == "val":
            self.new_val_loader = value
        else:
            self.new_data_loader = value

    @contextlib.contextmanager
    def val_log(self) -> Iterator[None]:
        """Use a separate log buffer for a validation in the block, if loggers read the buffer."""
        self.train_log = self.log_buffer
        if any(is_family(hook, "LoggerHook") for hook in self.hooks):  # as in mmcv
            self.log_buffer = LogBuffer()
        try:
            yield
        finally:
            self.log_buffer = self.train_log

    # -- hooks -----------------------------------------------------------------------------

    @property
    def hooks(self) -> HookList:
        """The hooks in calling order; may be rewritten."""
        return self._hook_list

    @property
    def _hooks(self) -> HookList:
        return self._hook_list

    @_hooks.setter
    def _hooks(self, hooks: Any) -> None:
        self._hook_list[:] = hooks

    def register_hook(self, hook: Any, priority: int | str | None = None) -> None:
        """Add a hook by priority; by default the priority of the hook's family.

        During a run the hook is called from the next point on. For a hook of this package
        ``before_run`` is called first, unlike in mmcv.
        """
        check_object(hook)
        value = default_priority(hook) if priority is None else get_priority(priority)
        self._hooks.add(hook, value)

    def get_hook_info(self) -> str:
        """mmcv's table of the stages and hooks."""
        return hook_info(self._hooks)

    def announce(self) -> None:
        """Log the hooks in calling order and the place of their files; warn of misspelt points.

        A runner of the stand-in logs what mmcv logs: a table of the points, and no directory.
        """
        told = []
        if self.loops_itself:
            table = self.get_hook_info()
            self.logger.info("Hooks will be executed in the following order:\n%s", table)
        elif self.hooks:
            number = f"{len(self.hooks)} hooks" if len(self.hooks) > 1 else "1 hook"
            order = ", ".join(map(class_name, self.hooks))
            told.append(f"{number}, called in this order: {order}")
        if not self.writes_files:
            writers = [class_name(hook) for hook in self._writers()]
            names = ", ".join(dict.fromkeys(writers)) or "runner.save_checkpoint()"
            told.append(f"fast_dev_run: nothing is written by {names}")
        elif self._writers() and not self.loops_itself:
            told.append(f"files in {self._places()}")
        if told:
            self.logger.info("%s", "; ".join(told))
        self.announce_misspelt()

    def announce_end(self) -> None:
        """Log the place of the run's files; in a spawned process, the end of hooks' values."""
        if self.writes_files and self._writers() and not self.loops_itself:
            self.logger.info("the files of this run are in %s", self._places())
        launched = self.trainer.strategy.launcher is not None
        if launched and multiprocessing.parent_process() is not None:  # ddp_spawn, ddp_notebook
            self.logger.info(
                "this fit ran in processes of its own, and what its hooks hold, such as an "
                "average, ends with them; it is in the checkpoints: "
                "trainer.validate(..., ckpt_path='last')"
            )

    def announce_misspelt(self) -> None:
        """Warn of hooks' methods with a name close to a point's name."""
        for hook in self.hooks:
            points = hook.known_points if isinstance(hook, HostedHook) else POINTS
            for name, point in misspelt_points(foreign(hook), points):
                message = "%s.%s() is called at no point; did you mean %s()?"
                self.logger.warning(message, class_name(hook), name, point)

    def _writers(self) -> list[Participant]:
        """Return the hooks that write files."""
        return [hook for hook in self.hooks if isinstance(hook, Participant) and hook.writes_files]

    def _places(self) -> str:
        """Return the work directory, and the directories of checkpoints elsewhere."""
        found = dict.fromkeys(hook.checkpoint_directory(self) for hook in self._writers())
        others = ", ".join(place for place in found if place not in (None, self.work_dir))
        return f"{self.work_dir}, checkpoints in {others}" if others else self.work_dir

    def take_result(self, result: Any) -> None:
        """Set ``result`` and ``outputs`` to the result of a validation or test step."""
        self.result = result
        found = {} if isinstance(result, (list, tuple)) else as_outputs(result)
        self.outputs = StepOutputs.of(self, found)

    def call_hook(self, fn_name: str) -> None:
        """Call a method of every hook with the method; the list may change meanwhile."""
        called: set[int] = set()  # a list sorted meanwhile would yield a hook twice
        outer, self.calls_hooks = self.calls_hooks, True
        try:
            for hook in self._hooks:
                method = None if id(hook) in called else self._hooks.method_at(hook, fn_name)
                called.add(id(hook))
                if method is not None:
                    with calling(hook, fn_name, self):
                        method(self)
        finally:
            self.calls_hooks = outer


class EpochRunner(Runner):
    """A run counted in epochs: mmcv's EpochBasedRunner."""

    twin = "EpochBasedRunner"

    def restore_counters(self, entry: dict[str, Any], *, closed: bool) -> None:
        """Count the epoch as done if the validation at the epoch's end was running."""
        self.closed_epoch = self.trainer.current_epoch if closed else None

    @property
    def epoch(self) -> int:
        """Epochs done, without the current epoch."""
        return self._epoch

    @property
    def _epoch(self) -> int:
        # Lightning counts an epoch after the epoch's validation, mmcv before
        current = self.trainer.current_epoch
        return current + (self.closed_epoch == current)

    @_epoch.setter
    def _epoch(self, value: int) -> None:
        closed = self.closed_epoch == self.trainer.current_epoch
        current = value - closed
        progress.set_epoch(self.trainer, current)
        if closed:
            self.closed_epoch = current

    @property
    def _max_epochs(self) -> int | None:
        limit = self.trainer.max_epochs
        return None if limit is None or limit < 0 else limit

    @_max_epochs.setter
    def _max_epochs(self, value: int) -> None:
        self.renew()
        self.trainer.fit_loop.max_epochs = value

    @property
    def _max_iters(self) -> int | None:
        if self.own_max_iters is not None:
            return self.own_max_iters
        limits = []
        batches = self.trainer.num_training_batches
        if self._max_epochs is not None and batches != float("inf"):
            limits.append(self._max_epochs * int(batches))
        if self.trainer.max_steps >= 0:
            steps = progress.iterations_of_steps(self.trainer, self.trainer.max_steps)
            for hook in self.hooks:
                if isinstance(hook, Participant):
                    steps = hook.iterations_of(steps, self.trainer)
            limits.append(steps)
        return min(limits, default=None)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        self.renew()
        self.own_max_iters = value  # until the next epoch computes the limit, as in mmcv

    @property
    def _file_number(self) -> int:
        return self.epoch + 1


class IterLoader:
    """The hooks' loader in a run by iteration: endless, with the passes counted."""

    def __init__(self, runner: Runner, dataloader: Any) -> None:
        self._dataloader = dataloader
        self._runner = runner
        self._own: Any = None

    @property
    def epoch(self) -> int:
        """Passes over the data done."""
        return int(self._runner.trainer.current_epoch)

    def __len__(self) -> int:
        return len(self._dataloader)

    @property
    def iter_loader(self) -> Any:
        """The training's iterator over the loader, with mmcv's ``_dataset``."""
        return data.iterator_of(self._runner.trainer, self._dataloader)

    def __next__(self) -> Any:
        """Return a batch for a hook, from a separate iterator: training misses no batch."""
        try:
            return next(self._own)
        except (TypeError, StopIteration):
            self._own = iter(self._dataloader)
            return next(self._own)


class IterRunner(Runner):
    """A run counted in iterations: mmcv's IterBasedRunner.

    ``epoch`` counts passes over the loader as mmcv does: the first batch of a pass still shows
    the pass before. ``inner_iter`` counts since the last validation; 0 without validations.

    Note:
        Departure from mmcv: after a resume ``epoch`` goes on (mmcv starts again from 0).
    """

    twin = "IterBasedRunner"
    filename_tmpl = "iter_{}.pth"
    counts_epochs = False
    _iter_loaders: Mapping[int, IterLoader] = MappingProxyType({})
    _epoch = 0
    _max_epochs: int | None = None

    @property
    def _max_iters(self) -> int | None:
        if self.own_max_iters is not None:
            return self.own_max_iters
        if self.trainer.max_steps >= 0:
            # where hooks own backward, the driver ends the run after so many iterations
            if self.hooks_step:
                return self.trainer.max_steps
            return progress.iterations_of_steps(self.trainer, self.trainer.max_steps)
        epochs, batches = self.trainer.max_epochs, self.trainer.num_training_batches
        if epochs is None or epochs < 0 or batches == float("inf"):
            return None
        return epochs * int(batches)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        if value == self._max_iters:  # written back, and Lightning counts steps, not iterations
            return
        self.renew()
        self.own_max_iters = value
        if value is not None:
            self.trainer.fit_loop.epoch_loop.max_steps = value

    # -- called by the driver ----------------------------------------------------------------

    def restore_counters(self, entry: dict[str, Any], *, closed: bool) -> None:
        """Go on counting from the last validation."""
        self.last_val_iter = entry.get("last_val_iter", self.iter)

    def begin_batch(self, batch_idx: int) -> None:
        """Set the counters for the ``batch_idx``-th training batch of a pass."""
        # mmcv reads the loader's passes before fetching the batch
        self._epoch = max(self.trainer.current_epoch - (batch_idx == 0), 0)
        validates = self.trainer.enable_validation
        self._inner_iter = self.iter - self.last_val_iter if validates else 0

    @property
    def data_loader(self) -> Any:
        """The current loader as mmcv's endless IterLoader."""
        loader = Runner.data_loader.fget(self)  # type: ignore[attr-defined]
        if id(loader) not in self._iter_loaders:
            self._iter_loaders = {**self._iter_loaders, id(loader): IterLoader(self, loader)}
        return self._iter_loaders[id(loader)]

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        Runner.data_loader.fset(self, getattr(value, "_dataloader", value))  # type: ignore[attr-defined]

    @property
    def _file_number(self) -> int:
        return self.iter + 1
