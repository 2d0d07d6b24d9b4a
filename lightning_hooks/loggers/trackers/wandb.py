"""``WandbLoggerHook``: log to Weights & Biases."""

from __future__ import annotations

import atexit
import contextlib
import glob
import html
import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.loggers.delivery.record import KINDS, Record
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.delivery.writer import Writer, one_at_a_time
from lightning_hooks.loggers.run_files import check_suffix, files_of_run
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import Names, is_lightning_logger
from lightning_hooks.loggers.trackers.packages import Package
from lightning_hooks.storage.file_names import inner_path
from lightning_hooks.storage.files import is_local, join
from lightning_hooks.utils.arguments import check_bool, check_choice, check_dict
from lightning_hooks.utils.attributes import alias
from lightning_hooks.utils.media import as_file
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.samples import as_picture

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["AXIS", "WandbLoggerHook", "WandbWriter", "has_wandb_key", "lag_of", "media"]


AXIS = "trainer/global_step"
"""The x-axis of the charts, as in Lightning's ``WandbLogger``."""

_FLUSH = "x_transaction_log_flush_interval"  # a setting since wandb 0.31
_LONGEST_FLUSH = 5.0  # seconds to wait for rows on the disk
_LONGEST_END = 10.0  # seconds to wait for an unresponsive service


