"""``PaviLoggerHook``: log with the module ``pavi``, where there is one."""

from __future__ import annotations

import functools
import importlib
import json
import os
import warnings
from typing import Any

import torch

from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.loggers import discontinued
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.standin.fileio.io import dump
from lightning_hooks.standin.parallel.data_container import scatter
from lightning_hooks.standin.utils.config import Config
from lightning_hooks.standin.utils.dist import master_only

__all__ = ["PaviLoggerHook"]


class PaviLoggerHook(LoggerHook):
    """Logs to Pavi, through an importable module ``pavi``: scalars, graphs and checkpoints.

    Args:
        init_kwargs: Arguments of ``pavi.SummaryWriter``; by default ``name`` is the last part of
            the work directory, ``model`` the model's name and ``session_text`` the config in the
            runner's meta.
        add_graph: Deprecated: ``active`` of ``add_graph_kwargs``.
        img_key: Deprecated: ``img_key`` of ``add_graph_kwargs``.
        add_last_ckpt: Whether ``latest.pth`` is sent at the end.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        add_graph_kwargs: ``active``, ``start``, ``interval``: at which epochs (iterations, with
            ``by_epoch=False``) the model's graph is sent; ``img_key``, ``opset_version`` and
            ``dummy_forward_kwargs``: how it is made.
        add_ckpt_kwargs: ``active``, ``start``, ``interval``: of which the checkpoint is sent.

    Raises:
        ImportError: when a run begins, if there is no such module.

    Source: mmcv's ``PaviLoggerHook``, reproduced.
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
        graph, checkpoint = add_graph_kwargs or {}, add_ckpt_kwargs or {}
        self.init_kwargs = init_kwargs
        self.add_graph = _renamed("add_graph", add_graph, "active", graph.get("active", False))
        self.img_key = _renamed("img_key", img_key, "img_key", graph.get("img_key", "img"))
        self.add_graph_start = graph.get("start", 0)
        self.add_graph_interval = graph.get("interval", 1)
        self.opset_version = graph.get("opset_version", 11)
        self.dummy_forward_kwargs = graph.get("dummy_forward_kwargs", {})
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
        found = {"name": self.run_name, "model": runner._model_name, **_session_text(runner)}
        self.init_kwargs = {**found, **(self.init_kwargs or {})}
        self.writer = writer_class(**self.init_kwargs)

    @master_only
    def log(self, runner: Any) -> None:
        """Send the values of the output."""
        if tags := self.get_loggable_tags(runner, add_mode=False):
            self.writer.add_scalars(self.get_mode(runner), tags, self.get_step(runner))

    @master_only
    def after_run(self, runner: Any) -> None:
        """Send the last checkpoint, and close the writer."""
        if self.add_last_ckpt:
            step = runner.epoch if self.by_epoch else runner.iter
            self._add_ckpt(runner, os.path.join(runner.work_dir, "latest.pth"), step)
        self.writer.close()

    @master_only
    def before_train_epoch(self, runner: Any) -> None:
        """Send the graph if the epoch is due."""
        super().before_train_epoch(runner)
        if self.by_epoch:
            self._add_graph_if_due(runner, self.get_epoch(runner))

    @master_only
    def before_train_iter(self, runner: Any) -> None:
        """Send the graph if the iteration is due."""
        super().before_train_iter(runner)
        if not self.by_epoch:
            self._add_graph_if_due(runner, self.get_iter(runner))

    @master_only
    def after_train_epoch(self, runner: Any) -> None:
        """Log, and send the epoch's checkpoint if it is due."""
        super().after_train_epoch(runner)
        if self.by_epoch:
            self._add_ckpt_if_due(runner, "epoch", self.get_epoch(runner))

    @master_only
    def after_train_iter(self, runner: Any) -> None:
        """Log, and send the iteration's checkpoint if it is due."""
        super().after_train_iter(runner)
        if not self.by_epoch:
            self._add_ckpt_if_due(runner, "iter", self.get_iter(runner))

    def _add_graph_if_due(self, runner: Any, step: int) -> None:
        if self.add_graph and _is_due(step, self.add_graph_start, self.add_graph_interval):
            self._add_graph(runner, step)

    def _add_ckpt_if_due(self, runner: Any, unit: str, step: int) -> None:
        if self.add_ckpt and _is_due(step, self.add_ckpt_start, self.add_ckpt_interval):
            self._add_ckpt(runner, os.path.join(runner.work_dir, f"{unit}_{step}.pth"), step)

    def _add_ckpt(self, runner: Any, ckpt_path: str, step: int) -> None:
        """Send a checkpoint, or the one that a link leads to, if there is one."""
        if os.path.islink(ckpt_path):
            ckpt_path = os.path.join(runner.work_dir, os.readlink(ckpt_path))
        if os.path.isfile(ckpt_path):
            self.writer.add_snapshot_file(
                tag=self.run_name, snapshot_file_path=ckpt_path, iteration=step
            )

    def _add_graph(self, runner: Any, step: int) -> None:
        """Send the model's graph, made with the first image of the loader."""
        model: Any = unwrap(runner.model)
        loader = getattr(runner.data_loader, "_dataloader", runner.data_loader)
        device = next(model.parameters()).device
        data = scatter(next(iter(loader)), [-1 if device.index is None else device.index])[0]
        forward = model.forward
        model.forward = functools.partial(
            getattr(model, "forward_dummy", forward), **(self.dummy_forward_kwargs or {})
        )
        try:
            with torch.no_grad():
                tag = f"{self.run_name}_{step}"
                image = data[self.img_key]
                self.writer.add_graph(model, image, tag=tag, opset_version=self.opset_version)
        finally:
            model.forward = forward


def _renamed(old: str, value: Any, new: str, otherwise: Any) -> Any:
    """Return the value of a deprecated argument, or of the new one if it is not given."""
    if value is None:
        return otherwise
    warnings.warn(
        f'"{old}" is deprecated in `PaviLoggerHook`, please use the key "{new}" of '
        "add_graph_kwargs instead",
        DeprecationWarning,
        stacklevel=3,
    )
    return value


def _is_due(step: int, start: int, interval: int) -> bool:
    return step >= start and (step - start) % interval == 0


def _session_text(runner: Any) -> dict[str, str]:
    """Return the config of a runner's meta as YAML, if there is one."""
    meta = runner.meta or {}
    if "config_dict" in meta:
        config = meta["config_dict"]
        if not isinstance(config, dict):
            raise AssertionError(f'meta["config_dict"] must be a dict, got {type(config)}')
    elif "config_file" in meta:
        config = dict(Config.fromfile(meta["config_file"]))
    else:
        return {}
    # the service reads the length of the run there; JSON makes plain types of all values
    known = json.loads(dump({"max_iter": runner.max_iters, **config}, file_format="json"))
    return {"session_text": dump(known, file_format="yaml")}
