"""``DvcliveLoggerHook``: log to DVCLive's files."""

from __future__ import annotations

import csv
import glob
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Names, Paths, check_run
from lightning_hooks.loggers.trackers.packages import Package, environment
from lightning_hooks.storage.file_names import inner_path
from lightning_hooks.storage.files import is_local, join
from lightning_hooks.utils.arguments import check_path
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.samples import as_picture

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner
    from lightning_hooks.loggers.base import Place

__all__ = ["DvcliveLoggerHook", "DvcliveWriter"]

_WITHOUT_GIT = {"save_dvc_exp": False, "report": None, "dvcyaml": None}


class DvcliveWriter(Writer):
    """A folder of DVCLive's; the run is a ``Live``."""

    name = "dvclive"
    run_options: Mapping[str, str] = {"dir": "dir"}
    replayed: Mapping[str, Any] = {"options": {**_WITHOUT_GIT, "dir": "dvclive"}, "after": 0}

    def __init__(self, run: Any, *, owned: bool = True) -> None:
        super().__init__(run, owned=owned)
        self._image_names = Names(inner_path)  # of files
        self._metric_names = Names(inner_path, paths=Paths(run.summary))

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        options: Mapping[str, Any] | None = None,
        after: int | None = None,
    ) -> DvcliveWriter:
        """Begin a folder, or use an open ``Live``.

        Args:
            run: An open ``Live``.
            options: Arguments of ``Live``.
            after: The last step of the checkpoint of a continued run; keeps the folder's content.
        """
        if run is not None:
            return cls(run, owned=False)
        resumed = {} if after is None else {"resume": True}
        with environment(DVC_NO_ANALYTICS="1"):
            writer = cls(_begin({**(options or {}), **resumed}))
        if after is not None:
            writer.keep_stored(_stored_steps(os.path.join(writer.run.plots_dir, "metrics")), after)
        return writer

    def stored_name(self, name: str) -> str:
        """Return the path of a number's file."""
        return self._metric_names.of(name)

    def add(self, name: str, value: Any, record: Record) -> None:
        """Add a row to the file of a number, or an image."""
        self.run.step = record.step
        if isinstance(value, np.ndarray):
            self.run.log_image(f"{self._image_names.of(name)}/{record.step}.png", as_picture(value))
        else:
            self.run.log_metric(self.stored_name(name), value)
            self.note = self._metric_names.note

    def params(self, params: Mapping[str, Any]) -> None:
        """Store hyper-parameters in ``params.yaml``."""
        known = () if self._owned else self.run._params
        self.run.log_params({k: v for k, v in params.items() if k not in known})

    def flush(self) -> None:
        """Write the last values to ``metrics.json``, once for many steps."""
        self.run.make_summary()

    def end(self, failed: bool) -> None:
        """End the run."""
        with environment(DVC_NO_ANALYTICS="1"):
            self.run.end()
        repository = getattr(self.run, "_dvc_repo", None)
        if repository is not None:  # the client leaves the databases open
            repository.close()


def _begin(options: Mapping[str, Any]) -> Any:
    """Return a ``Live`` that creates a DVC repository only to save an experiment."""
    from dvc.exceptions import NotDvcRepoError
    from dvc.repo import Repo
    from dvclive.live import Live

    class Apart(Live):
        def _init_dvc(self) -> None:
            self._dvc_file = self._init_dvc_file()

    try:
        Repo.find_root()
    except NotDvcRepoError:
        # the client would create .dvc and .dvcignore, and stage them for the next commit
        return (Live if options.get("save_dvc_exp", True) else Apart)(**options)
    return Live(**options)


def _stored_steps(folder: str) -> dict[str, set[int]]:
    """Return the steps in a folder of DVCLive's."""
    steps: dict[str, set[int]] = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "**", "*.tsv"), recursive=True):
        name = os.path.relpath(path, folder).removesuffix(".tsv").replace(os.sep, "/")
        with open(path, encoding="utf-8", opener=regular) as file:
            steps[name] = {int(row["step"]) for row in csv.DictReader(file, delimiter="\t")}
    return steps


