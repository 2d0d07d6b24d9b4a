"""pointrix's hooks, the registry of hook classes, and ``parse_hooks``."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping
from typing import Any

from lightning_hooks.loggers.trackers.packages import require
from lightning_hooks.utils.config_files import read_config
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "HOOK_REGISTRY",
    "CheckPointHook",
    "Hook",
    "HookRegistry",
    "LogHook",
    "ProgressHook",
    "parse_hooks",
]


class HookRegistry:
    """Hook classes by name.

    >>> registry = HookRegistry()
    >>> @registry.register()
    ... class MyHook:
    ...     pass
    >>> registry.get("MyHook") is MyHook
    True
    """

    def __init__(self) -> None:
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
            raise TypeError(f"only classes can be registered as hooks, got {cls!r}")
        other = self._classes.get(cls.__name__, cls)
        if other is not cls and not other.__module__.startswith("lightning_hooks."):
            raise KeyError(f"the hook {cls.__name__} is registered already, by {other.__module__}")
        self._classes[cls.__name__] = cls
        return cls

    def get(self, name: str) -> type:
        """Return the class of a name.

        Raises:
            UnknownNameError: for an unknown name, with the closest name.
        """
        if name not in self._classes:
            raise UnknownNameError(
                f"no hook {name!r} is registered; {suggest(name, self._classes)}"
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

    locations = (
        "before_run",
        "after_load_checkpoint",
        "before_train",
        "before_train_iter",
        "after_train_iter",
        "before_val",
        "before_val_iter",
        "after_val_iter",
        "after_val",
        "before_save_checkpoint",
        "after_train",
        "after_run",
    )

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


def _check_interval(interval: Any) -> int:
    if not isinstance(interval, int) or isinstance(interval, bool) or interval < 1:
        raise ValueError(f"interval must be an int of at least 1, got {interval!r}")
    return interval


@HOOK_REGISTRY.register()
class LogHook(Hook):
    """Writes losses, learning rates and metrics.

    ===================  ======================================================
    key                  value
    ===================  ======================================================
    name of a loss       every value of ``loss_dict``
    ``lr/<group>``       the rate of each group, by ``name`` or index
    ``val/<metric>``     every value of ``metric_dict``, after each validation
    ===================  ======================================================

    Args:
        interval: Number of iterations between two writes.
    """

    def __init__(self, interval: int = 10) -> None:
        self.interval = _check_interval(interval)

    def after_train_iter(self, trainner: Any) -> None:
        """Write losses and rates at the end of an interval."""
        step = trainner.global_step
        if step % self.interval:
            return
        for name, value in trainner.loss_dict.items():
            trainner.writer.write_scalar(name, float(value), step)
        for index, group in enumerate(trainner.optimizer.param_groups):
            trainner.writer.write_scalar(f"lr/{group.get('name', index)}", group["lr"], step)

    def after_val(self, trainner: Any) -> None:
        """Write metrics."""
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
        self.interval = None if interval is None else _check_interval(interval)
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
class ProgressHook(Hook):
    """Draws a progress bar with the last losses on the terminal.

    Args:
        interval: Number of iterations between two updates; ``cfg.bar_upd_interval`` by default.

    Raises:
        ImportError: if rich is not installed.
    """

    def __init__(self, interval: int | None = None) -> None:
        require("rich", type(self).__name__, extra="cli")
        self.interval = None if interval is None else _check_interval(interval)
        self._bar: Any = None

    def before_train(self, trainner: Any) -> None:
        """Draw an empty bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining

        if trainner.rank != 0:
            return
        columns = (BarColumn(), MofNCompleteColumn(), Remaining(), TextColumn("{task.description}"))
        self._bar = Progress(*columns)
        self._task = self._bar.add_task(
            "", total=trainner.max_steps, completed=trainner.global_step - 1
        )
        self._bar.start()

    def after_train_iter(self, trainner: Any) -> None:
        """Update the bar at the end of an interval."""
        interval = self.interval or getattr(trainner.cfg, "bar_upd_interval", None) or 10
        step = trainner.global_step
        if self._bar is not None and (step % interval == 0 or step == trainner.max_steps):
            losses = trainner.loss_dict.items()
            text = " ".join(f"{name}={float(value):.4g}" for name, value in losses)
            self._bar.update(self._task, completed=step, description=text)

    def after_train(self, trainner: Any) -> None:
        """Stop updating the bar."""
        self.exception()

    def exception(self) -> None:
        """Stop updating the bar."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.stop()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_bar": None}


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
    if cfg is None:
        return []
    if isinstance(cfg, (str, os.PathLike)):
        cfg = read_config(os.fspath(cfg))
        for key in ("trainer", "hooks"):
            cfg = cfg.get(key, cfg) if isinstance(cfg, Mapping) else cfg
    if not isinstance(cfg, Mapping):
        raise TypeError(f"cfg must be a dict of hooks or a YAML file, got {cfg!r}")
    return [_build(key, entry) for key, entry in cfg.items()]


def _build(key: str, entry: Any) -> Any:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
        raise TypeError(f"the hook {key!r} needs a dict with the key 'name', got {entry!r}")
    arguments = {name: value for name, value in entry.items() if name != "name"}
    cls = HOOK_REGISTRY.get(entry["name"])
    try:
        return cls(**arguments)
    except TypeError as error:
        raise TypeError(f"{error} in the hook {key!r}: {dict(entry)!r}") from error
