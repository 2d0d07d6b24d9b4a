"""Hooks and writers of pointrix-style trainers, importable without pointrix.

The loop, with the points of a hook, called with the trainer alone::

    hook.before_run(trainner)
    hook.before_train(trainner)
    for global_step in 1, 2, ...:
        hook.before_train_iter(trainner)
        # forward, backward, the optimizer's step: loss_dict
        hook.after_train_iter(trainner)
        # if validation is due:
        hook.before_val(trainner)
        for _ in range(val_dataset_size):
            hook.before_val_iter(trainner)
            hook.after_val_iter(trainner)
        hook.after_val(trainner)  # metric_dict
    hook.after_train(trainner)
    hook.after_run(trainner)

``before_save_checkpoint(trainner)`` and ``after_load_checkpoint(trainner, checkpoint)`` are called
for Lightning's checkpoints, ``exception()`` when training raises, and any other point by
``trainner.call_hook(name)`` or ``HookAdapter.call_hook(name)``. Hooks without a point are skipped.
A TypeError in a hook is raised again with the hook's name.

pointrix defines ``after_run`` and the points of checkpoints, but never calls these points.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from lightning_hooks.dialects.background_writer import BackgroundWriter
from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.hosting import Facade, scalars_of, state_of
from lightning_hooks.engine.lightning_api.validation import batches_begun
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.loggers.trackers import tensorboard
from lightning_hooks.loggers.trackers.inputs import flatten_params
from lightning_hooks.storage.torch_files import save_torch, to_cpu
from lightning_hooks.utils.arguments import check_int, shown
from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.origin import is_ours
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "DIALECT",
    "HOOK_REGISTRY",
    "WRITER_REGISTRY",
    "CheckPointHook",
    "Hook",
    "HookRegistry",
    "LogHook",
    "ProgressHook",
    "TensorboardWriter",
    "Writer",
    "parse_hooks",
    "parse_writer",
]


class HookRegistry:
    """Classes of hooks or of writers by name.

    Args:
        kind: The word for a class in errors.

    >>> registry = HookRegistry()
    >>> @registry.register()
    ... class MyHook:
    ...     pass
    >>> registry.get("MyHook") is MyHook
    True
    """

    def __init__(self, kind: str = "hook") -> None:
        self._kind = kind
        self._classes: dict[str, type] = {}

    def register(self, cls: Any = None) -> Any:
        """Register a class by name; a decorator, with or without parentheses.

        A class replaces the class of the same name in this package.

        Raises:
            KeyError: for a name used by another class outside of this package.
        """
        if cls is None:
            return self.register
        if not inspect.isclass(cls):
            raise TypeError(f"only a class can be registered as a {self._kind}, got {shown(cls)}")
        other = self._classes.get(cls.__name__, cls)
        if other is not cls and not is_ours(other):
            name = f"{self._kind} {cls.__name__}"
            raise KeyError(f"the {name} is registered already, by {other.__module__}")
        self._classes[cls.__name__] = cls
        return cls

    def get(self, name: str) -> type:
        """Return the class of a name.

        Raises:
            UnknownNameError: for an unknown name, with the closest name.
        """
        if name not in self._classes:
            raise UnknownNameError(
                f"no {self._kind} {name!r} is registered; {suggest(name, self._classes)}"
            )
        return self._classes[name]

    def __contains__(self, name: object) -> bool:
        return name in self._classes


HOOK_REGISTRY = HookRegistry()
"""pointrix's hooks: ``LogHook``, ``CheckPointHook``, ``ProgressHook`` and users' hooks."""


class Hook:
    """The base of pointrix's hooks: override any of the points."""

    hook_dialect = "pointrix"
    priority = "NORMAL"
    """Ignored, as in pointrix: hooks are called in the order given."""

    def before_run(self, trainner: Any) -> None:
        """Before the run."""

    def after_load_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """After loading a checkpoint."""

    def before_train(self, trainner: Any) -> None:
        """Before the first iteration."""

    def before_train_iter(self, trainner: Any) -> None:
        """Before each iteration."""

    def after_train_iter(self, trainner: Any) -> None:
        """After each iteration; ``trainner.global_step`` is the iteration's number, from 1."""

    def before_val(self, trainner: Any) -> None:
        """Before each validation."""

    def before_val_iter(self, trainner: Any) -> None:
        """Before each validation step."""

    def after_val_iter(self, trainner: Any) -> None:
        """After each validation step."""

    def after_val(self, trainner: Any) -> None:
        """After each validation."""

    def before_save_checkpoint(self, trainner: Any, checkpoint: dict[str, Any]) -> None:
        """Before writing a checkpoint; hooks may change the dict."""

    def after_train(self, trainner: Any) -> None:
        """After the last iteration."""

    def after_run(self, trainner: Any) -> None:
        """After the run."""

    def exception(self) -> None:
        """After an error in training."""

    locations = tuple(name for name in vars() if name.startswith(("before_", "after_")))
    """The names of the points with a trainer, in the order of the loop."""