@HOOKS.register_module()
class DvcliveLoggerHook(TrackerHook):
    """Logs with DVCLive, to ``{work_dir}/dvclive``, without git.

    The keys are the keys of ``get_loggable_tags``. Counted in epochs, the hook logs once an
    epoch: the average of the training steps, and the validation; the step is the epoch.
    A new fit begins the folder anew, as DVCLive does; an evaluation adds to the folder.

    Args:
        model_file: A file for the model, saved after each epoch.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        dvclive: A ``Live`` to use and leave open; the same as ``run``.
        run: A ``Live``, or DVCLive's logger for Lightning, to use and leave open.
        resume: See ``TrackerHook``; or a bool, the argument of ``Live``.
        timeout, strict, names, all_groups, timings, sync: See ``TrackerHook``.
        **live_options: Arguments of ``Live``; ``path``, mmcv's name before 1.5, is ``dir``.

    Raises:
        ImportError: if dvclive is not installed.
        TypeError: if ``run`` is no ``Live``, or is passed together with ``dvclive``.

    Source: mmcv's ``DvcliveLoggerHook``.

    Note:
        Departures from mmcv: the hook uses DVCLive 3, without the methods called by mmcv
        (``set_step``, ``log``). Counted in epochs, the epoch's average is logged (mmcv logs
        the rest of another logger, mostly nothing). A DVC repository, an experiment, ``dvc.yaml``
        or a report is made only on request by an argument. A resumed run keeps the content of
        the folder. If a number and a group share a name, such as ``lr`` and ``lr/body``, the second
        gets a ``_``, with a warning (DVCLive fails, or loses a value).
    """

    _package, _start_function = "dvclive", "Live"
    _imported = ("dvc.repo", "dvc.scm")
    _writer_class = DvcliveWriter
    _run_attribute = "log_metric"
    _dvclive_package = Package("dvclive")

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
        resume: str | bool = "allow",
        names: str = "mmcv",
        all_groups: bool = False,
        timings: bool = False,
        sync: bool = False,
        **live_options: Any,
    ) -> None:
        if dvclive is not None:
            if run is not None:
                raise TypeError("dvclive and run are the same thing: pass one of them")
            run = check_run(dvclive, self._run_attribute, f"{type(self).__name__}(dvclive=...)")
        if "path" in live_options:
            if "dir" in live_options:
                raise TypeError("path, mmcv's old name, and dir are the same: pass dir alone")
            live_options["dir"] = live_options.pop("path")
        if isinstance(resume, bool):
            live_options["resume"], resume = resume, "allow"
        super().__init__(
            *(interval, ignore_last, reset_flag, by_epoch),
            run=run,
            timeout=timeout,
            strict=strict,
            resume=resume,
            names=names,
            all_groups=all_groups,
            timings=timings,
            sync=sync,
        )
        self.model_file = check_path("model_file", model_file)
        self._start_with(live_options)
        self._live_options = self._init_kwargs

    @property
    def dvclive(self) -> Any:
        """The ``Live``; None before the start."""
        return self._current_run

    def _run_folder(self, runner: Runner) -> str | None:
        """Return the folder of the ``Live``."""
        local = join(runner.work_dir, "dvclive") if is_local(runner.work_dir) else None
        return cast("str | None", self._live_options.get("dir", local))

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return a folder in the work dir, without git."""
        # else the client removes what is in the folder
        resume = (runner.iter > 0 or not in_fit(runner)) and not self._tracked.apart
        options = {**_WITHOUT_GIT, "resume": resume, **self._live_options}
        if (folder := self._run_folder(runner)) is not None:
            options["dir"] = f"{folder}-{self._tracked.key}" if self._tracked.apart else folder
        return {"options": options, "after": self._tracked.after}

    def _last_step(self, runner: Runner) -> int:
        """The iterations done, or the epochs if the run is counted in epochs."""
        return int(runner.epoch) if self._counts_epochs else super()._last_step(runner)

    def get_iter(self, runner: Runner, inner_iter: bool = False) -> int:
        """The number of the iteration, or of the epoch if the run is counted in epochs."""
        if self._counts_epochs:
            return self.get_epoch(runner)
        return super().get_iter(runner, inner_iter)

    def _place(self, runner: Runner) -> Place:
        """Return the epoch if the run is counted in epochs: a step of DVCLive's has one value."""
        return (int(runner.epoch),) if self._counts_epochs else super()._place(runner)

    def _comes_again(self, runner: Runner) -> bool:
        """Whether the present iteration comes again, or the epoch goes on."""
        goes_on = self._counts_epochs and not progress.epoch_is_over(runner.trainer)
        return goes_on or super()._comes_again(runner)

    @property
    def _counts_epochs(self) -> bool:
        return self.by_epoch and self._names == "mmcv"

    def after_train_epoch(self, runner: Runner) -> None:
        """Save the model; log the results of other hooks, by epoch with the epoch's averages."""
        self._save_model(runner)
        super().after_train_epoch(runner)

    def _save_model(self, runner: Runner) -> None:
        """Save ``model_file``, if given."""
        if self.model_file is not None and runner.rank == 0:
            folder, name = os.path.split(os.path.abspath(self.model_file))
            runner.save_checkpoint(folder, filename_tmpl=name, create_symlink=False)

    def after_train_iter(self, runner: Runner) -> None:
        """Log every ``interval`` iterations, unless the run is counted in epochs."""
        if self.by_epoch:
            self._read_results(runner.log_buffer)
        else:
            super().after_train_iter(runner)

    def _log_end_of_epoch(self, runner: Runner) -> None:
        if not self.by_epoch:
            super()._log_end_of_epoch(runner)
            return
        # the window ends with the next iteration
        self._log_line(runner, runner.inner_iter + 2)
