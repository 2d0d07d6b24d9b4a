"""Loggers of discontinued services, which call the service's client module if it is installed."""

from __future__ import annotations

import importlib
import os
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.loggers import discontinued
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.standin.utils.dist import master_only

__all__ = ["PaviLoggerHook", "SegmindLoggerHook"]


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
    def before_run(self, runner: Any) -> None:
        """Open the writer."""
        super().before_run(runner)
        try:
            writer_class = importlib.import_module("pavi").SummaryWriter
        except ImportError as error:
            raise ImportError(discontinued.replacement(discontinued.PaviLoggerHook)) from error
        self.run_name = os.path.basename(runner.work_dir)
        found = {"name": self.run_name, "model": runner._model_name}
        self.init_kwargs = {**found, **(self.init_kwargs or {})}
        self.writer = writer_class(**self.init_kwargs)

    @master_only
    def log(self, runner: Any) -> None:
        """Send the averages in the log buffer."""
        if tags := self.get_loggable_tags(runner, add_mode=False):
            self.writer.add_scalars(self.get_mode(runner), tags, self.get_step(runner))

    @master_only
    def after_run(self, runner: Any) -> None:
        """Send the last checkpoint, and close the writer."""
        if self.add_last_ckpt:
            step = runner.epoch if self.by_epoch else runner.iter
            self._send_checkpoint(runner, "latest.pth", step)
        self.writer.close()

    @master_only
    def after_train_epoch(self, runner: Any) -> None:
        """Log, and send the epoch's checkpoint if the epoch is due."""
        super().after_train_epoch(runner)
        if self.by_epoch:
            self._send_if_due(runner, "epoch", self.get_epoch(runner))

    @master_only
    def after_train_iter(self, runner: Any) -> None:
        """Log, and send the iteration's checkpoint if the iteration is due."""
        super().after_train_iter(runner)
        if not self.by_epoch:
            self._send_if_due(runner, "iter", self.get_iter(runner))

    def _send_if_due(self, runner: Any, unit: str, step: int) -> None:
        since = step - self.add_ckpt_start
        if self.add_ckpt and since >= 0 and since % self.add_ckpt_interval == 0:
            self._send_checkpoint(runner, f"{unit}_{step}.pth", step)

    def _send_checkpoint(self, runner: Any, name: str, step: int) -> None:
        """Send a checkpoint of the work directory, or the target of a link, if it exists."""
        path = os.path.join(runner.work_dir, name)
        if os.path.islink(path):
            path = os.path.join(runner.work_dir, os.readlink(path))
        if os.path.isfile(path):
            self.writer.add_snapshot_file(
                tag=self.run_name, snapshot_file_path=path, iteration=step
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
    def log(self, runner: Any) -> None:
        """Send the averages in the log buffer."""
        if tags := self.get_loggable_tags(runner):
            self.mlflow_log(self.log_metrics, tags, step=runner.epoch, epoch=runner.epoch)
