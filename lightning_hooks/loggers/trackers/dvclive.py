"""``DvcliveLoggerHook``: numbers, images and parameters to DVCLive's files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import PointWriter
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Paths, check_run
from lightning_hooks.loggers.trackers.packages import Package, environment, require
from lightning_hooks.storage.files import inner_path, is_local
from lightning_hooks.utils.arguments import check_path

__all__ = ["DvcliveLoggerHook", "DvcliveWriter"]


class DvcliveWriter(PointWriter):
    """A folder of DVCLive's.

    Args:
        run: The client's ``Live``.
        options: What made it, None if it is not ours to end.
    """

    name = "dvclive"

    def __init__(self, run: Any, options: Mapping[str, Any] | None = None) -> None:
        self.run = run
        self._options = options
        self._paths = Paths(run.summary)

    @classmethod
    def connect(
        cls, *, run: Any = None, options: Mapping[str, Any] | None = None, resume: bool = False
    ) -> DvcliveWriter:
        """Begin a folder, or take what is there.

        Args:
            run: A ``Live``.
            options: Arguments of ``Live``.
            resume: Whether what the folder has is kept.
        """
        if run is not None:
            return cls(run)
        from dvclive.live import Live

        options = dict(options or {})
        if resume:
            options["resume"] = True
        with environment(DVC_NO_ANALYTICS="1"):
            return cls(Live(**options), options)

    def add(self, name: str, value: Any, record: Record) -> None:
        """Add a row to the file of a number, or an image."""
        self.run.step, name = record.step, inner_path(name)  # a file of that name
        if isinstance(value, np.ndarray):
            image = value.transpose(1, 2, 0)
            self.run.log_image(f"{name}/{record.step}.png", image.squeeze())
        else:
            self.run.log_metric(self._paths.of(name), value)
            self.note = self._paths.note

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters in ``params.yaml``."""
        self.run.log_params(dict(params))

    def flush(self) -> None:
        """Write the last values to ``metrics.json``, once for many steps."""
        self.run.make_summary()

    def close(self, failed: bool = False) -> None:
        """End the run if it is ours."""
        if self._options is not None:
            with environment(DVC_NO_ANALYTICS="1"):
                self.run.end()

    def resume(self) -> dict[str, Any]:
        """What is in the folder stays."""
        return {"resume": True}


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """Logs with DVCLive, to ``{work_dir}/dvclive``, without git.

    The keys are those of ``get_loggable_tags``. Counted in epochs it logs once an epoch: the
    average of its training steps, and the validation; the step is the epoch.

    Args:
        model_file: Where the model is saved after each epoch.
        interval: Iterations between two logs, where the run is counted in iterations.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten afterwards; in a run the last logger's are.
        by_epoch: Whether the run is counted in epochs.
        dvclive: A ``Live`` to be used and left open; the same as ``run``.
        run: A ``Live``, or DVCLive's logger for Lightning, to be used and left open.
        **live_options: Arguments of ``Live``. What is not described here is in ``TrackerHook``.

    Raises:
        ImportError: if dvclive is not installed.
        TypeError: if ``run`` is no ``Live``, or is given beside ``dvclive``.

    Source: mmcv's ``DvcliveLoggerHook``.

    Note:
        Departures from mmcv: the calls that it makes (``set_step``, ``log``) are gone from the
        client; this is DVCLive 3. Counted in epochs, the epoch's average is logged (mmcv logs
        what another logger has left, mostly nothing). No DVC experiment, ``dvc.yaml`` or report
        is made unless asked for. A run that goes on keeps what the folder has. Of a number and a
        group of one name, such as ``lr`` and ``lr/body``, the second has ``_`` added, and a
        warning says so (DVCLive fails, or forgets one of them).
    """

    package = "dvclive"
    writer_class = DvcliveWriter
    run_has = "log_metric"
    dvclive_package = Package("dvclive")

    def __init__(
        self,
        model_file: str | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        dvclive: Any = None,
        *,
        run: Any = None,
        timeout: float = 10.0,
        strict: bool = False,
        all_groups: bool = False,
        timings: bool = False,
        **live_options: Any,
    ) -> None:
        if dvclive is not None:
            if run is not None:
                raise TypeError("dvclive and run are the same thing: give one of them")
            run = check_run(dvclive, self.run_has, f"{type(self).__name__}(dvclive=...)")
        common = (interval, ignore_last, reset_flag, by_epoch)
        flags = {"strict": strict, "all_groups": all_groups, "timings": timings}
        super().__init__(*common, run=run, timeout=timeout, **flags)
        require("dvclive", type(self).__name__)
        self.model_file = check_path("model_file", model_file)
        self.live_options = live_options

    @property
    def dvclive(self) -> Any:
        """The ``Live``, None until there is one."""
        return self.client_run

    def for_client(self) -> tuple[Callable[..., Any], Mapping[str, Any]]:
        """What starts the client, and its arguments that were given."""
        return self.dvclive_package.Live, self.live_options

    def modules(self, runner: Any) -> Sequence[str]:
        """The client asks whether it is in a repository."""
        return "dvclive", "dvc.repo", "dvc.scm"

    def target(self, runner: Any) -> dict[str, Any]:
        """A folder in the work dir, with none of what needs git."""
        plain = {
            "save_dvc_exp": False,
            "report": None,
            "monitor_system": False,
            "dvcyaml": None,
            "resume": runner.iter > 0,
        }
        if is_local(runner.work_dir):
            plain["dir"] = os.path.join(runner.work_dir, "dvclive")
        return {"options": {**plain, **self.live_options}}

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, or of the epoch where epochs are counted."""
        return self.get_epoch(runner) if self.by_epoch else super().get_iter(runner, inner_iter)

    def after_train_iter(self, runner: Any) -> None:
        """Log every ``interval`` iterations, unless epochs are counted."""
        if not self.by_epoch:
            super().after_train_iter(runner)

    def after_train_epoch(self, runner: Any) -> None:
        """Save the model, and log the epoch's average beside what others have put there."""
        if self.model_file is not None and runner.rank == 0:
            folder, name = os.path.split(os.path.abspath(self.model_file))
            runner.save_checkpoint(folder, filename_tmpl=name, create_symlink=False)
        if not self.by_epoch:
            super().after_train_epoch(runner)
            return
        buffer = runner.log_buffer
        found, ready = dict(buffer.output), buffer.ready
        buffer.average()
        buffer.output.update(found if ready else {})
        self.log(runner)
        # the next logger finds what this one did
        buffer.output.clear()
        buffer.output.update(found)
        buffer.ready = ready
        if self.reset_flag and ready:
            buffer.clear_output()