class _BarHook(Hook):
    """A hook with a progress bar of the run."""

    progress_bar: Any = None

    def before_train(self, trainner: Any) -> None:
        """Draw an empty bar."""
        from tqdm.auto import tqdm  # type: ignore[import-untyped]  # Lightning needs tqdm too

        self.progress_bar = tqdm(
            desc="Training progress",
            total=trainner.max_steps,
            initial=trainner.global_step - 1,
            disable=trainner.rank != 0 or not self._is_shown(trainner),
        )

    def _is_shown(self, trainner: Any) -> bool:
        return True

    def _advance(self, trainner: Any, interval: int | None = None) -> None:
        """Move the bar to the current step at the end of an interval, and show the losses."""
        bar, step = self.progress_bar, trainner.global_step
        interval = interval or getattr(trainner.cfg, "bar_upd_interval", None) or 10
        if bar is None or bar.disable or (step % interval and step != trainner.max_steps):
            return
        losses = trainner.loss_dict.items()
        bar.set_postfix({name: f"{float(value):.4g}" for name, value in losses}, refresh=False)
        bar.update(step - bar.n)

    def after_train(self, trainner: Any) -> None:
        """Stop updating the bar."""
        self.exception()

    def exception(self) -> None:
        """Stop updating the bar."""
        if self.progress_bar is not None:
            self.progress_bar.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "progress_bar": None}


@HOOK_REGISTRY.register()
class LogHook(_BarHook):
    """Writes losses, learning rates and metrics; draws a progress bar.

    ===================  ======================================================
    key                  value
    ===================  ======================================================
    name of a loss       every value of ``loss_dict``
    ``lr/<group>``       the rate of each group, by ``name`` or index
    ``val/<metric>``     every logged value, after each validation
    ``test/<metric>``    ``L1_loss`` and ``psnr``, if returned by the validation
                         step: the mean over the steps
    ===================  ======================================================

    ``progress_bar`` is tqdm's, not shown beside the Trainer's own progress bar; ``losses_test`` has
    the sums of ``L1_loss`` and ``psnr`` over a validation.

    Args:
        interval: Number of iterations between two writes.
    """

    def __init__(self, interval: int = 10) -> None:
        check_int("interval", interval, 1)
        self.interval = interval
        self.losses_test: dict[str, Any] = {"L1_loss": 0.0, "psnr": 0.0}

    def _is_shown(self, trainner: Any) -> bool:
        return trainner.trainer.progress_bar_callback is None

    def after_train_iter(self, trainner: Any) -> None:
        """Write losses and rates at the end of an interval."""
        self._advance(trainner)
        step = trainner.global_step
        if step % self.interval:
            return
        for name, value in trainner.loss_dict.items():
            trainner.writer.write_scalar(name, float(value), step)
        optimizer = trainner.optimizer
        optimizers = optimizer.values() if isinstance(optimizer, dict) else [optimizer]
        groups = [group for each in optimizers for group in each.param_groups]
        for index, group in enumerate(groups):
            if "lr" in group:
                trainner.writer.write_scalar(f"lr/{group.get('name', index)}", group["lr"], step)

    def after_val_iter(self, trainner: Any) -> None:
        """Add the results of the step to ``losses_test``."""
        for name in self.losses_test.keys() & trainner.metric_dict.keys():
            self.losses_test[name] += trainner.metric_dict[name]

    def after_val(self, trainner: Any) -> None:
        """Write metrics."""
        for name, total in self.losses_test.items():
            if total:
                mean = float(total) / trainner.val_dataset_size
                trainner.writer.write_scalar(f"test/{name}", mean, trainner.global_step)
            self.losses_test[name] = 0.0
        step = trainner.global_step - 1  # the finished iteration
        for name, value in trainner.metric_dict.items():
            trainner.writer.write_scalar(f"val/{name}", value, step)
        if trainner.metric_dict:
            text = ", ".join(f"{name} {value:.4f}" for name, value in trainner.metric_dict.items())
            logging.getLogger("lightning_hooks").info("step %d: %s", step, text)


