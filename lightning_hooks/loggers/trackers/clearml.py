"""``ClearMLLoggerHook``: log to ClearML, online or offline."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.delivery.writer import Writer, one_at_a_time
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.packages import Package, environment
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.attributes import alias
from lightning_hooks.utils.media import encoded
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.samples import Audio, Histogram, Table, Video, as_picture

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["ClearMLLoggerHook", "ClearMLWriter"]

_PROJECT, _TAG = "lightning_hooks", "lightning_hooks.run:"
_QUIET = {
    "auto_connect_arg_parser": False,
    "auto_connect_frameworks": False,
    "auto_connect_streams": False,
    "auto_resource_monitoring": False,
    "reuse_last_task_id": False,
}


class ClearMLWriter(Writer):
    """A task of ClearML's; the client writes values every few seconds.

    A process has one task: writers open at the same time share the task, and the last closes it.
    """

    name = "clearml"
    imports_ipython = True
    shows_state = True
    replayed: Mapping[str, Any] = {"init": {"project_name": _PROJECT, **_QUIET}, "after": 0}
    chunk = 8
    takes = (*KINDS, "checkpoints")

    _writers: ClassVar[Counter[str]] = Counter()  # the number of writers of each task

    def __init__(self, run: Any, *, owned: bool = True) -> None:
        super().__init__(run, owned=owned)
        self.logger = run.get_logger()
        self._deleted: set[str] = set()  # checkpoints

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        init: Mapping[str, Any] | None = None,
        offline: bool | None = None,
        folder: str | None = None,
        run_id: str | None = None,
        after: int | None = None,
    ) -> ClearMLWriter:
        """Start a task, or use an open task.

        Args:
            run: An open task.
            init: Arguments of ``Task.init``.
            offline: Whether no server is used; by default with a folder, or if none is configured.
            folder: The folder of offline tasks, unless the environment names a folder.
            run_id: A task to continue, or the key of a run, which is a tag of the task.
            after: The last step of the checkpoint of a continued task.
        """
        from clearml import Task
        from clearml.config import config_obj

        if run is not None:
            return cls(run, owned=False)
        if offline is None:
            offline = folder is not None or not has_clearml_server()
        arguments = dict(init or {})
        with (
            one_at_a_time(cls.name),
            environment(**({"CLEARML_CACHE_DIR": os.path.abspath(folder)} if folder else {})),
            _unseeded(Task),
        ):
            # otherwise a fork of this process, with all its threads, writes: it takes ten seconds
            # to end, and may not end at all
            if config_obj.get("sdk.development.report_use_subprocess", None) is None:
                reports = {"report_use_subprocess": False}
                config_obj.set_overrides({"sdk": {"development": reports}})
            if offline:
                Task.set_offline(True)
            if run_id is not None and not re.fullmatch("(offline-)?[0-9a-f]{32}", run_id):
                tag = f"{_TAG}{run_id}"
                arguments["tags"] = [*(arguments.get("tags") or ()), tag]
                run_id = None if after is None else _find_task(tag, offline)
            if run_id is not None:  # 0 is added to our iterations
                arguments.update(reuse_last_task_id=run_id, continue_last_task=0)
            task: Any = Task.current_task()
            is_shared = task is not None and cls._writers[task.id] > 0
            writer = cls(task if is_shared else Task.init(**arguments))
            cls._writers[writer.run.id] += 1
        if is_shared:
            writer.note = "ClearML has one task a process: the values go to another hook's task"
        if after is not None and offline:
            writer.keep_stored(_stored_steps(writer.run.get_offline_mode_folder()), after)
        return writer

    def add(self, name: str, value: Any, record: Record) -> None:
        """Report a number or a sample."""
        if isinstance(value, Table):
            rows = [[*value.columns], *map(list, value.rows)]
            self.logger.report_table(name, name, iteration=record.step, table_plot=rows)
        elif isinstance(value, Histogram):
            middles = [(a + b) / 2 for a, b in itertools.pairwise(value.edges)]
            self.logger.report_histogram(
                *(name, name, [*value.counts]),
                iteration=record.step,
                xlabels=[f"{middle:.3g}" for middle in middles],
            )
        elif _is_file(value) and (file := encoded(value)):
            ending, content = file
            self.logger.report_media(
                *(name, name, record.step), stream=io.BytesIO(content), file_extension=f".{ending}"
            )
        elif isinstance(value, np.ndarray):
            self.logger.report_image(name, name, iteration=record.step, image=as_picture(value))
        elif not math.isfinite(value):  # ClearML would store 0.0
            self.logger.report_scalar(name, "nonfinite", 1.0, record.step)
            self.logger.report_text(f"{name} is {value} at iteration {record.step}")
        else:
            self.logger.report_scalar(name, name, value, record.step)

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Store an artifact of the task; parameters of the section Checkpoints name the best."""
        details = {"step": step}
        if not self.run.upload_artifact(
            name, upload.checked(), metadata=details, wait_on_upload=True, auto_pickle=False
        ):
            raise ConnectionError(f"ClearML has not taken {name}")
        for name_of_version in upload.aliases:
            self.run.set_parameter(f"Checkpoints/{name_of_version}", name)
        self._deleted.discard(name)
        again = [old for old in self._deleted if old in self.run.artifacts]
        if again:  # with each artifact the client stores its list of all
            self.run.delete_artifacts(again, delete_from_storage=False)

    def delete_checkpoint(self, name: str) -> None:
        """Delete an artifact of the task, with the file."""
        self._deleted.add(name)
        if name in self.run.artifacts and not self.run.delete_artifacts([name]):
            raise ConnectionError(f"ClearML has not deleted {name}")

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters in the section General."""
        known = () if self._owned else self.run.get_parameters()
        new = {k: v for k, v in params.items() if f"General/{k}" not in known}
        self.run.connect({k: "None" if v is None else v for k, v in new.items()})

    def flush(self) -> None:
        """Make the client write soon."""
        self.logger.flush()

    def end(self, failed: bool) -> None:
        """Close the task, unless another writer goes on."""
        with one_at_a_time(self.name):
            self._writers[self.run.id] -= 1
            if self._writers[self.run.id]:
                return
            if self.killed:
                self.run.mark_stopped(force=True, status_message="the process was killed")
            elif failed:
                self.run.mark_failed(status_reason="the training has failed")
            # close() waits for no value once the program has called sys.exit() with an error; and
            # the end of a write that was going on before the first flush can end its wait
            for _ in range(2):
                self.run.flush(wait_for_uploads=True)
            self.run.close()

    def run_id(self) -> str:
        """Return the task's id."""
        return str(self.run.id)


