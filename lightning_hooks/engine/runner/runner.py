"""The state of a run for hooks, under mmcv's names."""

from __future__ import annotations

import contextlib
import functools
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from uuid import uuid4

import lightning as L
import torch

from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.hook_callback import HookCallback, natives_with
from lightning_hooks.engine.hook_list import HookList, hook_info
from lightning_hooks.engine.hosted import HostedHook, class_name
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.logged_values import CallbackValues
from lightning_hooks.engine.lightning_api.releases import val_check_batch
from lightning_hooks.engine.lightning_api.sigterm import SharedSigterm
from lightning_hooks.engine.priority import default_priority, get_priority, loggers_of
from lightning_hooks.engine.runner import mmcv_checkpoint
from lightning_hooks.engine.runner.backward import by_name, optimizers_of_hooks
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.engine.runner.model_wrapper import ModelWrapper, StepOutputs, as_outputs
from lightning_hooks.engine.runner.optimizer_steps import StepCounts
from lightning_hooks.engine.runner.optimizers import Rates, StepRates, rates
from lightning_hooks.engine.runner.sample_log import SampleLog
from lightning_hooks.engine.usage_errors import misspelt_points
from lightning_hooks.storage import checkpoints, files
from lightning_hooks.utils.arguments import check_object, shown
from lightning_hooks.utils.media import audio_of, figure_image, video_of
from lightning_hooks.utils.samples import as_table, image_of
from lightning_hooks.utils.secrets import without_user

__all__ = ["EpochRunner", "IterLoader", "IterRunner", "Runner", "training_loader"]


