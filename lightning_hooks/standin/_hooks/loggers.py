"""mmcv's loggers where old code needs another behaviour than the native loggers'.

An old subclass of an experiment logger has the client at once and sends without a thread. A client
module that the program itself has put into ``sys.modules``, such as a mock in a test, gets mmcv's
calls, without thread and spool file.
"""

from __future__ import annotations

import importlib
import os
import sys
from abc import ABCMeta
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.utilities.data import sized_len

import lightning_hooks
from lightning_hooks.engine.driver.ownership import runs_no_user_code
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.loggers import base as native
from lightning_hooks.loggers import discontinued
from lightning_hooks.loggers.text import json_line
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.standin._hooks.adjusted import only_if, under_mmcv
from lightning_hooks.standin.utils.dist import master_only
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "ClearMLLoggerHook",
    "DvcliveLoggerHook",
    "LoggerHook",
    "MlflowLoggerHook",
    "NeptuneLoggerHook",
    "PaviLoggerHook",
    "SegmindLoggerHook",
    "TensorboardLoggerHook",
    "TextLoggerHook",
    "WandbLoggerHook",
]


class LoggerHook(native.LoggerHook, metaclass=ABCMeta):
    """Log as mmcv under the stand-in's runners; in a Trainer, as the native ``LoggerHook``.

    As in mmcv a line averages the last ``interval`` values of each key, all loggers log whenever
    one of them does, and an epoch shorter than the interval has no line.

    Args:
        interval, ignore_last, reset_flag, by_epoch: As in :class:`lightning_hooks.LoggerHook`.

    Source: mmcv's ``LoggerHook``; training values are ``train`` without ``IterTimerHook``, too.
    """

    @classmethod
    def __subclasshook__(cls, subclass: type) -> Any:
        """Count a native logger as a logger of mmcv's."""
        is_logger = cls is LoggerHook and issubclass(subclass, native.LoggerHook)
        return True if is_logger else NotImplemented

    @under_mmcv
    def before_epoch(self, runner: Runner) -> None:
        """Forget all values of the epoch before."""
        runner.log_buffer.clear()

    @under_mmcv
    def after_train_iter(self, runner: Runner) -> None:
        """Log the averages of the last values every ``interval`` iterations."""
        every = self.every_n_inner_iters if self.by_epoch else self.every_n_iters
        if every(runner, self.interval) or (not self.ignore_last and self.end_of_epoch(runner)):
            runner.log_buffer.average(self.interval)
        self._log_if_ready(runner)

    @under_mmcv
    def after_train_epoch(self, runner: Runner) -> None:
        """Log the results of other hooks."""
        self._log_if_ready(runner)

    @under_mmcv
    def after_epoch(self, runner: Runner) -> None:
        """Log nothing."""

    @under_mmcv
    def after_val_epoch(self, runner: Runner) -> None:
        """Log the averages of a validation."""
        runner.log_buffer.average()
        self._log_if_ready(runner)

    def _log_if_ready(self, runner: Runner) -> None:
        if runner.log_buffer.ready:
            self.log(runner)
            if self.reset_flag:
                runner.log_buffer.clear_output()

    def get_mode(self, runner: Runner) -> str:
        """Return the mode; ``"val"`` for a training line without values, as in mmcv."""
        if runner.loops_itself and runner.mode == "train" and not runner.log_buffer.output:
            return "val"
        return super().get_mode(runner)


