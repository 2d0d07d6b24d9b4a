"""mmcv's experiment loggers: an old subclass has the client and delivers at once.

A client that the program itself has put into ``sys.modules``, such as a mock in a test, is called
as mmcv calls it, without thread and spool file: it has mmcv's methods, or takes any.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import lightning_hooks
from lightning_hooks.engine.driver.ownership import is_ours
from lightning_hooks.loggers.base import LoggerHook
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.standin.fileio.path import scandir
from lightning_hooks.standin.utils.env import TORCH_VERSION

__all__ = [
    "ClearMLLoggerHook",
    "DvcliveLoggerHook",
    "MlflowLoggerHook",
    "NeptuneLoggerHook",
    "TensorboardLoggerHook",
    "WandbLoggerHook",
]


class _SynchronousSubclass(TrackerHook):
    """Base of trackers that deliver synchronously in a user's subclass.

    Such a subclass uses the client (``self.wandb.run``, ``self.writer``) right after
    ``super().before_run(runner)`` and ``super().log(runner)``, as in mmcv. It waits for at most
    ``timeout`` seconds.
    """

    @property
    def synchronous(self) -> bool:  # type: ignore[override]
        """Whether the class is a user's subclass."""
        return not is_ours(self)


class _Tracker(_SynchronousSubclass):
    """Base of trackers that make mmcv's calls themselves where the client is mocked."""

    _mocked_run: Any = None

    @property
    def _is_mocked(self) -> bool:
        """Whether the client is a module that the program has made: it has no spec."""
        module = sys.modules.get(self.package)
        return module is not None and getattr(module, "__spec__", None) is None

    @property
    def client_run(self) -> Any:
        """The client's run; None until the backend has started it."""
        return super().client_run if self._mocked_run is None else self._mocked_run

    def before_run(self, runner: Any) -> None:
        """Open the session with the backend, or start the mocked client."""
        if not self._is_mocked:
            super().before_run(runner)
            return
        LoggerHook.before_run(self, runner)
        if _writes(runner):
            self._start(runner)

    def log(self, runner: Any) -> None:
        """Append the values to the spool, or send them to the mocked client."""
        if not self._is_mocked:
            super().log(runner)
        elif _writes(runner) and (tags := self.get_loggable_tags(runner)):
            self._send(tags, runner.iter + 1, runner)

    def after_run(self, runner: Any) -> None:
        """Close the run."""
        if not self._is_mocked:
            super().after_run(runner)
        elif _writes(runner):
            self._finish(runner)

    def _start(self, runner: Any) -> None:
        """Make mmcv's calls at the start of a run."""

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        """Make mmcv's calls for the values of an iteration."""
        raise NotImplementedError(f"{type(self).__name__} must define _send(tags, step, runner)")

    def _finish(self, runner: Any) -> None:
        """Make mmcv's calls at the end of a run."""


def _writes(runner: Any) -> bool:
    return runner.rank == 0 and bool(runner.writes_files)


class ClearMLLoggerHook(_Tracker, lightning_hooks.ClearMLLoggerHook):
    """:class:`lightning_hooks.ClearMLLoggerHook`; an old subclass has ``self.task`` at once."""

    def _start(self, runner: Any) -> None:
        self._mocked_run = self.clearml.Task.init(**self.init_kwargs)
        self.task_logger = self.task.get_logger()

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        for name, value in tags.items():
            self.task_logger.report_scalar(name, name, value, step)


class DvcliveLoggerHook(_Tracker, lightning_hooks.DvcliveLoggerHook):
    """:class:`lightning_hooks.DvcliveLoggerHook`; an old subclass has ``self.dvclive`` at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self._is_mocked:
            self._mocked_run = self._client_run
            if self._mocked_run is None:
                self._mocked_run = self.dvclive_package.Live(**self.live_options)

    def _log_end_of_epoch(self, runner: Any) -> None:
        if not self._is_mocked:
            super()._log_end_of_epoch(runner)
        elif runner.log_buffer.ready and self._results:  # mmcv logs no average of the epoch
            self._log_results(runner)

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        self.dvclive.set_step(self.get_epoch(runner) if self.by_epoch else step)
        for name, value in tags.items():
            self.dvclive.log(name, value)


class MlflowLoggerHook(_Tracker, lightning_hooks.MlflowLoggerHook):
    """:class:`lightning_hooks.MlflowLoggerHook`; for an old subclass the run is there at once."""

    def _start(self, runner: Any) -> None:
        if self.exp_name is not None:
            self.mlflow.set_experiment(self.exp_name)
        if self.tags:
            self.mlflow.set_tags(self.tags)
        if self.params:
            self.mlflow.log_params(self.params)

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        self.mlflow.log_metrics(tags, step=step)

    def _finish(self, runner: Any) -> None:
        if self.log_model:
            needed = [f"torch=={TORCH_VERSION}"]
            self.mlflow_pytorch.log_model(runner.model, "models", pip_requirements=needed)


class NeptuneLoggerHook(_Tracker, lightning_hooks.NeptuneLoggerHook):
    """:class:`lightning_hooks.NeptuneLoggerHook`; an old subclass has ``self.run`` at once."""

    @property
    def neptune(self) -> Any:
        """The client; of a mocked one its module ``neptune.new``, as mmcv imports it."""
        client = super().neptune
        return getattr(client, "new", client) if self._is_mocked else client

    def _start(self, runner: Any) -> None:
        self._mocked_run = self.neptune.init(**self.init_kwargs)

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        for name, value in tags.items():
            if self.with_step:
                self.run[name].log(value, step=step)
            else:
                self.run[name].log({**tags, "global_step": step})

    def _finish(self, runner: Any) -> None:
        self.run.stop()


class TensorboardLoggerHook(_SynchronousSubclass, lightning_hooks.TensorboardLoggerHook):
    """:class:`lightning_hooks.TensorboardLoggerHook`; an old subclass has ``self.writer``."""


class WandbLoggerHook(_Tracker, lightning_hooks.WandbLoggerHook):
    """:class:`lightning_hooks.WandbLoggerHook`; an old subclass has ``self.wandb.run`` at once."""

    def _start(self, runner: Any) -> None:
        self.wandb.init(**self.init_kwargs)
        for metric, summary in (self.define_metric_cfg or {}).items():
            self.wandb.define_metric(metric, summary=summary)

    def _send(self, tags: dict[str, Any], step: int, runner: Any) -> None:
        if self.with_step:
            self.wandb.log(tags, step=step, commit=self.commit)
        else:
            self.wandb.log({**tags, "global_step": step}, commit=self.commit)

    def _finish(self, runner: Any) -> None:
        if self.log_artifact:
            artifact = self.wandb.Artifact(name="artifacts", type="model")
            for name in scandir(runner.work_dir, self.out_suffix, True):
                artifact.add_file(os.path.join(runner.work_dir, name))
            self.wandb.log_artifact(artifact)
        self.wandb.join()
