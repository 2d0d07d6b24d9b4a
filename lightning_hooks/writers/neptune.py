"""``NeptuneLoggerHook``: numbers to Neptune's offline files, or to a private deployment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lightning_hooks.files import is_local
from lightning_hooks.registry import HOOKS
from lightning_hooks.writers.tracker import Package, TrackerHook, environment, require

__all__ = ["NeptuneLoggerHook", "NeptuneWriter"]


@HOOKS.register_module()
class NeptuneLoggerHook(TrackerHook):
    """Logs with Neptune's client, offline to ``{work_dir}/.neptune`` unless told otherwise.

    Neptune's hosted service closed in March 2026, and the hook says so: ``mode="async"`` or
    ``"sync"`` needs a private deployment. The keys are those of ``get_loggable_tags``.

    Args:
        init_kwargs: Arguments of ``neptune.init_run``.
        interval: Iterations between two logs.
        ignore_last: See ``LoggerHook``.
        reset_flag: See ``LoggerHook``.
        with_step: Whether the iteration is the step of each point; otherwise it is logged as
            ``global_step``.
        by_epoch: Whether the run is counted in epochs.

    Raises:
        ImportError: if neptune is not installed.

    Source: mmcv's ``NeptuneLoggerHook``.

    Note:
        Departures from mmcv: its client is gone; this is neptune 1.x, offline. Console output,
        hardware and source files are not captured unless ``init_kwargs`` asks for it. With
        ``with_step=False`` each value goes to its own series (mmcv appends all to each).
    """

    package = "neptune"
    neptune = Package("neptune")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = True,
        with_step: bool = True,
        by_epoch: bool = True,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.import_neptune()
        self.init_kwargs = dict(init_kwargs or {})
        self.with_step = with_step

    def import_neptune(self) -> None:
        """Complain if neptune is not installed; ``self.neptune`` imports it when first read."""
        require("neptune", type(self).__name__)

    @property
    def run(self) -> Any:
        """Neptune's run, None where there is none."""
        return getattr(self._writer, "run", None)

    def open_writer(self, runner: Any) -> NeptuneWriter:
        """Start a run."""
        mode = self.init_kwargs.get("mode") or os.environ.get("NEPTUNE_MODE") or "offline"
        runner.logger.warning(
            "Neptune's hosted service closed in March 2026: "
            + (
                f"this run is kept in files below {runner.work_dir} that no server will take"
                if mode == "offline"
                else f'mode="{mode}" works with a private deployment only'
            )
        )
        arguments = {
            "capture_stdout": False,
            "capture_stderr": False,
            "capture_hardware_metrics": False,
            "capture_traceback": False,
            "source_files": [],
            "git_ref": False,
            **self.init_kwargs,
            "mode": mode,
        }
        folder = {}
        if is_local(runner.work_dir):
            folder = {"NEPTUNE_DATA_DIRECTORY": os.path.join(runner.work_dir, ".neptune")}
        with environment(**folder):
            run = self.neptune.init_run(**arguments)
        return NeptuneWriter(run, with_step=self.with_step)


class NeptuneWriter:
    """A run of Neptune's.

    Args:
        run: The client's run.
        with_step: Whether points have a step.
    """

    def __init__(self, run: Any, *, with_step: bool) -> None:
        self.run = run
        self._with_step = with_step

    def log(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        """Append a point to each series, and see it on the disk."""
        if not self._with_step:
            metrics = {**metrics, "global_step": step}
        for name, value in metrics.items():
            self.run[name].append(value, step=step if self._with_step else None, timestamp=seconds)
        self.run.wait(disk_only=True)

    def close(self, failed: bool = False) -> None:
        """Stop the run."""
        if failed:
            self.run["sys/failed"] = True
        self.run.stop()