class TextLoggerHook(LoggerHook, lightning_hooks.TextLoggerHook):
    """A TextLoggerHook with mmcv's rounding of the JSON, under the stand-in's runners.

    In a Trainer the hook behaves as :class:`lightning_hooks.TextLoggerHook`, which describes the
    arguments.

    Source: mmcv's ``TextLoggerHook``; NaN and infinity stay ``null`` in the JSON.
    """

    def _writes_lines(self, runner: Runner) -> bool:
        """Return whether lines go to a log file; under mmcv the script's logger writes the file."""
        return not runner.loops_itself and super()._writes_lines(runner)

    @under_mmcv
    def _claim_timestamp(self, runner: Runner, resumed: Collection[str]) -> None:
        """Do nothing: no checkpoint knows the files."""

    def _iterations(self, done: int) -> int:
        return min(self.interval, done)

    @under_mmcv
    def _batches(self, runner: Runner) -> int | None:
        """Return the length of the loader, in a run by iteration, too."""
        return sized_len(runner.data_loader)

    def _has_meta(self, runner: Runner) -> bool:
        return runner.meta is not None if runner.loops_itself else super()._has_meta(runner)

    def _json_line(self, record: Mapping[str, Any], runner: Runner) -> str:
        if not runner.loops_itself:
            return super()._json_line(record, runner)
        # before the conversion to plain types, so that numpy's numbers are not rounded
        rounded = {key: self._round_float(value) for key, value in record.items()}
        return json_line(rounded, rounding=lambda value: value)

    def _round_float(self, items: Any) -> Any:
        """Return values rounded for the JSON."""
        if isinstance(items, list):
            return [self._round_float(item) for item in items]
        return round(items, 5) if isinstance(items, float) else items


_in_subclasses = property(lambda hook: not runs_no_user_code(hook))
"""``synchronous`` of a tracker: True in a user's subclass.

A subclass uses the client (``self.wandb.run``, ``self.writer``) right after
``super().before_run(runner)`` and ``super().log(runner)``, as in mmcv. Each call waits for at most
``timeout`` seconds.
"""


_for_mocked = only_if(lambda hook, runner: hook._is_mocked)
"""Decorate a method for a mocked client; with any other the inherited method is called."""


class _Tracker(LoggerHook, TrackerHook):
    """Base of trackers that call a mocked client directly, as mmcv does."""

    _synchronous = _in_subclasses
    _mocked_run: Any = None

    @property
    def _is_mocked(self) -> bool:
        """Whether the client's module was made by the program: no loader has loaded the module."""
        module = sys.modules.get(self._package)
        spec = getattr(module, "__spec__", None)
        return module is not None and getattr(spec, "loader", None) is None

    @property
    def _current_run(self) -> Any:
        """The client's run; None until the backend has started it."""
        return super()._current_run if self._mocked_run is None else self._mocked_run

    @_for_mocked
    def before_run(self, runner: Runner) -> None:
        """Start the mocked client."""
        LoggerHook.before_run(self, runner)
        if runner.is_writer:
            self._start(runner)

    @_for_mocked
    def log(self, runner: Runner) -> None:
        """Send the values to the mocked client."""
        if runner.is_writer and (tags := self.get_loggable_tags(runner)):
            self._send(tags, runner.iter + 1, runner)

    @_for_mocked
    def after_run(self, runner: Runner) -> None:
        """Close the run."""
        if runner.is_writer:
            self._finish(runner)

    def _start(self, runner: Runner) -> None:
        """Make mmcv's calls at the start of a run."""

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        """Make mmcv's calls for the values of an iteration."""
        raise NotImplementedError(f"{type(self).__name__} must define _send(tags, step, runner)")

    def _finish(self, runner: Runner) -> None:
        """Make mmcv's calls at the end of a run."""


class ClearMLLoggerHook(_Tracker, lightning_hooks.ClearMLLoggerHook):
    """:class:`lightning_hooks.ClearMLLoggerHook`; an old subclass has ``self.task`` at once."""

    def _start(self, runner: Runner) -> None:
        self._mocked_run = self.clearml.Task.init(**self.init_kwargs)
        self.task_logger = self.task.get_logger()

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        for name, value in tags.items():
            self.task_logger.report_scalar(name, name, value, step)


_for_epochs = only_if(lambda hook, runner: hook.by_epoch and runner.loops_itself)
"""Decorate a method for mmcv's epochs; in any other run the inherited method is called."""