@contextlib.contextmanager
def _unseeded(task_class: Any) -> Iterator[None]:
    """Keep a new task from seeding Python, numpy and torch anew in the middle of the training."""
    seed = getattr(task_class, "_random_seed", None)
    task_class.set_random_seed(None)
    try:
        yield
    finally:
        task_class.set_random_seed(seed)


def _find_task(tag: str, offline: bool) -> str | None:
    """Return the id of the task with a tag, on the server or among the offline tasks."""
    from clearml import Task
    from clearml.config import get_offline_dir

    if not offline:
        task_ids: Any = Task.query_tasks(tags=[tag])
        return next(iter(task_ids), None)
    for path in get_offline_dir().glob("*/task.json"):
        with contextlib.suppress(ValueError), open(path, encoding="utf-8", opener=regular) as file:
            task = json.load(file)
            if tag in (task.get("tags") or ()):
                return str(task["id"])
    return None


def _stored_steps(folder: str) -> dict[str, set[int]]:
    """Return the steps in the folder of an offline task of ClearML's."""
    steps: dict[str, set[int]] = {}
    path = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8", opener=regular) as file:
            for event in itertools.chain.from_iterable(map(json.loads, file)):
                steps.setdefault(event["metric"], set()).add(int(event["iter"]))
    return steps


