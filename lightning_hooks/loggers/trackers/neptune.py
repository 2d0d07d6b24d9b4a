"""``NeptuneLoggerHook``: log with Neptune's client; read offline runs without the client."""

from __future__ import annotations

import contextlib
import glob
import importlib
import json
import math
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer, one_at_a_time
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Paths
from lightning_hooks.loggers.trackers.packages import Package, environment
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.arguments import check_bool
from lightning_hooks.utils.attributes import alias
from lightning_hooks.utils.media import encoded
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.samples import Audio, Video, as_picture

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["NeptuneLoggerHook", "NeptuneWriter", "is_neptune_run", "read_neptune"]

_QUIET: Mapping[str, Any] = {
    "capture_stdout": False,
    "capture_stderr": False,
    "capture_hardware_metrics": False,
    "capture_traceback": False,
    "git_ref": False,
    "source_files": [],
}


class NeptuneWriter(Writer):
    """A run of Neptune's.

    Args:
        run: The client's run.
        owned: Whether the writer has started the run.
        with_step: Whether points have a step.
        note: A message for the user.
    """

    name = "neptune"
    imports_ipython = True
    replayed: Mapping[str, Any] = {"init": _QUIET}
    chunk = 8
    takes = ("images", "texts", "audios", "videos")

    def __init__(self, run: Any, *, owned: bool = True, with_step: bool = True, note: str = ""):
        super().__init__(run, owned=owned)
        self.note = note
        self._with_step = with_step
        self._paths = Paths(run.get_structure())

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        init: Mapping[str, Any] | None = None,
        folder: str | None = None,
        with_step: bool = True,
        custom_run_id: str | None = None,
    ) -> NeptuneWriter:
        """Start a run, offline if no server answers; or use an open run.

        Args:
            run: An open run.
            init: Arguments of ``neptune.init_run``.
            folder: The folder of offline files, unless the environment names a folder.
            with_step: Whether points have a step.
            custom_run_id: A name for a server to find the run again.
        """
        import neptune

        if run is not None:
            return cls(run, owned=False, with_step=with_step)
        init = {"custom_run_id": custom_run_id, **(init or {})}
        note = "Neptune's hosted service closed in March 2026: "
        with (
            one_at_a_time(cls.name),
            environment(**({"NEPTUNE_DATA_DIRECTORY": folder} if folder else {})),
            _unseeded(),
        ):
            if init.get("mode", "offline") == "offline":
                note += f"this run is kept in files below {folder} that no server will take"
            else:
                try:
                    run = neptune.init_run(**init)
                    note += f'mode="{init["mode"]}" works with a private deployment only'
                except Exception as error:
                    note += f"none answers ({type(error).__name__}: {error}); the run is offline"
            run = run or neptune.init_run(**{**init, "mode": "offline"})
        return cls(run, with_step=with_step, note=note)

    def log(self, record: Record) -> None:
        """Append a point to each series."""
        super().log(record)
        if not self._with_step and record.scalars:
            self.run["global_step"].append(record.step, timestamp=record.time)

    def add(self, name: str, value: Any, record: Record) -> None:
        """Append a point to a series; NaN and infinities as text to another series."""
        if isinstance(value, float) and not math.isfinite(value):
            name, value = name + _NONFINITE, str(value)
        elif isinstance(value, np.ndarray):
            from neptune.types import File

            value = File.as_image(as_picture(value) / 255.0)
        step = record.step if self._with_step else None
        if isinstance(value, (Audio, Video)) and (file := encoded(value)):
            from neptune.types import File

            path = f"{self._paths.of(name)}/{record.step}"
            self.run[path].upload(File.from_content(file[1], extension=file[0]))
            return
        self.run[self._paths.of(name)].append(value, step=step, timestamp=record.time)
        self.note = self._paths.note or self.note

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters."""
        for name, value in params.items():
            path = f"parameters/{name}"
            if self._owned or not self.run.exists(path):
                self.run[path] = "None" if value is None else value

    def flush(self) -> None:
        """Wait until all values are on the disk."""
        self.run.wait(disk_only=True)

    def end(self, failed: bool) -> None:
        """Stop the run."""
        if failed:
            self.run["sys/failed"] = True
        self.run.stop()


def _unseeded() -> contextlib.AbstractContextManager[None]:
    """Keep a new run from drawing the training's random numbers.

    The client draws the name of the run's folder from the module ``random``, and accepts neither a
    name nor a generator. Inside the block the client's file for names has the system's generator.
    """
    names = importlib.import_module("neptune.internal.operation_processors.utils")
    return setting(names, random=random.SystemRandom())


@HOOKS.register_module()
class NeptuneLoggerHook(TrackerHook):
    """Logs with Neptune's client, offline to ``{work_dir}/.neptune`` by default.

    Neptune's hosted service closed in March 2026, as a warning says: ``mode="async"`` or
    ``"sync"`` needs a private deployment; where none answers, the run is offline. ``lightning-hooks
    replay {work_dir}/.neptune/offline/run__... --to mlflow`` brings an offline run to MLflow, W&B
    or TensorBoard. The keys are the keys of ``get_loggable_tags``; the module's hyper-parameters
    are below ``parameters``.

    Args:
        init_kwargs: Arguments of ``neptune.init_run``.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        with_step: Whether the iteration is the step of each point; otherwise the iteration is
            logged as ``global_step``.
        project: The project, as of ``neptune.init_run``.
        name: The run's name.
        mode: ``"offline"``, ``"async"``, ``"sync"``, ``"read-only"`` or ``"debug"``.
        tags: The run's tags.
        options: See ``TrackerHook``; ``run`` is Neptune's run, to use and leave open.

    Raises:
        ImportError: if neptune is not installed.
        TypeError: if ``run`` is no run of Neptune's, or an argument has another type.
        ValueError: for an argument repeated in ``init_kwargs``.

    Source: mmcv's ``NeptuneLoggerHook``.

    Note:
        Departures from mmcv: the client is neptune 1.x, offline, as mmcv's client is gone. Console
        output, hardware and source files are captured only with arguments in ``init_kwargs``. With
        ``with_step=False`` each value has a separate series (mmcv fails). NaN and
        infinities, dropped by Neptune, are texts in the series ``<name>_nonfinite``. If a
        number and a group share a name, such as ``lr`` and ``lr/body``, the second gets a ``_``,
        with a warning (Neptune fails).
    """

    _package, _start_function = "neptune", "init_run"
    _imported = ("IPython",)
    _writer_class = NeptuneWriter
    _run_attribute = "get_structure"
    init_kwargs: dict[str, Any] = alias("_init_kwargs")
    neptune = Package("neptune")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = True,
        with_step: bool = True,
        by_epoch: bool = True,
        *,
        project: str | None = None,
        name: str | None = None,
        mode: str | None = None,
        tags: Sequence[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        names = {"project": project, "name": name, "mode": mode}
        self._start_with(init_kwargs, tags=tags, **names)
        check_bool(with_step=with_step)
        self.with_step = with_step

    import_neptune = TrackerHook._require_client

    @property
    def run(self) -> Any:
        """Neptune's run; None before the start."""
        return self._current_run

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return a folder in the work dir; offline unless another mode is configured."""
        mode = self._init_kwargs.get("mode") or os.environ.get("NEPTUNE_MODE") or "offline"
        local = is_local(runner.work_dir)
        chosen = {"with_id", "custom_run_id"} & self._init_kwargs.keys()
        is_chosen = chosen or "NEPTUNE_CUSTOM_RUN_ID" in os.environ
        return {
            "init": {**_QUIET, **self._init_kwargs, "mode": mode},
            "folder": os.path.join(runner.work_dir, ".neptune") if local else None,
            "with_step": self.with_step,
            **({} if is_chosen else {"custom_run_id": self._tracked.key}),
        }


_NONFINITE = "_nonfinite"
"""Suffix of the name of a series for NaN and infinities, dropped by Neptune."""

_VALUES = ("AssignFloat", "AssignInt", "AssignBool", "AssignString")
_OWN = ("sys/", "source_code/")
_KINDS: Mapping[str, str] = {
    "AddStrings": "tags",
    "AssignDatetime": "dates",
    "LogImages": "images",
    "LogStrings": "texts",
    "UploadFile": "files",
    "UploadFileSet": "files",
}


def is_neptune_run(path: str) -> bool:
    """Whether a path is an offline run of Neptune's: ``.neptune/offline/run__...``."""
    return os.path.isdir(path) and bool(_data_files(path))