class DvcliveLoggerHook(_Tracker, lightning_hooks.DvcliveLoggerHook):
    """:class:`lightning_hooks.DvcliveLoggerHook`; an old subclass has ``self.dvclive`` at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._is_mocked:
            self._mocked_run = self._client_run
            if self._mocked_run is None:
                self._mocked_run = self._dvclive_package.Live(**self._live_options)

    @_for_epochs
    def after_train_iter(self, runner: Runner) -> None:
        """Log nothing: the run is counted in epochs."""

    @_for_epochs
    def after_train_epoch(self, runner: Runner) -> None:
        """Save the model; log the results of other hooks, and the epoch's averages."""
        self._save_model(runner)
        buffer = runner.log_buffer
        if self._is_mocked:  # mmcv logs no averages of an epoch
            self._log_if_ready(runner)
        else:
            averages = buffer.means(
                {key: len(values) for key, values in buffer.val_history.items()}
            )
            self._write(runner, averages, buffer.output.results())

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        self.dvclive.set_step(self.get_epoch(runner) if self.by_epoch else step)
        for name, value in tags.items():
            self.dvclive.log(name, value)


class MlflowLoggerHook(_Tracker, lightning_hooks.MlflowLoggerHook):
    """:class:`lightning_hooks.MlflowLoggerHook`; an old subclass has the active run at once."""

    def _start(self, runner: Runner) -> None:
        if self.exp_name is not None:
            self.mlflow.set_experiment(self.exp_name)
        if self.tags:
            self.mlflow.set_tags(self.tags)
        if self.params:
            self.mlflow.log_params(self.params)

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        self.mlflow.log_metrics(tags, step=step)

    def _finish(self, runner: Runner) -> None:
        if self.log_model:
            needed = [f"torch=={torch.__version__}"]
            self.mlflow_pytorch.log_model(runner.model, "models", pip_requirements=needed)


class NeptuneLoggerHook(_Tracker, lightning_hooks.NeptuneLoggerHook):
    """:class:`lightning_hooks.NeptuneLoggerHook`; an old subclass has ``self.run`` at once."""

    @property
    def neptune(self) -> Any:
        """The client, or ``neptune.new`` of a mocked client, which mmcv imports."""
        client = super().neptune
        return getattr(client, "new", client) if self._is_mocked else client

    def _start(self, runner: Runner) -> None:
        self._mocked_run = self.neptune.init(**self.init_kwargs)

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        for name, value in tags.items():
            if self.with_step:
                self.run[name].log(value, step=step)
            else:
                self.run[name].log({**tags, "global_step": step})

    def _finish(self, runner: Runner) -> None:
        self.run.stop()


class TensorboardLoggerHook(LoggerHook, lightning_hooks.TensorboardLoggerHook):
    """:class:`lightning_hooks.TensorboardLoggerHook`; an old subclass has ``self.writer``."""

    _synchronous = _in_subclasses


class WandbLoggerHook(_Tracker, lightning_hooks.WandbLoggerHook):
    """:class:`lightning_hooks.WandbLoggerHook`; an old subclass has ``self.wandb.run`` at once."""

    def _start(self, runner: Runner) -> None:
        self.wandb.init(**self.init_kwargs)
        for metric, summary in (self.define_metric_cfg or {}).items():
            self.wandb.define_metric(metric, summary=summary)

    def _send(self, tags: dict[str, Any], step: int, runner: Runner) -> None:
        if self.with_step:
            self.wandb.log(tags, step=step, commit=self.commit)
        else:
            self.wandb.log({**tags, "global_step": step}, commit=self.commit)

    def _finish(self, runner: Runner) -> None:
        if self.log_artifact:
            artifact = self.wandb.Artifact(name="artifacts", type="model")
            for path in sorted(Path(runner.work_dir).rglob("[!.]*")):
                if path.is_file() and path.name.endswith(self.out_suffix):
                    artifact.add_file(str(path))
            self.wandb.log_artifact(artifact)
        self.wandb.join()