class WandbWriter(Writer):
    """A run in W&B.

    An offline run stays open after its fit, as W&B would begin another folder for each evaluation
    that follows; the next run, or the end of the process, ends it.

    Args:
        run: The client's run.
        owned: Whether the writer has started the run and numbers the steps.
        with_step: Whether the iteration is W&B's step.
        commit: Whether a log without a step ends a step of W&B.
    """

    name = "wandb"
    shows_state = True
    replayed: Mapping[str, Any] = {
        "init": {"settings": {"init_timeout": 20, "console": "off"}},
        "after": 0,
    }
    chunk = 8
    takes = (*KINDS, "checkpoints")

    idle_run: ClassVar[Any] = None  # the offline run of the last fit
    idle_in: ClassVar[int] = 0  # the process of the run, which a forked process leaves alone

    def __init__(self, run: Any, *, owned: bool, with_step: bool = True, commit: bool = True):
        super().__init__(run, owned=owned)
        self._with_step = with_step and owned
        self.lag = lag_of(run)
        self._commit = commit
        self._on_axis: set[str] = set()
        self._file_names = Names(inner_path)

    @classmethod
    def connect(
        cls,
        *,
        run: Any = None,
        init: Mapping[str, Any] | None = None,
        with_step: bool = True,
        commit: bool = True,
        summaries: Mapping[str, str] | None = None,
        run_id: str | None = None,
        after: int | None = None,
    ) -> WandbWriter:
        """Start a run, or use an open run.

        Args:
            run: An open run.
            init: Arguments of ``wandb.init``; the settings as a dict.
            with_step: Whether the iteration is W&B's step.
            commit: Whether a log without a step ends a step of W&B.
            summaries: ``min``, ``max``, ``mean``, ``best``, ``last`` or ``none`` by metric.
            run_id: The run to begin or to continue.
            after: The iterations of the checkpoint of a continued run.
        """
        import wandb

        owned, earlier = run is None, list[str]()
        if owned:
            run = cls._wake(run_id)
        if run is None:
            arguments = dict(init or {})
            arguments["settings"] = wandb.Settings(**arguments.get("settings", {}))
            if run_id is not None:
                arguments.update(id=run_id, resume="allow")
            elif after is not None and "WANDB_RESUME" not in os.environ:
                arguments.setdefault("resume", "allow")
            earlier = [] if after is None else _offline_files(arguments)
            with one_at_a_time(cls.name):  # else two runs would both be W&B's active run
                if wandb.run is not None:  # of another hook, which wandb.init would return
                    arguments.setdefault("reinit", "create_new")
                run = wandb.init(**arguments)
            run.define_metric("*", step_metric=AXIS, step_sync=True)
        for metric, summary in (summaries or {}).items():
            run.define_metric(metric, step_metric=AXIS, summary=summary)
        writer = cls(run, owned=owned, with_step=with_step, commit=commit)
        if earlier and run.offline:
            writer.keep_stored(_stored_steps(earlier), after or 0)
        return writer

    @classmethod
    def options(cls, run: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the project and the mode of an open run."""
        if run is None:
            return {}
        mode = "offline" if run.offline else "online"
        return {"project": run.project, "entity": run.entity, "mode": mode}

    @classmethod
    def _wake(cls, run_id: str | None = None) -> Any:
        """Return the offline run of the last fit, None after another run, which is ended here."""
        import wandb

        run, WandbWriter.idle_run = WandbWriter.idle_run, None
        if run is not None and WandbWriter.idle_in != os.getpid():
            if wandb.run is run:  # of the process that this one was forked from
                wandb.run = None
            return None
        if run is None or (wandb.run is run and getattr(run, "id", None) == run_id):
            return run
        return run.finish()  # nothing, if the program has ended the run

    def log(self, record: Record) -> None:
        """Log a row, or further values of a row."""
        import wandb

        row: dict[str, Any] = {**record.scalars, AXIS: record.step}
        cut = [n for n, table in record.tables.items() if len(table.rows) > wandb.Table.MAX_ROWS]
        if cut:
            self.note = (
                f"W&B truncates tables to {wandb.Table.MAX_ROWS} rows: {', '.join(cut)}; before "
                "the fit wandb.Table.MAX_ROWS = 100_000 keeps more"
            )
        with tempfile.TemporaryDirectory() as folder:
            # files have these names
            row.update(media(record, wandb, self._file_names.of, folder))
            self._log_row(row, record.step)

    def _log_row(self, row: dict[str, Any], step: int) -> None:
        if self._with_step:
            # an evaluation after the fit has the step of the fit's last row, which W&B has closed
            self.run.log(row, step=max(step, self.run.step))
            return
        for name in row.keys() - self._on_axis:
            self.run.define_metric(name, step_metric=AXIS)
            self._on_axis.add(name)
        self.run.log({**row, "global_step": step}, commit=self._commit)

    @property
    def _checkpoint(self) -> str:
        return f"checkpoint-{self.run.id}"

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Log files as the artifact ``artifacts``."""
        self.run.log_artifact(_artifact("artifacts", files))

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Log a version with the file's name and the aliases; online, wait for the upload."""
        files = [(upload.checked(), name)]
        artifact = _artifact(self._checkpoint, files, {"file": name, "step": step})
        logged = self.run.log_artifact(artifact, aliases=[name, *upload.aliases])
        if not self.run.offline:
            logged.wait()

    def delete_checkpoint(self, name: str) -> None:
        """Delete a version on the server; an offline run keeps all."""
        if self.run.offline:
            self.note = (
                "W&B deletes nothing offline: checkpoints that were deleted here stay in the run"
            )
            return
        import wandb

        run = self.run
        server = wandb.Api(overrides={"base_url": run.settings.base_url})
        path = f"{run.entity}/{run.project}/{self._checkpoint}:{name}"
        if server.artifact_exists(path):
            server.artifact(path).delete(delete_aliases=True)

    def params(self, params: Mapping[str, Any]) -> None:
        """Add to the config; existing values stay."""
        self.run.config.update(_completed(dict(self.run.config), params), allow_val_change=True)

    def end(self, failed: bool) -> None:
        """Finish the run; an offline run that is on the disk goes on for evaluations."""
        import wandb

        is_on_disk = self.run.offline and getattr(self.run.settings, _FLUSH, None)
        is_active = self.run is wandb.run
        if is_on_disk and not failed and is_active:
            if self._with_step or not self._commit:  # a kill would cost the row that is not closed
                self.run.log({}, commit=True)
            _await_file(self.run.settings.sync_file, getattr(self.run.settings, _FLUSH))
            WandbWriter.idle_run, WandbWriter.idle_in = self.run, os.getpid()
            atexit.register(self._wake)
        else:
            self.run.finish(exit_code=255 if self.killed else int(failed))

    def run_id(self) -> str:
        """Return the run's id."""
        return str(self.run.id)

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether the error is wrong use or a wrong key; errors of the network may pass."""
        import wandb

        wrong = (wandb.errors.UsageError, wandb.errors.AuthenticationError)
        return isinstance(error, wrong) or Writer.is_permanent(error)

    @staticmethod
    def on_abandoned() -> None:
        """End W&B's service; otherwise the end of the process would wait for the service."""
        import wandb

        if wandb.run is None:
            wandb.teardown()
        else:  # which the program may still use
            _end_at_exit(wandb.run)


def lag_of(run: Any) -> float:
    """Return the seconds until W&B has stored a row of a run.

    By default the client writes an offline run every 15 seconds, and a row after the next row's
    beginning.
    """
    return 20.0 if getattr(run, "offline", False) else 0.0


def _end_at_exit(run: Any) -> None:
    """Let the end of the process wait for the service of an active run for some seconds only."""
    import wandb

    is_exit = threading.Event()

    def end_service() -> None:
        is_exit.wait()
        if wandb.run is None or wandb.run is run:  # else the program has begun another
            with contextlib.suppress(Exception):  # W&B's own hook may have been the first
                wandb.teardown()  # at first it takes back W&B's own wait, which has no limit

    thread = threading.Thread(target=end_service, daemon=True)
    thread.start()  # now, as Python starts no thread at its end

    @atexit.register
    def await_end() -> None:
        is_exit.set()
        thread.join(_LONGEST_END)


def _await_file(path: str, interval: float) -> None:
    """Wait until W&B's service has written an offline run's file: it grows no more."""
    size, quiet, end = -1, 0, time.monotonic() + _LONGEST_FLUSH
    while quiet < 3 and time.monotonic() < end:
        time.sleep(interval)
        before, size = size, os.path.getsize(path) if os.path.exists(path) else 0
        quiet = quiet + 1 if size == before else 0


def _completed(config: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested config with the parameters that it lacks.

    >>> _completed({"lr": 7, "aug": {"crop": 4}}, {"lr": 1, "aug": {"crop": 8, "flip": True}})
    {'lr': 7, 'aug': {'crop': 4, 'flip': True}}
    """
    inner = {
        name: _completed(config[name], value)
        for name, value in params.items()
        if isinstance(value, Mapping) and isinstance(config.get(name), Mapping)
    }
    return {**params, **config, **inner}


def plain_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested parameters in the types of JSON; values of other types become strings.

    >>> plain_params({"lr": 0.1, "data": {"size": (8, 8), "kind": dict}})
    {'lr': 0.1, 'data': {'size': [8, 8], 'kind': "<class 'dict'>"}}
    """
    return {str(name): _in_json(plain(value)) for name, value in params.items()}


def _in_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return plain_params(value)
    if isinstance(value, (list, tuple)):
        return [*map(_in_json, value)]
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _artifact(
    name: str, files: Sequence[tuple[str, str]], metadata: dict[str, Any] | None = None
) -> Any:
    """Return an artifact of the type model, with copies of the files."""
    import wandb

    artifact = wandb.Artifact(name=name, type="model", metadata=metadata)
    for path, inner in files:
        artifact.add_file(path, name=inner)
    return artifact


def _offline_files(arguments: Mapping[str, Any]) -> list[str]:
    """Return the offline files of a run."""
    folder = arguments.get("dir") or os.environ.get("WANDB_DIR") or "."
    name = f"run-{arguments.get('id') or os.environ.get('WANDB_RUN_ID')}.wandb"
    return sorted(glob.glob(os.path.join(glob.escape(folder), "wandb", "offline-run-*", name)))


def _stored_steps(files: Sequence[str]) -> dict[str, set[int]]:
    """Return the steps in W&B's offline files, as W&B's own command reads them.

    A release without the command (before 0.29) is asked for nothing: rows may come twice.
    """
    steps: dict[str, set[int]] = {}
    for row in itertools.chain.from_iterable(map(_rows_in, files)):
        step = row.get(AXIS, row.get("global_step", row.get("_step")))
        with contextlib.suppress(TypeError, ValueError, OverflowError):  # the user's, by this name
            at = int(float(step))  # type: ignore[arg-type]
            for name in row:
                steps.setdefault(name, set()).add(at)
    return steps


def _rows_in(file: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of an offline file, up to a row torn by a kill."""
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", file]
    with (
        contextlib.suppress(OSError, ValueError),
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as reader,
    ):
        for line in reader.stdout or ():
            record = json.loads(line)
            if record.get("type") == "history":
                yield record["history"]["item"]


def media(
    record: Record, client: Any, name_of: Callable[[str], str], folder: str
) -> dict[str, Any]:
    """Return the samples of a record as objects of the client by name.

    Args:
        record: The record.
        client: The module ``wandb``, or a module with the same classes.
        name_of: A function that returns a valid path of a file for a name.
        folder: A folder for files, which the client copies when the row is logged.
    """
    samples: dict[str, Any] = {}
    for name, image in record.images.items():
        samples[name_of(name)] = client.Image(as_picture(image))
    for name, table in record.tables.items():
        rows = [*map(list, table.rows)]
        samples[name_of(name)] = client.Table([*table.columns], rows, allow_mixed_types=True)
    for name, counted in record.histograms.items():
        counts = np.array(counted.counts), np.array(counted.edges)
        samples[name] = client.Histogram(np_histogram=counts)
    for name, text in record.texts.items():
        # a file: a text could be taken for a path
        page = io.StringIO(f"<pre>{html.escape(text)}</pre>")
        samples[name_of(name)] = client.Html(page)
    for kind, files in ((client.Audio, record.audios), (client.Video, record.videos)):
        for name, sample in files.items():
            samples[name_of(name)] = kind(as_file(sample, folder, len(samples)))
    return samples


_SUMMARIES = ("min", "max", "mean", "best", "last", "none")
_SERVERS = ("https://api.wandb.ai", "https://api.forge.coreweave.com")


@HOOKS.register_module()
class WandbLoggerHook(TrackerHook):
    """Logs to W&B: offline in the work dir, unless there is a key or ``WANDB_MODE``.

    The keys are the keys of ``get_loggable_tags``; the x-axis of the charts is the iteration,
    ``trainer/global_step``. The module's hyper-parameters are in the config, nested as the user's.
    W&B keeps the console's output, unless ``init_kwargs`` has ``{"settings": {"console": "off"}}``.

    ``wandb sync`` uploads an offline run later. Evaluations after a fit go on with the offline run:
    the next run, ``wandb.finish()`` or the end of the process ends it.

    Args:
        init_kwargs: Arguments of ``wandb.init``, called in the hook's thread.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        commit: With ``with_step=False``, whether each log ends a step of W&B's.
        with_step: Whether the iteration is W&B's step; otherwise the iteration is
            logged as ``global_step``.
        log_artifact: Whether the run's text files are logged as the artifact ``artifacts``.
        out_suffix: Endings of the files' names.
        define_metric_cfg: A summary (min, max, mean, best, last or none) by metric.
        project: The project, as of ``wandb.init``.
        name: The run's name.
        entity: The user or team.
        group: The group of runs.
        tags: The run's tags.
        notes: The run's notes.
        mode: ``"online"``, ``"offline"`` or ``"disabled"``.
        upload: ``"best"``, ``"last"`` or ``"all"``: the checkpoints to send as versions of the
            artifact ``checkpoint-{id}``, with aliases ``best``, ``last`` and the file's name.
        options: See ``TrackerHook``; ``run``, W&B's or a Lightning ``WandbLogger``, is left open.

    Raises:
        ImportError: if wandb is not installed.
        ValueError: for an unknown summary, or an argument repeated in ``init_kwargs``.
        TypeError: if ``run`` is no run of W&B's, or an argument has another type.

    Source: mmcv's ``WandbLoggerHook``.

    Note:
        Departures from mmcv: the run is offline, in the work dir, when nothing is configured.
        With ``with_step`` a step is committed by the next step, so validation and training of an
        iteration share a row (mmcv commits immediately, and W&B drops the second). In an
        open run, the program's or a ``WandbLogger``'s, the iteration is logged as ``global_step``
        too, as with ``with_step=False``.
    """

    _package, _start_function = "wandb", "init"
    _imported = ("wandb.apis.public",)
    _writer_class = WandbWriter
    _run_attribute = "define_metric"
    init_kwargs: dict[str, Any] = alias("_init_kwargs")
    _is_global = True
    wandb = Package("wandb")

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        commit: bool = True,
        by_epoch: bool = True,
        with_step: bool = True,
        log_artifact: bool = True,
        out_suffix: str | tuple[str, ...] = (".log.json", ".log", ".py"),
        define_metric_cfg: dict[str, str] | None = None,
        *,
        project: str | None = None,
        name: str | None = None,
        entity: str | None = None,
        group: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
        mode: str | None = None,
        upload: str | None = None,
        **options: Any,
    ) -> None:
        texts = dict(project=project, name=name, entity=entity, group=group, notes=notes, mode=mode)
        shared = interval, ignore_last, reset_flag, by_epoch
        super().__init__(*shared, upload=upload, **options)
        self._start_with(init_kwargs, **texts, tags=tags)
        if isinstance(settings := self._init_kwargs.get("settings"), Mapping):
            self.wandb.Settings(**settings)
        check_bool(commit=commit, with_step=with_step, log_artifact=log_artifact)
        self.commit = commit
        self.with_step = with_step
        self.log_artifact = log_artifact
        self.out_suffix = check_suffix(out_suffix)
        self.define_metric_cfg = check_dict("define_metric_cfg", define_metric_cfg) or {}
        for metric, summary in self.define_metric_cfg.items():
            check_choice(f"define_metric_cfg[{metric!r}]", summary, _SUMMARIES)

    import_wandb = TrackerHook._require_client

    def _active_run(self) -> Any:
        """Return a run started by the program."""
        return None if self.wandb.run is WandbWriter.idle_run else self.wandb.run

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return a run in the work dir, online only if configured."""
        # flushed so often as a kill may lose; W&B's default is every 15 seconds
        wanted = {_FLUSH: 0.25, "init_timeout": 20, "finish_timeout": max(int(self._timeout), 1)}
        known = self.wandb.Settings.model_fields
        settings: dict[str, Any] = {name: v for name, v in wanted.items() if name in known}
        own = self._init_kwargs.get("settings") or {}
        settings.update(own if isinstance(own, Mapping) else own.model_dump(exclude_unset=True))
        init: dict[str, Any] = {}
        if is_local(runner.work_dir) and "WANDB_DIR" not in os.environ:
            os.makedirs(runner.work_dir, exist_ok=True)
            init["dir"] = runner.work_dir
        if not ("mode" in settings or has_wandb_key()):
            init["mode"] = os.environ.get("WANDB_MODE", "offline")
        resume = self._init_kwargs.get("resume", os.environ.get("WANDB_RESUME"))
        is_new = self._tracked.after is None and resume is not None  # whose id W&B knows
        chosen = is_new or "id" in self._init_kwargs or "WANDB_RUN_ID" in os.environ
        return {
            "init": {**init, **self._init_kwargs, "settings": settings},
            "with_step": self.with_step,
            "commit": self.commit,
            "summaries": self.define_metric_cfg,
            "run_id": None if chosen else self._tracked.run_id or self._tracked.key,
            "after": self._tracked.after,
        }

    def _start_arguments(self) -> Collection[str]:
        """Return the names of the user's arguments for a new run; any run gets the config."""
        return [name for name in self._init_kwargs if name not in ("config", "settings", "dir")]

    def _parameters(self, runner: Runner) -> dict[str, Any]:
        """Return the module's hyper-parameters, and the config in ``init_kwargs``, nested."""
        config = self._init_kwargs.get("config")
        given = config if isinstance(config, dict) else {}
        of_logger = is_lightning_logger(self._client_run)
        params = {} if of_logger else self._hyper_parameters(runner)
        return self._plain({**params, **given})

    def _plain(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return nested hyper-parameters: W&B shows the groups."""
        return plain_params(params)

    def _files(self, runner: Runner, folders: contextlib.ExitStack) -> list[tuple[str, str]]:
        """Return the text files of the run."""
        if not self.log_artifact:
            return []
        return [(join(runner.work_dir, n), n) for n in files_of_run(runner, self.out_suffix)]


def has_wandb_key() -> bool:
    """Whether the environment or the netrc file has a key of W&B's."""
    from requests.utils import get_netrc_auth  # a requirement of wandb

    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    servers = [os.environ.get("WANDB_BASE_URL"), *_SERVERS]
    return any(server and get_netrc_auth(server) for server in servers)