@HOOKS.register_module()
class ClearMLLoggerHook(TrackerHook):
    """Logs to ClearML: offline in ``{work_dir}/clearml``, unless a server is configured.

    The keys are the keys of ``get_loggable_tags``: each key is the name of a title and of a
    series. The module's hyper-parameters are in the section General. Several hooks of a Trainer
    share one task, as a process has one. ``Task.import_offline_session`` uploads an offline task
    later.

    Args:
        init_kwargs: Arguments of ``clearml.Task.init``.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        project_name: The project, as of ``Task.init``.
        task_name: The task's name.
        tags: The task's tags.
        upload: ``"best"``, ``"last"`` or ``"all"``: the checkpoints to send as artifacts.
        options: See ``TrackerHook``; ``run`` is a ``Task``, to be used and left open.

    Raises:
        ImportError: if clearml is not installed.
        TypeError: if ``run`` is no task, or an argument has another type.
        ValueError: for an argument repeated in ``init_kwargs``.

    Source: mmcv's ``ClearMLLoggerHook``.

    Note:
        Departures from mmcv: the task is offline when no server is configured. Frameworks,
        arguments, output and hardware are captured only with arguments in ``init_kwargs``, and
        a run is a new task unless resumed. The program's current task is used and left open.
        The client reports from a thread, not from a fork of the training process. NaN and
        infinities, stored by ClearML as 0.0, are a point of the series ``nonfinite`` and a line
        of the console log.
    """

    _package, _start_function = "clearml", "Task.init"
    _imported = ("matplotlib.pylab", "clearml.utilities.plotlympl")
    _writer_class = ClearMLWriter
    _run_attribute = "get_logger"
    init_kwargs: dict[str, Any] = alias("_init_kwargs")
    _is_global = True
    clearml = Package("clearml")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        project_name: str | None = None,
        task_name: str | None = None,
        tags: Sequence[str] | None = None,
        upload: str | None = None,
        **options: Any,
    ) -> None:
        shared = interval, ignore_last, reset_flag, by_epoch
        super().__init__(*shared, upload=upload, **options)
        names = {"project_name": project_name, "task_name": task_name}
        self._start_with(init_kwargs, tags=tags, **names)

    import_clearml = TrackerHook._require_client

    @property
    def task(self) -> Any:
        """The task; None before the start."""
        return self._current_run

    def _active_run(self) -> Any:
        """Return the program's current task."""
        return self.clearml.Task.current_task()

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return a folder in the work dir, unless a server is configured."""
        offline = not has_clearml_server()
        local = is_local(runner.work_dir)
        name = os.path.basename(os.path.abspath(runner.work_dir)) if local else "lightning_hooks"
        init = {
            "project_name": _PROJECT,
            "task_name": f"{name} {runner.timestamp}",
            **_QUIET,
            **self._init_kwargs,
        }
        folder = os.path.join(os.path.abspath(runner.work_dir), "clearml")
        named = {"reuse_last_task_id", "continue_last_task"} & self._init_kwargs.keys()
        chosen = named or os.environ.get("CLEARML_TASK_ID")  # a job's task
        return {
            **{"init": init, "offline": offline, "folder": folder if offline and local else None},
            "run_id": None if chosen else self._tracked.run_id or self._tracked.key,
            "after": self._tracked.after,
        }


def _is_file(value: Any) -> bool:
    """Whether a sample is sent as a file: the client writes images as JPEG, without an alpha."""
    has_alpha = isinstance(value, np.ndarray) and len(value) == 4
    return has_alpha or isinstance(value, (str, Audio, Video))


def has_clearml_server() -> bool:
    """Whether the environment or ClearML's settings file names a server."""
    names = ("CLEARML_API_HOST", "TRAINS_API_HOST", "CLEARML_API_ACCESS_KEY")
    if os.environ.get("CLEARML_OFFLINE_MODE", "0") not in ("0", "", "false"):
        return False
    path = os.environ.get("CLEARML_CONFIG_FILE", "~/clearml.conf")
    return any(os.environ.get(n) for n in names) or os.path.exists(os.path.expanduser(path))