@HOOK_REGISTRY.register()
class CheckPointHook(Hook):
    """Saves model, optimizer and step to ``exp_dir/chkpnt{step}.pth``, every interval and last.

    Args:
        interval: Number of iterations between two files; ``trainner.cfg.save_step`` by default.
    """

    def __init__(self, interval: int | None = None) -> None:
        if interval is not None:
            check_int("interval", interval, 1)
        self.interval = interval
        self._saved = -1

    def before_train(self, trainner: Any) -> None:
        """Forget the files of an earlier run."""
        self._saved = -1

    def after_train_iter(self, trainner: Any) -> None:
        """Save at the end of an interval."""
        interval = self.interval or getattr(trainner.cfg, "save_step", None)
        if interval and trainner.global_step % interval == 0:
            self._save(trainner, trainner.global_step)

    def after_train(self, trainner: Any) -> None:
        """Save the last iteration, unless saved already."""
        if self._saved != trainner.global_step - 1:
            self._save(trainner, trainner.global_step - 1)

    def _save(self, trainner: Any, step: int) -> None:
        self._saved = step
        trainner.save_model(os.path.join(trainner.exp_dir, f"chkpnt{step}.pth"), step)


@HOOK_REGISTRY.register()
class ProgressHook(_BarHook):
    """Draws a progress bar with the last losses on the terminal.

    Args:
        interval: Number of iterations between two updates; ``cfg.bar_upd_interval`` by default.
    """

    def __init__(self, interval: int | None = None) -> None:
        if interval is not None:
            check_int("interval", interval, 1)
        self.interval = interval

    def after_train_iter(self, trainner: Any) -> None:
        """Update the bar at the end of an interval."""
        self._advance(trainner, self.interval)


def config_part(cfg: Any, name: str) -> Mapping[str, Any]:
    """Return a part of a config: a dict, or a YAML file with the dict.

    Args:
        cfg: The part, a YAML file with the part at its root, under ``name`` or under ``trainer``
            and ``name``, or None for an empty dict.
        name: Name of the part.
    """
    if isinstance(cfg, (str, os.PathLike)):
        cfg = read_config(os.fspath(cfg))
        for key in ("trainer", name):
            cfg = cfg.get(key, cfg) if isinstance(cfg, Mapping) else cfg
    if cfg is not None and not isinstance(cfg, Mapping):
        raise TypeError(f"cfg must be a dict of {name} or a YAML file, got {shown(masked(cfg))}")
    return cfg or {}


def parse_hooks(cfg: Mapping[str, Any] | str | os.PathLike[str] | None) -> list[Any]:
    """Build hooks from a config, in the order of the entries.

    Args:
        cfg: Dict of dicts with ``name`` and optional arguments, as ``{"log": {"name":
            "LogHook"}}``, or a YAML file with such a dict, at its root or under ``hooks`` (also
            ``trainer: hooks``).

    Raises:
        UnknownNameError: for an unregistered name.
        TypeError: for another object than a config, or wrong arguments of a hook.

    Note:
        Departures from pointrix: the entries besides ``name`` are passed to the constructor
        (ignored by pointrix), and without a config the list is empty (None in pointrix).
    """
    return [
        built(HOOK_REGISTRY, "name", entry, f"the hook {key!r}")
        for key, entry in config_part(cfg, "hooks").items()
    ]


def built(registry: HookRegistry, name_key: str, entry: Any, what: str, *arguments: Any) -> Any:
    """Build an entry of a config.

    Args:
        registry: Registry with the class.
        name_key: Key of the class's name; the other entries are arguments.
        entry: The entry.
        what: The entry's name in errors.
        arguments: Positional arguments of the class.
    """
    if not isinstance(entry, Mapping) or not isinstance(entry.get(name_key), str):
        raise TypeError(
            f"{what} needs a dict with the key {name_key!r}, got {shown(masked(entry))}"
        )
    keywords = {name: value for name, value in entry.items() if name != name_key}
    cls = registry.get(entry[name_key])
    try:
        return cls(*arguments, **keywords)
    except TypeError as error:
        raise TypeError(f"{error} in {what}: {masked(entry)!r}") from error


WRITER_REGISTRY = HookRegistry("writer")
"""Writers for ``parse_writer``: ``TensorboardWriter`` and users' writers."""


