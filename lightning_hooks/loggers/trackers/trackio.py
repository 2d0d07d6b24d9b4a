"""``TrackioLoggerHook``: log to Trackio, whose client has W&B's calls."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Names
from lightning_hooks.loggers.trackers.packages import Package
from lightning_hooks.loggers.trackers.wandb import media
from lightning_hooks.storage.file_names import inner_path
from lightning_hooks.utils.attributes import alias

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["TrackioLoggerHook", "TrackioWriter"]


class TrackioWriter(Writer):
    """A run in Trackio."""

    name = "trackio"
    imports_ipython = True
    run_options: Mapping[str, str] = {"project": "project", "run_id": "name"}
    replayed: Mapping[str, Any] = {"init": {"project": "lightning_hooks"}, "after": 0}
    chunk = 8
    lag = 2.0  # the client writes twice a second
    takes = KINDS

    def __init__(self, run: Any, *, owned: bool = True) -> None:
        super().__init__(run, owned=owned)
        self._file_names = Names(inner_path)

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        init: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        after: int | None = None,
    ) -> TrackioWriter:
        """Start a run, or use an open run.

        Args:
            run: An open run.
            init: Arguments of ``trackio.init``.
            run_id: The name of the run, unless ``init`` has a name.
            after: The iterations of the checkpoint of a continued run.
        """
        import trackio

        if run is not None:
            return cls(run, owned=False)
        resume = "never" if after is None else "allow"
        writer = cls(trackio.init(**{"name": run_id, "resume": resume, **(init or {})}))
        if after is not None:
            writer.keep_stored(_stored_steps(writer.run), after)
        return writer

    def log(self, record: Record) -> None:
        """Log a row."""
        import trackio

        with tempfile.TemporaryDirectory() as folder:
            samples = media(record, trackio, self._file_names.of, folder)
            self.run.log({**record.scalars, **samples}, step=record.step)

    def params(self, params: Mapping[str, Any]) -> None:
        """Add to the config; existing values stay."""
        self.run.config.update({**params, **self.run.config})

    def end(self, failed: bool) -> None:
        """Finish the run."""
        self.run.finish()

    def run_id(self) -> str:
        """Return the run's name, which finds the run again."""
        return str(self.run.name)


def _stored_steps(run: Any) -> dict[str, set[int]]:
    """Return the steps of a run in Trackio's database."""
    from trackio.sqlite_storage import SQLiteStorage

    steps: dict[str, set[int]] = {}
    for row in SQLiteStorage.get_logs(run.project, run.name):
        for name in row:
            steps.setdefault(name, set()).add(int(row["step"]))
    return steps


@HOOKS.register_module()
class TrackioLoggerHook(TrackerHook):
    """Logs to Trackio, Hugging Face's tracker: to a database on the disk, or to a Space.

    The keys are the keys of ``get_loggable_tags``; the module's hyper-parameters are in the config.
    ``trackio show`` shows the runs. The database is in the folder ``TRACKIO_DIR``, by default in
    the cache of Hugging Face. The project is by default the name of the work dir.

    Args:
        init_kwargs: Arguments of ``trackio.init``, called in the hook's thread.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        project: The project, as of ``trackio.init``.
        name: The run's name.
        group: The group of runs.
        space_id: The Space to log to, such as ``"me/digits"``.
        options: See ``TrackerHook``; ``run`` is Trackio's run, to use and leave open.

    Raises:
        ImportError: if trackio is not installed.
        TypeError: if ``run`` is no run of Trackio's, or an argument has another type.
        ValueError: for an argument repeated in ``init_kwargs``.

    Note:
        mmcv has no such hook.
    """

    _package, _start_function = "trackio", "init"
    _imported = ("IPython",)  # matplotlib, in a step, would find it half imported
    _writer_class = TrackioWriter
    _run_attribute = "log_system"
    init_kwargs: dict[str, Any] = alias("_init_kwargs")
    trackio = Package("trackio")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        project: str | None = None,
        name: str | None = None,
        group: str | None = None,
        space_id: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        names = {"project": project, "name": name, "group": group, "space_id": space_id}
        self._start_with(init_kwargs, **names)

    def _active_run(self) -> Any:
        """Return a run started by the program."""
        return self.trackio.context_vars.current_run.get()

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return the project and the run."""
        project = runner.work_dir.rstrip("/").rpartition("/")[2] or "lightning_hooks"
        return {
            "init": {"project": project, **self._init_kwargs},
            "run_id": self._tracked.run_id or self._tracked.key,
            "after": self._tracked.after,
        }