def read_neptune(path: str) -> tuple[list[Record], bool, str]:
    """Return the records of an offline run by step, whether the run has failed, and what is left.

    Series of numbers become scalars, single values become parameters. A point without a step gets
    the position in the series. Values below ``sys`` and ``source_code`` are Neptune's own. The last
    result names and counts all other values, such as ``"notes (texts: 2), data/x (files: 1)"``.

    Args:
        path: The folder of the run, or of the data files.
    """
    steps: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    params: dict[str, Any] = {}
    lengths: Counter[str] = Counter()
    left: Counter[tuple[str, str]] = Counter()
    failed = False
    for operation in _operations(path):
        kind, name = operation["type"], "/".join(operation.get("path", ()))
        if kind == "LogFloats" or name.endswith(_NONFINITE):
            name = name.removesuffix(_NONFINITE)
            for point in operation["values"]:
                lengths[name] += 1
                step = lengths[name] if point.get("step") is None else int(point["step"])
                steps.setdefault(step, {})[name] = float(point["value"])
                times.setdefault(step, float(point["ts"]))
        elif name == "sys/failed":
            failed = bool(operation["value"])
        elif kind in _VALUES and not name.startswith(_OWN):
            params[name.removeprefix("parameters/")] = operation["value"]
        elif name == "sys/tags" or not name.startswith(_OWN):
            left[name, _KINDS.get(kind, kind)] += len(operation.get("values", (name,)))
    start = min(times.values(), default=0.0)
    records = [Record(0, start, min(steps, default=0), params=params)] if params else []
    for step in sorted(steps):
        records.append(Record(len(records), times[step], step, steps[step]))
    named = (f"{name} ({kind}: {count})" for (name, kind), count in left.items())
    return records, failed, ", ".join(named)


def _operations(path: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for file in _data_files(path):
        with open(file, encoding="utf-8", opener=regular) as opened:
            text = opened.read()
        at = 0
        while at < len(text):
            try:
                entry, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:  # torn by a kill
                break
            yield entry["obj"]
            while at < len(text) and text[at].isspace():
                at += 1


def _data_files(path: str) -> list[str]:
    files = glob.glob(os.path.join(glob.escape(path), "data-*.log"))
    return sorted(files, key=lambda name: int(name.rpartition("-")[2].removesuffix(".log")))