class Writer:
    """The base of writers of scalars, images and a config.

    Args:
        logfolder: Directory of the files.
    """

    def __init__(self, logfolder: str) -> None:
        self.logfolder = os.fspath(logfolder)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Write a number of a step."""
        raise NotImplementedError(f"{type(self).__name__} must define write_scalar()")

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write an image (channels, height, width) of a step."""
        raise NotImplementedError(f"{type(self).__name__} must define write_image()")

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int = 0) -> None:
        """Write a config."""
        raise NotImplementedError(f"{type(self).__name__} must define write_config()")

    def close(self) -> None:
        """Wait until all values are written."""


class NullWriter(Writer):
    """Writes nothing, on all ranks except rank 0 and in a ``fast_dev_run``."""

    def _write_nothing(self, *values: Any, **named: Any) -> None:
        """Do nothing."""

    write_scalar = write_image = write_config = _write_nothing


@WRITER_REGISTRY.register()
class TensorboardWriter(Writer):
    """Writes for TensorBoard, from a separate thread.

    If a file cannot be written, a warning is logged; unwritten values stay in
    ``{logfolder}/spool``, for ``lightning-hooks replay``.

    Args:
        logfolder: Directory of the event files, local or a URL.

    Raises:
        ImportError: if tensorboard is not installed.
    """

    def __init__(self, logfolder: str) -> None:
        super().__init__(logfolder)
        folder, name = self.logfolder, type(self).__name__
        self._writer = BackgroundWriter(tensorboard.TensorboardWriter, name, folder, log_dir=folder)

    def write_scalar(self, name: str, scalar: Any, step: int) -> None:
        """Write a number of a step."""
        self._writer.send(step, scalars={name: float(scalar)})

    def write_image(self, name: str, image: Any, step: int) -> None:
        """Write an image (channels, height, width) of a step."""
        self._writer.send_image(step, name, image)

    def write_config(self, name: str, config_dict: Mapping[str, Any], step: int = 0) -> None:
        """Write a config for the tab HPARAMS, under the name."""
        self._writer.send(step, params=flatten_params({name: dict(config_dict)}))

    def close(self) -> None:
        """Wait until all values are written."""
        self._writer.close()


def parse_writer(
    cfg: Mapping[str, Any] | str | os.PathLike[str] | None, logfolder: str
) -> Writer | None:
    """Build the writer of a config; None without a config.

    Args:
        cfg: Dict with ``writer_type`` and optional arguments, as ``{"writer_type":
            "TensorboardWriter"}``, or a YAML file with such a dict under ``writer`` (also
            ``trainer: writer``).
        logfolder: Directory of the writer's files.

    Raises:
        UnknownNameError: for an unregistered name.
        TypeError: for another object than a config, or wrong arguments of the writer.
    """
    part = config_part(cfg, "writer")
    if not part:
        return None
    writer: Writer = built(WRITER_REGISTRY, "writer_type", part, "the writer", logfolder)
    return writer