class Runner:
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
        raised by a hook becomes a RuntimeError (the epoch would end); a hook that removes itself
        takes no point from the next hook (mmcv skips the next); ``register_hook`` without a
        priority uses the priority of the hook's family (mmcv: NORMAL); ``max_iters`` is the
        iterations done and the epochs to come at the present length of the loader (mmcv takes that
        length for all epochs, so a cosine by iteration rises when a loader grows).
    """

    # of a kind of runner

    counts_epochs: bool = True
    """Whether the run is counted in epochs rather than in iterations."""

    loops_itself: ClassVar[bool] = False
    """Whether the runner is one of the stand-in's, whose hooks alone ask."""

    no_uploads: ClassVar[str] = ""
    """Why trackers and the Hub get none of the run's checkpoints; empty if they get them."""

    filename_tmpl: str = "epoch_{}.pth"
    """The name of a checkpoint, with ``{}`` for its number."""

    mmcv_class: str = "BaseRunner"
    """The class of mmcv.runner with the runner's class as a virtual subclass."""

    # of the run

    run_id: str
    """The run's name in manifests; a resumed run keeps the name."""

    unclaimed_timestamp: str
    """The timestamp until a logger has made the first file with the name: two runs may collide."""

    given_attributes: frozenset[str] = frozenset()
    """The names of the user's own attributes, ``HookAdapter(attributes=...)``."""

    sigterm: SharedSigterm | None = None
    """Ends all ranks at SIGTERM on one."""

    ends_together: bool = False
    """Whether the exception that ends the fit ends it on all ranks."""

    # of the step

    outputs: dict[str, Any]
    """The result of the last step; unset before the first step."""

    result: Any = None
    """The result of the last validation or test step, a dict or not."""

    data_batch: Any
    """The batch; set only within an iteration."""

    calls_hooks: bool = False
    """Whether a hook runs: a call of the model is then not the training's."""

    # counters and limits

    in_epoch: bool = False
    """Whether ``before_train_epoch`` has no ``after_train_epoch`` yet."""

    closed_epoch: int | None = None
    """The epoch with an ``after_train_epoch``, until Lightning has counted the epoch."""

    epoch_start: int = 0
    """Iterations done when the present epoch, or pass over the data, began."""

    empty_batches: int = 0
    """Batches of None in the present epoch, which Lightning counts as ended and not as begun."""

    last_val_iter: int = 0
    """Iterations done at the last validation, in a run counted in iterations."""

    own_max_iters: int | None = None
    """A limit set by a hook; in a run counted in epochs until the end of the epoch."""

    loaded_epoch: int | None = None
    """Epochs done in the file of the present or last evaluation; None without a file."""

    start_iter: int | None = None
    """Iterations done when the run began or was resumed; None from its first batch on."""

    _epoch: int
    _max_epochs: int | None
    _max_iters: int | None
    _iter_shift = 0  # added to Lightning's count by a hook or a resumed run
    _stale_inner_iter: int | None = 0  # None: Lightning's

    # loaders

    new_data_loader: Any = None
    """A training loader set by a hook, until iterated."""

    loader_of_run: Any = None
    """A training loader set for the rest of the run, not for an epoch."""

    new_val_loader: Any = None
    """A validation loader set by a hook, for a single pass."""

    # backward and step

    hooks_own_step: bool = False
    """Whether hooks own backward and step; Lightning counts the steps of the hooks' optimizer."""

    wrap_outputs: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Has a loss run backward through the strategy, for hooks that own backward."""

    steps_directly: bool = False
    """Whether Lightning adds nothing to the hooks' backward and step but the count of steps."""

    known_optimizer: Any = None
    """The optimizer that trains; a hook may have assigned another."""

    _keeps_optimizer = False  # whether a hook's own optimizer replaces the Trainer's

    def __init__(
        self, trainer: L.Trainer, module: L.LightningModule, work_dir: str, logger: logging.Logger
    ) -> None:
        self.trainer = trainer
        self.module = module
        self.work_dir = work_dir
        self.logger = logger
        self.meta: dict[str, Any] | None = {}
        self.mode: str | None = None
        self.run_id = uuid4().hex[:12]
        self.timestamp = time.strftime("%Y%m%d_%H%M%S", time.localtime())
        self.unclaimed_timestamp = self.timestamp
        self._hook_list = HookList()
        self.on_model_change: Callable[[], None] | None = None
        self._watch()
        self.log_buffer = self.train_log = LogBuffer(self._counts)
        self.stop_requested = False
        self.flags_before_eval: dict[torch.nn.Module, bool] | None = None
        """The train flags of ``model`` before a hook's switch to evaluation."""
        self.step_counts = StepCounts(self)
        self.step_rates = StepRates(self)
        self.samples = SampleLog(self)
        self.callback_values = CallbackValues(trainer)
        self._warnings: set[str] = set()
        self.dialect_facades: dict[str, Any] = {}
        """The run for hooks of other dialects, by dialect."""
        self._register_virtually()

    def _watch(self) -> None:
        batches = progress.batches(self.trainer)
        self._counts, self._counts_of_epoch = batches.total, batches.current

    def attach(self, module: L.LightningModule, inner: torch.nn.Module | None) -> None:
        """Set the module of a fit; ``inner`` becomes ``runner.model.module``."""
        self.module = module
        self._watch()
        self.log_buffer.clear_output()  # what no logger of an earlier fit has logged
        self.log_buffer.news.clear()
        self.renew()
        if inner is None:
            inner = getattr(module, "inner_model", module)
        self._model = ModelWrapper(inner, self)

    def _register_virtually(self) -> None:
        """Make ``isinstance(runner, EpochBasedRunner)`` true for mmcv's class, if imported."""
        mmcv_class: Any = getattr(sys.modules.get("mmcv.runner"), self.mmcv_class, None)
        if hasattr(mmcv_class, "register"):
            mmcv_class.register(type(self))

    def renew(self) -> None:
        """Forget the limits and the optimizer, which are cached for an epoch as in mmcv."""
        own = vars(self)
        own.pop("max_iters", None)
        own.pop("max_optimizer_steps", None)
        if own.get("optimizer") is self.known_optimizer and not self._keeps_optimizer:
            own.pop("optimizer", None)

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
    def may_write(self) -> bool:
        """Whether hooks may write files and to trackers: not in ``Trainer(fast_dev_run=True)``."""
        return not self.trainer.fast_dev_run  # type: ignore[attr-defined]

    @property
    def is_writer(self) -> bool:
        """Whether this process writes for the run: rank 0, where :attr:`may_write`."""
        return self.rank == 0 and self.may_write

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
    def writes_alone(self) -> bool:
        """Whether a file of this rank, of several, is filled without the others: after an error."""
        is_error = self.trainer.interrupted and not self.ends_together
        return bool(is_error and self.world_size > 1)

    @property
    def refuses_files(self) -> bool:
        """Whether a hook has found the state to be bad, which no file may keep."""
        return any(hook._refuses_files for hook in natives_with("_refuses_files", self.hooks))

    def agree_to_stop(self) -> None:
        """End the run on all ranks if a hook of any rank has set ``should_stop``, or at SIGTERM.

        Called by all ranks at borders, where they wait for each other anyway: the end of an epoch
        or a pass over the data, a validation, a checkpoint.
        """
        stop, trainer = self.stop_requested, self.trainer
        if trainer.world_size > 1:
            wishes = [stop, self.sigterm is not None and self.sigterm.received]
            counts = torch.tensor(wishes, dtype=torch.int, device=trainer.strategy.root_device)
            of_ranks: Any = trainer.strategy.reduce(counts, reduce_op="sum")
            stop, ends = of_ranks.bool().tolist()
            if ends and self.sigterm is not None:
                self.sigterm.end_all()
        if stop:
            trainer.should_stop = True

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
        return training_loader(self)

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
        if loggers_of(self.hooks):  # as in mmcv
            self.log_buffer = LogBuffer()
        try:
            yield
        finally:
            self.log_buffer = self.train_log

    # -- counters --------------------------------------------------------------------------

    @property
    def iter(self) -> int:
        """Training iterations done, without the current iteration."""
        return self._counts.completed + self._iter_shift  # type: ignore[no-any-return]

    @iter.setter
    def iter(self, value: int) -> None:
        self._iter_shift = value - self._counts.completed

    _iter = iter

    @property
    def iterations_done(self) -> int:
        """Training iterations done, with the current iteration if the step is made.

        Lightning repeats an iteration that an exception has ended before the step. Before the first
        batch of a resumed run, Lightning has not counted the batch that ended with the file.
        """
        if self.start_iter is not None:
            return self.start_iter
        current, is_open = self._counts_of_epoch, self.batch_is_open
        is_made = is_open and (self.calls_hooks or current.processed == current.ready)
        return self.iter + is_made

    @property
    def batch_is_open(self) -> bool:
        """Whether a training batch has begun and not ended, with the iteration not yet counted."""
        current = self._counts_of_epoch
        return bool(current.started + self.empty_batches > current.completed)

    @property
    def epochs_done(self) -> int:
        """Epochs done, with the current epoch, as a checkpoint's ``meta`` has the number."""
        is_closed = self.counts_epochs and not self.in_epoch
        return self.epoch + (not is_closed)

    @property
    def epoch(self) -> int:
        """Epochs done, without the current epoch."""
        return self._epoch

    @epoch.setter
    def epoch(self, value: int) -> None:
        self._epoch = value

    @property
    def evaluated_epoch(self) -> int:
        """The number of the epoch, from 1, of a validation; outside of a fit the epochs done.

        Lightning's own count does not change with the file of an evaluation.
        """
        if in_fit(self):
            return self.trainer.current_epoch + 1
        return self.trainer.current_epoch if self.loaded_epoch is None else self.loaded_epoch

    def validates_within_epochs(self, by_epoch: bool) -> bool:
        """Whether a validation is a part of the training, with the number of its last iteration.

        Args:
            by_epoch: Whether epochs are counted; else every validation is.
        """
        every = val_check_batch(self.trainer)
        return bool(
            not by_epoch
            or self.trainer.check_val_every_n_epoch is None
            or every is None  # by time
            or every < self.trainer.num_training_batches
        )

    @property
    def inner_iter(self) -> int:
        """The index of the batch in the epoch; between epochs, the index of the last batch."""
        if self._stale_inner_iter is not None:
            return self._stale_inner_iter
        ready: int = self._counts_of_epoch.ready  # the current batch included
        return ready - 1 if ready else 0

    @inner_iter.setter
    def inner_iter(self, value: int | None) -> None:
        self._stale_inner_iter = value

    _inner_iter = inner_iter

    @property
    def max_epochs(self) -> int | None:
        """Epochs to do, None where the run is counted in iterations."""
        return self._max_epochs

    @functools.cached_property
    def max_iters(self) -> int | None:
        """Iterations to do, None where the loader has no length."""
        return self._max_iters

    def begin_pass(self, done: int = 0) -> None:
        """Mark the start of an epoch, or of a pass over the data, of which ``done`` are done."""
        self.epoch_start = self.iter - done
        self.empty_batches = 0
        self.step_counts.begin_epoch(done)

    def iters_until(self, epochs: int) -> int:
        """Return the iterations done after the run's first epochs.

        Epochs to come are taken to be as long as the present: a loader may grow.

        Raises:
            ValueError: if the loader has no length.
        """
        batches = self.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError("iterations of an epoch are counted: the loader needs a length")
        begun, start = self._present_epoch()
        return max(start + (epochs - begun) * int(batches), 0)

    def _present_epoch(self) -> tuple[int, int]:
        """Return the number of the present epoch, or the next, and the iterations before it."""
        return self.trainer.current_epoch, self.epoch_start

    def _iters_of_steps(self, steps: int) -> int:
        """Return the iterations done after the run's first optimizer steps."""
        return self.step_counts.iterations_to(steps, self.epoch_start)

    @property
    def file_number(self) -> int:
        """The number in the name of a checkpoint: epochs, or iterations, with the current."""
        return (self.epoch if self.counts_epochs else self.iter) + 1

    @property
    def is_last_batch(self) -> bool:
        """Whether the batch is the epoch's last, also with a limit or a loader without length."""
        if self.mode == "val":
            return bool(self.inner_iter + 1 >= sum(self.trainer.num_val_batches))
        return progress.is_last_batch(self.trainer)

    # -- optimizer steps -------------------------------------------------------------------

    @property
    def optimizer_steps(self) -> int:
        """Optimizer steps made, per optimizer; a step may take several iterations."""
        return self.step_counts.made

    @functools.cached_property
    def max_optimizer_steps(self) -> int | None:
        """Optimizer steps of the whole run, None if unknown."""
        return self.step_counts.of_run()

    def optimizer_steps_until(self, epochs: int) -> int:
        """Return the optimizer steps made after the run's first epochs, as :meth:`iters_until`."""
        return self.step_counts.until(epochs)

    # -- optimizers ------------------------------------------------------------------------

    @functools.cached_property
    def optimizer(self) -> Any:
        """The optimizer, or a dict of several optimizers by name; may be replaced."""
        self.known_optimizer = self._find_optimizer()
        return self.known_optimizer

    def use_optimizer(self, optimizer: Any) -> None:
        """Set the optimizer for hooks to step; None if Lightning steps."""
        self.hooks_own_step = self._keeps_optimizer = optimizer is not None
        self.steps_directly = False  # until the next step's result
        self.optimizer = self.known_optimizer = optimizer
        self.renew()

    def take_optimizer(self) -> None:
        """Train with an optimizer, or dict of optimizers, assigned by a hook, if any."""
        if self.optimizer is self.known_optimizer:
            return
        value = self.known_optimizer = self.optimizer
        many = list(value.values()) if isinstance(value, dict) else [value]
        many = [
            getattr(optimizer, "optimizer", optimizer) for optimizer in many
        ]  # out of Lightning's wrapper
        if not all(isinstance(optimizer, torch.optim.Optimizer) for optimizer in many):
            self._keeps_optimizer = True  # not one of torch's: hooks step the optimizer
            self.step_counts.stepped_at = None
            return
        self.trainer.optimizers = many
        if self.hooks_own_step:
            self.use_optimizer(optimizers_of_hooks(self))

    def _find_optimizer(self) -> Any:
        optimizers = self.trainer.optimizers
        return by_name(self.module, optimizers) if optimizers else None

    def added_groups(self, optimizer: Any, known: int) -> list[dict[str, Any]]:
        """Return the parameter groups added during the run, for hooks that set their values.

        Args:
            optimizer: The optimizer.
            known: The number of groups at the beginning.
        """
        groups: list[dict[str, Any]] = optimizer.param_groups[known:]
        return groups

    def current_lr(self) -> Rates:
        """The learning rate of every parameter group (of every optimizer, by name)."""
        return rates(self.optimizer, "lr")

    def current_momentum(self) -> Rates:
        """The momentum, or Adam's first beta, of every parameter group; 0 without a momentum."""
        return rates(self.optimizer, "momentum")

    # -- checkpoints of mmcv's layout ------------------------------------------------------

    def save_checkpoint(
        self,
        out_dir: str,
        filename_tmpl: str | None = None,
        save_optimizer: bool = True,
        meta: dict[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint of mmcv's layout now, and point ``latest.pth`` at the file.

        A single rank may call the method: no collective is used. ``fast_dev_run`` writes nothing.

        Raises:
            TypeError: if ``meta`` is neither a dict nor None.
            ValueError: if the template leaves ``out_dir``, or the parameters are spread over the
                ranks.
        """
        template = filename_tmpl or self.filename_tmpl
        filename = mmcv_checkpoint.file_name(template, self.file_number)
        if meta is not None and not isinstance(meta, dict):
            raise TypeError(f"meta must be a dict or None, got {type(meta).__name__}")
        if not self.may_write:
            return
        mmcv_checkpoint.save(self, files.join(out_dir, filename), save_optimizer, meta)
        if create_symlink:
            checkpoints.link_latest(out_dir, filename)

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: list[tuple[str, str]] | None = None,
    ) -> dict[str, Any]:
        """Load the weights of a file into the runner's model and return the whole checkpoint.

        For a run with an average, the loaded weights are the average, as validated. The prefixes
        ``module.`` (a wrapped model) and ``model.`` (a LightningModule's attribute) are added to or
        taken from keys as needed.

        Raises:
            RuntimeError: if ``strict`` and keys or shapes differ. Else differences are logged.
            ValueError: if the parameters are spread over the ranks.
        """
        revisions = revise_keys or [(r"^module\.", "")]
        return mmcv_checkpoint.load(self, filename, map_location, strict, revisions)

    def resume(
        self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Go on from an mmcv or Lightning checkpoint: weights, meta, counters and optimizers."""
        where = "cpu" if map_location == "default" else map_location
        mmcv_checkpoint.resume(self, checkpoint, resume_optimizer, where)
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)

    # -- samples ---------------------------------------------------------------------------

    def log_image(self, name: str, image: Any) -> None:
        """Log an image at the current iteration, as ``train/name`` or ``val/name``.

        Args:
            name: The image's name; later images of the same name form a series.
            image: A tensor or array ``[C, H, W]`` with 1, 3 or 4 channels, or ``[H, W]``; floats
                from 0 to 1, or integers from 0 to 255.

        Raises:
            TypeError: if the value is no image.
        """
        self.samples.log(name, lambda: image_of(name, image))

    def log_table(
        self, name: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Iterable[Any]]
    ) -> None:
        """Log a table at the current iteration, as ``train/name`` or ``val/name``.

        Args:
            name: The table's name; later tables of the same name form a series.
            rows: A dict for each row, or a dict of columns, of numbers and texts.

        Raises:
            TypeError, ValueError: if the value is no table.
        """
        self.samples.log(name, lambda: as_table(name, rows))

    def log_figure(self, name: str, figure: Any) -> None:
        """Log a matplotlib figure as an image, as ``train/name`` or ``val/name``."""
        self.samples.log(name, lambda: figure_image(name, figure))

    def log_text(self, name: str, text: str) -> None:
        """Log a text, as ``train/name`` or ``val/name``."""
        if not isinstance(text, str):
            raise TypeError(f"the text {name!r} must be a str, got {shown(text)}")
        self.samples.log(name, lambda: text)

    def log_audio(self, name: str, audio: Any, sample_rate: int) -> None:
        """Log a sound ``[T]`` or ``[C, T]``, as ``train/name`` or ``val/name``."""
        make = functools.partial(audio_of, name, audio, sample_rate)
        self.samples.log(name, make)

    def log_video(self, name: str, video: Any, fps: float = 4) -> None:
        """Log a video ``[T, C, H, W]``, as ``train/name`` or ``val/name``."""
        make = functools.partial(video_of, name, video, fps)
        self.samples.log(name, make)

    # -- hooks -----------------------------------------------------------------------------

    @property
    def hooks(self) -> HookList:
        """The hooks in calling order; may be rewritten."""
        return self._hook_list

    @hooks.setter
    def hooks(self, hooks: Any) -> None:
        self._hook_list[:] = hooks

    _hooks = hooks

    def register_hook(self, hook: Any, priority: int | str | None = None) -> None:
        """Add a hook by priority; by default the priority of the hook's family.

        During a run the hook is called from the next point on. For a hook of this package
        ``before_run`` is called first, unlike in mmcv.
        """
        check_object(hook)
        value = default_priority(hook) if priority is None else get_priority(priority)
        self._hooks.add((hook, value))

    def get_hook_info(self) -> str:
        """mmcv's table of the stages and hooks."""
        return hook_info(self._hooks)

    def announce(self) -> None:
        """Log the hooks in calling order and the place of their files; warn of misspelt points."""
        told = []
        if self.hooks:
            many = f"{len(self.hooks)} hooks, called in this order"
            order = ", ".join(map(class_name, self.hooks))
            told.append(f"{many if len(self.hooks) > 1 else '1 hook'}: {order}")
            if self.iter:
                told.append(f"goes on after {self.epoch} epochs and {self.iter} iterations")
        writers = self._writers()
        if not self.may_write:
            names = ", ".join(dict.fromkeys(map(class_name, writers)))
            told.append(
                f"fast_dev_run: nothing is written by {names or 'runner.save_checkpoint()'}"
            )
        elif writers:
            told.append(f"files in {self._places(writers)}")
        if told:
            self.logger.info("%s", "; ".join(told))
        self.announce_misspelt()

    def announce_end(self) -> None:
        """Log the place of the run's files; in a spawned process, the end of hooks' values."""
        writers = self._writers()
        if self.may_write and writers:
            self.logger.info("the files of this run are in %s", self._places(writers))
        launched = self.trainer.strategy.launcher is not None
        if launched and multiprocessing.parent_process() is not None:  # ddp_spawn, ddp_notebook
            self.logger.info(
                "this fit ran in processes of its own, and what its hooks hold ends with them, "
                "but for averages; it is in the checkpoints: trainer.fit(..., ckpt_path='last') "
                "of a new Trainer goes on"
            )

    def warn_once(self, text: str) -> None:
        """Warn, once for each text."""
        if text not in self._warnings:
            self._warnings.add(text)
            self.logger.warning("%s", text)

    def announce_misspelt(self) -> None:
        """Warn of hooks' methods with a name close to a point's name."""
        for hook, name, point in misspelt_points(self.hooks):
            message = "%s.%s() is called at no point; did you mean %s()?"
            self.logger.warning(message, class_name(hook), name, point)

    def _writers(self) -> list[HookCallback]:
        """Return the hooks that write files."""
        return [hook for hook in natives_with("_writes_files", self.hooks) if hook._writes_files]

    def _places(self, writers: Iterable[HookCallback]) -> str:
        """Return the work directory, and the directories of checkpoints elsewhere."""
        hooks = natives_with("_checkpoint_directory", writers)
        places = dict.fromkeys(hook._checkpoint_directory(self) for hook in hooks)
        others = ", ".join(place for place in places if place not in (None, self.work_dir))
        told = f"{self.work_dir}, checkpoints in {others}" if others else self.work_dir
        return str(without_user(told))

    def take_result(self, result: Any) -> None:
        """Set ``result`` and ``outputs`` to the result of a validation or test step."""
        self.result = result
        self.outputs = StepOutputs.of(self, as_outputs(result))

    def call_hook(self, fn_name: str) -> None:
        """Call a method of every hook with the method; the list may change meanwhile."""
        called: dict[int, Any] = {}  # a list sorted meanwhile has some again
        before, self.calls_hooks = self.calls_hooks, True
        hooks, place = self._hooks, 0
        try:
            with calling(None, fn_name, self) as call:
                while place < len(hooks):
                    hook = call.hook = hooks[place]
                    if id(hook) not in called:
                        called[id(hook)] = hook
                        method = hooks.method_at(hook, fn_name)
                        if method is not None:
                            method(self)
                    if place >= len(hooks) or hooks[place] is not hook:
                        # the place of a hook that has removed itself is the next hook's
                        place = next((i for i, e in enumerate(hooks) if e is hook), place - 1)
                    place += 1
        finally:
            self.calls_hooks = before


def training_loader(runner: Runner) -> Any:
    """Return the training loader, also in a validation; a loader set by a hook comes first."""
    if runner.new_data_loader is not None:
        return runner.new_data_loader
    loaders = data.train_loaders(runner.trainer)
    return loaders[0] if len(loaders) == 1 else runner.trainer.train_dataloader


class EpochRunner(Runner):
    """A run counted in epochs: mmcv's EpochBasedRunner."""

    mmcv_class = "EpochBasedRunner"

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
    def _max_epochs(self, value: int | None) -> None:
        self.renew()
        progress.set_max_epochs(self.trainer, value)

    def _present_epoch(self) -> tuple[int, int]:
        return self.epoch, self.epoch_start if self.in_epoch else self.iter

    @property
    def _max_iters(self) -> int | None:
        if self.own_max_iters is not None:
            return self.own_max_iters
        limits = []
        has_length = self.trainer.num_training_batches != float("inf")
        if self._max_epochs is not None and has_length:
            limits.append(self.iters_until(self._max_epochs))
        if self.trainer.max_steps >= 0:
            steps = self._iters_of_steps(self.trainer.max_steps)
            for hook in natives_with("_iterations_of", self.hooks):
                steps = hook._iterations_of(steps, self.trainer)
            if self.hooks_own_step:
                hosted = (hook for hook in self.hooks if isinstance(hook, HostedHook))
                steps *= max((hook.cumulative_iters for hook in hosted), default=1)
            limits.append(steps)
        return min(limits, default=None)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        self.renew()
        self.own_max_iters = value  # until the next epoch computes the limit, as in mmcv


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

    mmcv_class = "IterBasedRunner"
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
            if self.hooks_own_step:
                return self.trainer.max_steps
            return self._iters_of_steps(self.trainer.max_steps)
        epochs, batches = self.trainer.max_epochs, self.trainer.num_training_batches
        if epochs is None or epochs < 0 or batches == float("inf"):
            return None
        return self.iters_until(epochs)

    @_max_iters.setter
    def _max_iters(self, value: int | None) -> None:
        if value == self._max_iters:  # written back, and Lightning counts steps, not iterations
            return
        self.renew()
        self.own_max_iters = value
        if value is not None:
            progress.set_max_steps(self.trainer, value)

    # -- called by the driver ----------------------------------------------------------------

    def begin_batch(self, batch_idx: int) -> None:
        """Set the counters for the ``batch_idx``-th training batch of a pass."""
        # mmcv reads the loader's passes before fetching the batch
        self._epoch = max(self.trainer.current_epoch - (batch_idx == 0), 0)
        validates = self.trainer.enable_validation
        self.inner_iter = self.iter - self.last_val_iter if validates else 0

    @property
    def data_loader(self) -> Any:
        """The current loader as mmcv's endless IterLoader."""
        loader = super().data_loader
        if id(loader) not in self._iter_loaders:
            self._iter_loaders = {**self._iter_loaders, id(loader): IterLoader(self, loader)}
        return self._iter_loaders[id(loader)]

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        Runner.data_loader.fset(self, getattr(value, "_dataloader", value))  # type: ignore[attr-defined]