class PaviLoggerHook(LoggerHook):
    """Log to Pavi, through an importable module ``pavi``: scalars and checkpoints.

    Args:
        init_kwargs: Arguments of ``pavi.SummaryWriter``; by default ``name`` is the last part of
            the work directory and ``model`` the model's name.
        add_graph, img_key, add_graph_kwargs: Ignored: graphs are not sent, and a warning says so.
        add_last_ckpt: Whether ``latest.pth`` is sent at the end.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        add_ckpt_kwargs: ``active``, ``start``, ``interval``: the epochs (iterations, with
            ``by_epoch=False``) whose checkpoints are sent.

    Raises:
        ImportError: when a run begins, if there is no such module.

    Source: mmcv's ``PaviLoggerHook``, without graphs and without the config as session text.
    """

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        add_graph: bool | None = None,
        img_key: str | None = None,
        add_last_ckpt: bool = False,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        add_graph_kwargs: dict[str, Any] | None = None,
        add_ckpt_kwargs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        if add_graph or (add_graph_kwargs or {}).get("active"):
            rank_zero_warn("the stand-in's PaviLoggerHook sends no graphs")
        checkpoint = add_ckpt_kwargs or {}
        self.init_kwargs = init_kwargs
        self.add_ckpt = checkpoint.get("active", False)
        self.add_ckpt_start = checkpoint.get("start", 0)
        self.add_ckpt_interval = checkpoint.get("interval", 1)
        self.add_last_ckpt = add_last_ckpt

    @master_only
    def before_run(self, runner: Runner) -> None:
        """Open the writer."""
        super().before_run(runner)
        try:
            writer_class = importlib.import_module("pavi").SummaryWriter
        except ImportError as error:
            raise ImportError(discontinued.replacement(discontinued.PaviLoggerHook)) from error
        self._run_name = os.path.basename(runner.work_dir)
        defaults = {"name": self._run_name, "model": runner.model_name}
        self.init_kwargs = {**defaults, **(self.init_kwargs or {})}
        self.writer = writer_class(**self.init_kwargs)

    @master_only
    def log(self, runner: Runner) -> None:
        """Send the averages in the log buffer."""
        if tags := self.get_loggable_tags(runner, add_mode=False):
            self.writer.add_scalars(self.get_mode(runner), tags, self.get_step(runner))

    @master_only
    def after_run(self, runner: Runner) -> None:
        """Send the last checkpoint, and close the writer."""
        if self.add_last_ckpt:
            step = runner.epoch if self.by_epoch else runner.iter
            self._send_checkpoint(runner, "latest.pth", step)
        self.writer.close()

    @master_only
    def after_train_epoch(self, runner: Runner) -> None:
        """Log, and send the epoch's checkpoint if the epoch is due."""
        super().after_train_epoch(runner)
        if self.by_epoch:
            self._send_if_due(runner, "epoch", self.get_epoch(runner))

    @master_only
    def after_train_iter(self, runner: Runner) -> None:
        """Log, and send the iteration's checkpoint if the iteration is due."""
        super().after_train_iter(runner)
        if not self.by_epoch:
            self._send_if_due(runner, "iter", self.get_iter(runner))

    def _send_if_due(self, runner: Runner, unit: str, step: int) -> None:
        since = step - self.add_ckpt_start
        if self.add_ckpt and since >= 0 and since % self.add_ckpt_interval == 0:
            self._send_checkpoint(runner, f"{unit}_{step}.pth", step)

    def _send_checkpoint(self, runner: Runner, name: str, step: int) -> None:
        """Send a checkpoint of the work directory, or the target of a link, if it exists."""
        path = os.path.join(runner.work_dir, name)
        if os.path.islink(path):
            path = os.path.join(runner.work_dir, os.readlink(path))
        if os.path.isfile(path):
            self.writer.add_snapshot_file(
                tag=self._run_name, snapshot_file_path=path, iteration=step
            )


class SegmindLoggerHook(LoggerHook):
    """Log with the functions of an importable module ``segmind``; the step is the epoch.

    Args:
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.

    Raises:
        ImportError: if there is no such module; Segmind no longer offers it.

    Source: mmcv's ``SegmindLoggerHook``, reproduced.
    """

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.import_segmind()

    def import_segmind(self) -> None:
        """Set ``log_metrics`` and ``mlflow_log`` to the client's functions."""
        try:
            segmind = importlib.import_module("segmind")
        except ImportError as error:
            raise ImportError(discontinued.replacement(discontinued.SegmindLoggerHook)) from error
        self.log_metrics = segmind.tracking.fluent.log_metrics
        self.mlflow_log = segmind.utils.logging_utils.try_mlflow_log

    @master_only
    def log(self, runner: Runner) -> None:
        """Send the averages in the log buffer."""
        if tags := self.get_loggable_tags(runner):
            self.mlflow_log(self.log_metrics, tags, step=runner.epoch, epoch=runner.epoch)