class TrainerFacade(Facade):
    """The ``trainner`` passed to pointrix's hooks.

    ``HookAdapter(attributes=...)`` may set ``writer``, ``logger``, ``cfg``, ``gui`` and further
    attributes. By default ``writer`` writes to TensorBoard in ``exp_dir``, and ``logger`` logs
    lines and passes numbers and images to the ``writer``.
    """

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._writer: Any = None
        self._step_shift = 0  # difference of an assigned `global_step` from the run's
        self._given_logger = self._user_attribute("given_logger")
        if self._given_logger is None and hasattr(runner.logger, "write_scalar"):
            self._given_logger = runner.logger
        self.loss_dict: dict[str, Any] = {}
        """The step's ``loss``, the other returned scalars and the values logged in the step."""
        self.metric_dict: dict[str, Any] = {}
        """The result of a validation step; after the validation, the logged values."""

    @property
    def global_step(self) -> int:
        """Number of the iteration, from 1; after an assignment, pointrix counts on from there.

        The length of the run stays.
        """
        return int(self.iter + 1 + self._step_shift)

    @global_step.setter
    def global_step(self, value: int) -> None:
        self._step_shift = value - self.iter - 1

    start_steps = 1
    """Number of the first iteration."""
    max_steps = property(attrgetter("native_runner.max_iters"))
    """Number of the last iteration; None if unknown."""
    exp_dir = property(attrgetter("native_runner.work_dir"))
    """The directory of the run's files."""

    @property
    def val_dataset_size(self) -> int:
        """Number of validation steps; of a loader without length, the steps so far."""
        trainer = self.native_runner.trainer
        length = sum(trainer.num_val_batches)
        return batches_begun(trainer) if length == float("inf") else int(length)

    @property
    def cfg(self) -> Any:
        """The config of ``HookAdapter(attributes=...)``; by default only the run's length."""
        return vars(self.native_runner).get("cfg", _DefaultConfig(self))

    @property
    def writer(self) -> Any:
        """The writer or logger of ``HookAdapter(attributes=...)``, else a TensorboardWriter."""
        for given in (self._user_attribute("writer"), self._given_logger):
            if given is not None:
                return given
        if self._writer is None:
            writer_class = TensorboardWriter if self.is_writer else NullWriter
            self._writer = writer_class(self.exp_dir)
        return self._writer

    @property
    def logger(self) -> Any:
        """The logger of ``HookAdapter(attributes=...)``, else the default logger."""
        return _Logger(self) if self._given_logger is None else self._given_logger

    @logger.setter
    def logger(self, value: Any) -> None:
        self._given_logger = value

    def save_model(self, path: str | None = None, step: int | None = None) -> None:
        """Save the number of the step, the model and the optimizer in pointrix's format.

        Args:
            path: Path of the file; ``exp_dir/chkpnt{step}.pth`` by default.
            step: Number of the step; ``global_step`` by default.
        """
        if not self.is_writer:
            return
        step = self.global_step if step is None else step
        state = {"optimizer": state_of(self.optimizer), "model": self.model.state_dict()}
        state["global_step"] = step
        save_torch(to_cpu(state), path or os.path.join(self.exp_dir, f"chkpnt{step}.pth"))

    # -- events ----------------------------------------------------------------------------

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` between ``before_run`` and ``before_train``."""
        self.pass_loaded_checkpoint()

    def at_after_train_iter(self) -> None:
        """Read the scalars of the step; after the last step, make Lightning validate."""
        outputs = getattr(self.native_runner, "outputs", None) or {}
        log_vars = outputs.get("log_vars") or {}
        self.loss_dict = scalars_of({**outputs, **log_vars, **self.logged_in_step()})
        if self.max_steps is not None and self.iter + 1 >= self.max_steps:
            self.native_runner.trainer.should_stop = True  # Lightning validates before a stop

    def at_after_val_iter(self) -> None:
        """Read the result of the step: numbers, images, names."""
        self.metric_dict = dict(self.native_runner.outputs)

    def at_after_val_epoch(self) -> None:
        """Read the results of the validation."""
        self.metric_dict = {**self._validation_results()}

    def end(self) -> None:
        """Close the default writer; a user's writer stays open."""
        if self._writer is not None:
            self._writer.close()
        super().end()


class _Logger:
    """pointrix's logger: lines go to the run's logger, ``write_*`` to the writer."""

    def __init__(self, trainer: TrainerFacade) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        facade = self._trainer
        owner = facade.writer if name.startswith("write_") else facade.native_runner.logger
        return getattr(owner, name)


class _DefaultConfig(dict[str, Any]):
    """The default config, with the entries read by hooks."""

    def __init__(self, trainer: TrainerFacade) -> None:
        steps = trainer.max_steps
        super().__init__(max_steps=steps, save_step=steps, bar_upd_interval=10, enable_gui=False)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(
                f"the default config has no {name!r}: write HookAdapter(attributes=dict(cfg=...))"
            )
        return self[name]


def _arguments(facade: Facade, point: str, method: Any) -> Arguments:
    return ((), {}) if point == "exception" else ((facade,), {})


DIALECT = Dialect(
    name="pointrix",
    points={
        "before_run": ("before_run", "before_train"),
        "before_train_iter": ("before_train_iter",),
        "after_train_iter": ("after_train_iter",),
        "before_val_epoch": ("before_val",),
        "before_val_iter": ("before_val_iter",),
        "after_val_iter": ("after_val_iter",),
        "after_val_epoch": ("after_val",),
        "after_run": ("after_train", "after_run"),
    },
    facade=TrainerFacade,
    arguments=_arguments,
    base="Hook",
    facade_points=("after_train_iter", "after_val_epoch"),
    on_error=("exception",),
    further=("before_save_checkpoint", "after_load_checkpoint", "exception"),
    renames_type_errors=True,
)
