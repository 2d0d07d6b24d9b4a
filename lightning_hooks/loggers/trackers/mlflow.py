"""``MlflowLoggerHook``: log to MLflow, in an SQLite file or on a server."""

from __future__ import annotations

import contextlib
import importlib.metadata
import inspect
import json
import logging.config
import math
import os
import re
import secrets
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import lightning as L
import torch
from filelock import FileLock

from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.line import in_fit
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.delivery.writer import REFUSALS, Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import (
    Names,
    Paths,
    flatten_params,
    is_lightning_logger,
)
from lightning_hooks.loggers.trackers.packages import Package, environment
from lightning_hooks.storage.file_names import inner_path
from lightning_hooks.storage.files import atomic_path, delete, is_local
from lightning_hooks.utils.arguments import check_bool, check_dict, shown
from lightning_hooks.utils.media import as_file
from lightning_hooks.utils.samples import as_picture
from lightning_hooks.utils.secrets import without_secrets

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "MlflowLoggerHook",
    "MlflowWriter",
    "find_experiment",
    "find_run",
    "make_database",
    "metric_key",
]

# a dead server costs ten seconds, not the client's default of four minutes; without jitter the
# client draws none of the training's random numbers
SHORT_WAITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}

_FOLDER = "checkpoints"
_SECONDS_PER_BYTE = 1e-6  # for a server to store a file

LABEL_TAG = "lightning_hooks.run"
"""The tag to find a run without an id."""

RUN_NAME = "mlflow.runName"
_FLUENT = "mlflow.tracking.fluent"  # the client's global state
SQLITE = "sqlite:///"

_MAKING_TABLES = threading.Lock()  # alembic has one running migration in a process

_MAX_BATCH = 1000, 100  # metrics, parameters: as many as a server takes


class MlflowWriter(Writer):
    """A run in MLflow; the same numbers sent twice are stored once.

    Args:
        client: An ``MlflowClient``.
        run_id: The run.
        owned: Whether the writer has created the run.
        stored: MLflow's data of an open or continued run.
    """

    name = "mlflow"
    imports_ipython = True
    shows_state = True
    takes = ("images", "tables", "texts", "audios", "videos", "checkpoints")
    batch = 256

    def __init__(self, client: Any, run_id: str, *, owned: bool, stored: Any = None) -> None:
        from mlflow.utils.uri import get_uri_scheme

        super().__init__(run_id, owned=owned)
        self.client = client
        self.stored_params: dict[str, str] = dict(stored.params) if stored else {}
        scheme = get_uri_scheme(client.tracking_uri)  # type: ignore[no-untyped-call]
        has_folders = scheme in ("", "file")
        self._metric_keys, self._param_keys = (
            Names(metric_key, paths=Paths(names) if has_folders else None)
            for names in (stored.metrics if stored else (), self.stored_params)
        )
        self._sample_keys = Names(_sample_key, longest=150)  # a part of MLflow's file names
        self._samples: set[str] = set()  # stored images and tables
        self._model_id: str | None = None

    @classmethod
    def connect(
        cls,
        *,
        run: tuple[str, str] | None = None,
        uri: str | None = None,
        experiment: str | None = None,
        artifacts: str | None = None,
        tags: Mapping[str, str] | None = None,
        run_id: str | None = None,
        label: str | None = None,
        after: int | None = None,
        must_exist: bool = False,
    ) -> MlflowWriter:
        """Create a run, or use an existing run.

        Args:
            run: The store and the id of an open run.
            uri: The store.
            experiment: The experiment, created if missing; MLflow's default if None.
            artifacts: The location of files of a new experiment.
            tags: Tags of the run.
            run_id: A run to continue.
            label: A tag of the run, to find the run without an id.
            after: The iterations of the checkpoint of a continued run.
            must_exist: Whether a missing run is an error, not a reason for a new run.
        """
        from mlflow import MlflowClient
        from mlflow.tracking.context.registry import resolve_tags

        note = make_database(uri) if run is None else ""
        with environment(**SHORT_WAITS):
            client = MlflowClient(tracking_uri=uri if run is None else run[0])
            if run is not None:
                current_id: str | None = run[1]
            else:
                current_id = find_run(client, run_id, None if after is None else label)
            if current_id is None and must_exist:
                raise ValueError(f"the store has no run {run_id}; --new-run begins another")
            if current_id is None:
                if run_id is not None:
                    note = note or f"run {run_id} is not in this store: a new run begins"
                experiment_id = find_experiment(client, experiment, artifacts)
                # MLflow itself would draw a name from the training's random numbers
                name = (tags or {}).get(RUN_NAME) or f"run-{secrets.token_hex(4)}"
                labelled = {**(tags or {}), **({LABEL_TAG: label} if label else {})}
                found_tags = resolve_tags(labelled)  # with the user, the script and the commit
                created = client.create_run(experiment_id, tags=found_tags, run_name=name)
                writer = cls(client, created.info.run_id, owned=True)
                writer.note = note
                return writer
            data = client.get_run(current_id).data
            writer = cls(client, current_id, owned=run is None, stored=data)
            for name, value in (tags or {}).items() if run is None else ():
                client.set_tag(current_id, name, value)
            if run is None:
                client.update_run(current_id, status="RUNNING")
            if after is not None:
                writer.go_on(after)
            return writer

    @classmethod
    def options(cls, run: tuple[str, str] | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the store and the id of an open run; no store with a password."""
        uri, run_id = run or (arguments.get("uri"), None)
        configured = os.environ.get("MLFLOW_TRACKING_URI", "")
        if configured != without_secrets(configured) == without_secrets(uri):
            uri = None  # the client reads the URI with its password from the environment
        return {"tracking_uri": uri, **({} if run_id is None else {"run_id": run_id})}

    @classmethod
    def reopen(cls, **arguments: Any) -> MlflowWriter:
        """Open a run; artifacts of a new experiment in an SQLite file are beside the file."""
        uri, run_id = arguments.get("uri") or "", arguments.get("run_id")
        if uri.startswith(SQLITE):
            folder = os.path.dirname(os.path.abspath(uri.removeprefix(SQLITE)))
            arguments["artifacts"] = f"file://{folder}/mlartifacts"
        is_id = re.fullmatch("[0-9a-f]{32}", run_id or "") is not None  # else a run's label
        after = None if run_id is None else 0
        return cls.connect(label=run_id, after=after, must_exist=is_id, **arguments)

    def go_on(self, after: int) -> None:
        """Find stored points and samples, which are not stored twice."""
        self.keep_stored(_stored_steps(self.client, self.run), after)
        self._samples = _stored_samples(self.client, self.run)

    def stored_name(self, name: str) -> str:
        """Return MLflow's key."""
        return self._metric_keys.of(name)

    def write(self, records: Sequence[Record]) -> None:
        """Store numbers in few batches: one number takes a server as long as a thousand."""
        from mlflow.entities import Metric

        metrics = [
            Metric(self.stored_name(name), value, int(record.time * 1000), record.step)
            for record in records
            for name, value in record.scalars.items()
        ]
        with environment(**SHORT_WAITS):
            for record in records:
                self.params(record.params)
            for batch in _batches(metrics, _MAX_BATCH[0]):
                self.client.log_batch(self.run, metrics=batch)
            for record in records:
                self.samples(record)
        self.note = self._metric_keys.note or self._param_keys.note or self.note
        for record in records:
            self.checkpoints(record)

    def samples(self, record: Record) -> None:
        """Store images and tables once: MLflow would add those of a second attempt."""
        step = record.step
        for name, image in record.images.items():
            key, picture = self._sample_keys.of(name), as_picture(image)
            if (place := f"images/{key}/{step}") not in self._samples:
                time = int(record.time * 1000)
                self.client.log_image(self.run, picture, key=key, step=step, timestamp=time)
                self._samples.add(place)
        for name, table in record.tables.items():
            place = f"tables/{self._sample_keys.of(name)}/{step}.json"
            if place not in self._samples:
                # in MLflow's JSON an infinite number would be null
                columns = {
                    column: [str(v) if v in (math.inf, -math.inf) else v for v in values]
                    for column, values in table.by_column().items()
                }
                self.client.log_table(self.run, columns, place)
                self._samples.add(place)
        for kind in ("texts", "audios", "videos"):  # a second attempt replaces the file
            for name, sample in getattr(record, kind).items():
                place = f"{kind}/{self._sample_keys.of(name)}"
                with tempfile.TemporaryDirectory() as folder:
                    self.client.log_artifact(self.run, as_file(sample, folder, step), place)

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store the files of a model as a model of the run; before MLflow 3, as files of the run.

        ``mlflow.pytorch.log_model`` would do the same in the store of MLflow's global state.
        """
        folder = os.path.commonpath([path for path, _ in files])
        with _patient(sum(os.path.getsize(path) for path, _ in files)):
            if not hasattr(self.client, "create_logged_model"):  # before MLflow 3
                self.client.log_artifacts(self.run, folder, os.path.basename(folder))
                return
            from mlflow.entities import LoggedModelOutput

            if self._model_id is None:
                run, name = self.client.get_run(self.run), os.path.basename(folder)
                self._model_id = self.client.create_logged_model(
                    *(run.info.experiment_id, name, self.run), params=run.data.params
                ).model_id
                self.client.log_outputs(self.run, [LoggedModelOutput(self._model_id, step=0)])
            self.client.log_model_artifacts(self._model_id, folder)
            self.client.finalize_logged_model(self._model_id, "READY")

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Store a file in ``checkpoints``; the tags ``checkpoint.best`` ... name the path."""
        with _patient(upload.size):
            self.client.log_artifact(self.run, upload.checked(), _FOLDER)
            for alias in upload.aliases:
                self.client.set_tag(self.run, f"checkpoint.{alias}", f"{_FOLDER}/{name}")

    def delete_checkpoint(self, name: str) -> None:
        """Delete a file in ``checkpoints``."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        with environment(**SHORT_WAITS):
            location = self.client.get_run(self.run).info.artifact_uri
            options = _known(get_artifact_repository, tracking_uri=self.client.tracking_uri)
            store: Any = get_artifact_repository(location, **options)
            store.delete_artifacts(f"{_FOLDER}/{name}")

    def params(self, params: Mapping[str, Any]) -> None:
        """Store parameters as text, as MLflow does."""
        from mlflow.entities import Param

        texts = [
            Param(self._param_keys.of(name), str(value))
            for name, value in flatten_params(params).items()
        ]
        changed = [p.key for p in texts if self.stored_params.get(p.key, p.value) != p.value]
        if changed:
            self.note = (
                f"MLflow keeps the first value of a parameter: {', '.join(changed)} of the run "
                "stays as it was"
            )
        texts = [p for p in texts if p.key not in changed]
        for batch in _batches(texts, _MAX_BATCH[1]):
            self.client.log_batch(self.run, params=batch)

    def end(self, failed: bool) -> None:
        """Set the run's status."""
        with environment(**SHORT_WAITS):
            state = "KILLED" if self.killed else "FAILED" if failed else "FINISHED"
            self.client.set_terminated(self.run, status=state)

    def run_id(self) -> str:
        """Return the run's id."""
        return str(self.run)

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether the server refuses the input; errors of a proxy or token may pass."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
            return status in REFUSALS
        return Writer.is_permanent(error)


def _batches(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def make_database(uri: str | None) -> str:
    """Create the SQLite file of a store, whole or not at all; return a message after a repair.

    MLflow makes a hundred tables one by one: a kill, or two simultaneous processes, can leave a
    file that never opens again. This function makes the tables in another file, under a lock, and
    renames the file. A half-made file without runs is kept under another name.

    Args:
        uri: The store; nothing happens unless the store is an SQLite file.
    """
    if uri is None or not uri.startswith(SQLITE) or "?" in uri:
        return ""
    path, note = uri.removeprefix(SQLITE), ""
    if _is_whole(path):
        return note
    lock = FileLock(f"{path}.lock")
    with lock:
        if os.path.exists(path) and not _is_whole(path):
            aside = f"{path}.half-made-{time.time_ns()}"
            os.replace(path, aside)
            delete(f"{path}-journal")
            note = f"{path} was half-made by a process that was killed: it is {aside} now"
        if not os.path.exists(path):
            with _MAKING_TABLES, atomic_path(path, "mlflow") as temporary:
                delete(temporary, f"{temporary}-journal")  # of a process that was killed
                _make_tables(f"{SQLITE}{temporary}")
        delete(lock.lock_file)  # a waiting process finds a whole file
    return note


def _make_tables(uri: str) -> None:
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine_with_retry(uri)  # type: ignore[no-untyped-call]
    try:
        # MLflow 2 would replace the program's handlers of the root logger
        with setting(logging.config, fileConfig=lambda *args, **kwargs: None):
            utils._initialize_tables(engine)  # type: ignore[no-untyped-call]
    finally:
        engine.dispose()


def _is_whole(path: str) -> bool:
    """Whether to leave a file to MLflow: with all tables, with runs, or no database at all."""
    if not os.path.exists(path):
        return False
    from mlflow.store.db import utils

    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as database:
            names = "select name from sqlite_master where type = 'table'"
            tables = {name for (name,) in database.execute(names)}
            if "runs" in tables and database.execute("select 1 from runs limit 1").fetchone():
                return True
            if "alembic_version" not in tables:
                return False
            revision = database.execute("select version_num from alembic_version").fetchone()
            newest = utils._get_latest_schema_revision()  # type: ignore[no-untyped-call]
            return bool(revision == (newest,))
    except sqlite3.DatabaseError:
        return True


def find_experiment(client: Any, name: str | None, artifacts: str | None) -> str:
    """Return the id of an experiment, created if missing; without a name the client's choice."""
    from mlflow.exceptions import MlflowException

    if name is None:
        return _program_experiment() or os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
    existing = client.get_experiment_by_name(name)
    if existing is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException:  # another process has created the experiment
            existing = client.get_experiment_by_name(name)
            if existing is None:
                raise
    return str(existing.experiment_id)


def _program_experiment() -> str | None:
    """Return the id of the experiment that the program has chosen by ``mlflow.set_experiment``."""
    return getattr(sys.modules.get(_FLUENT), "_active_experiment_id", None)


def _run_before_fork() -> Any:
    """Return the active run of the process that was forked; MLflow 3 forgets it in the child."""
    stack = getattr(sys.modules.get(_FLUENT), "_active_run_stack", None)
    runs, process = getattr(getattr(stack, "thread_local", None), "value", ((), None))
    return runs[-1] if runs and process != os.getpid() else None


def find_run(client: Any, run_id: str | None, label: str | None) -> str | None:
    """Return the id of a run to continue, None if missing in the store."""
    from mlflow.exceptions import MlflowException

    if run_id is not None:
        try:
            info = client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        else:
            return str(info.run_id) if info.lifecycle_stage == "active" else None
    if label is None:
        return None
    experiments = [each.experiment_id for each in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`{LABEL_TAG}` = '{label}'")
    return str(runs[0].info.run_id) if runs else None


def _stored_steps(client: Any, run_id: str) -> dict[str, set[int]]:
    """Return the steps of a run in MLflow."""
    names = client.get_run(run_id).data.metrics
    return {name: {m.step for m in client.get_metric_history(run_id, name)} for name in names}


def _stored_samples(client: Any, run_id: str) -> set[str]:
    """Return the places of the images and tables in a run."""
    tables = json.loads(client.get_run(run_id).data.tags.get("mlflow.loggedArtifacts", "[]"))
    paths = (each.path for each in client.list_artifacts(run_id, "images"))
    # MLflow 2 writes images/a#b%step%1%..., MLflow 3 images/a~b+step+1+...
    images = (re.match(r"images/(.+)([+%])step\2(\d+)\2", path) for path in paths)
    places = {f"images/{re.sub('[~#]', '/', each[1])}/{each[3]}" for each in images if each}
    return places | {each["path"] for each in tables}


def metric_key(name: str) -> str:
    """Return a valid key of MLflow: valid characters, 250 at most, no path out of a folder.

    >>> metric_key("val/AP@50"), metric_key("学习率")
    ('val/AP_50', '学习率')
    """
    return re.sub(r"[^\w/. :-]", "_", inner_path(name))[:250]


def _sample_key(name: str) -> str:
    """Return a valid key of an image: MLflow takes fewer characters than for numbers."""
    return re.sub(r"[^\w/. -]", "_", inner_path(name), flags=re.ASCII)


@contextlib.contextmanager
def _patient(size: int) -> Iterator[None]:
    """Wait for a server that stores files of ``size`` bytes."""
    seconds = str(5 + int(size * _SECONDS_PER_BYTE))
    with environment(**{**SHORT_WAITS, "MLFLOW_HTTP_REQUEST_TIMEOUT": seconds}):
        yield


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are the keys of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment, created if missing. By default the configured experiment, or
            the name of the work dir.
        tags: Tags of the run.
        params: Parameters of the run, beside the module's hyper-parameters.
        log_model: Whether the model is logged as MLflow's model ``models`` at the end, with the
            requirements of its classes, and with a signature if ``module.example_input_array`` is a
            tensor. The model is a pickle, which runs code when loaded: load only models of trusted
            runs.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        tracking_uri: The server or store; overrides the configured store.
        run_name: The run's name.
        upload: ``"best"``, ``"last"`` or ``"all"``: the checkpoints to send to the artifact
            folder ``checkpoints``; the tag ``checkpoint.best`` has the path of the best.
        options: See ``TrackerHook``; ``run`` is MLflow's run or a Lightning ``MLFlowLogger``, to
            use and leave open.

    Raises:
        ImportError: if mlflow is not installed.
        TypeError: if ``run`` is no run of MLflow's.

    Source: mmcv's ``MlflowLoggerHook``.

    Note:
        Departures from mmcv: MLflow's global state is read, not changed. The run is closed at
        the end, after an error as failed; an active run of the program is used and left open. The
        model is logged without mmcv's wrapper. Invalid characters in a key become ``_``.
    """

    _package = "mlflow"
    _writer_class = MlflowWriter
    _run_attribute = "info"
    _begun: ClassVar[set[str]] = set()  # runs that the environment has named in this process
    mlflow = Package("mlflow")
    mlflow_pytorch = Package("mlflow.pytorch")

    def __init__(
        self,
        exp_name: str | None = None,
        tags: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        log_model: bool = True,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        *,
        tracking_uri: str | None = None,
        run_name: str | None = None,
        upload: str | None = None,
        **options: Any,
    ) -> None:
        shared = interval, ignore_last, reset_flag, by_epoch
        super().__init__(*shared, upload=upload, **options)
        names = {"exp_name": exp_name, "tracking_uri": tracking_uri, "run_name": run_name}
        for key, value in names.items():
            if not (value is None or isinstance(value, str)):
                raise TypeError(f"{key} must be a str or None, got {shown(value)}")
        check_bool(log_model=log_model)
        self.exp_name = exp_name
        self._tracking_uri, self._run_name = tracking_uri, run_name
        self.tags = check_dict("tags", tags) or {}
        self.params = check_dict("params", params) or {}
        self.log_model = log_model

    import_mlflow = TrackerHook._require_client

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Find the active run before any call of the client, where a launcher has forked."""
        super().setup(trainer, pl_module, stage)
        if self._begins_run and trainer.strategy.launcher is not None:
            self._parents_run = self._parents_run or self._in_own_store(_run_before_fork())

    def _active_run(self) -> Any:
        """Return the store and the id of the active run."""
        return self._in_own_store(self.mlflow.active_run())

    def _in_own_store(self, run: Any) -> tuple[str, str] | None:
        """Return the client's store and the id of a run, unless the hook has another store."""
        if run is None:
            return None
        uri = self.mlflow.get_tracking_uri()
        return (uri, run.info.run_id) if self._tracking_uri in (None, uri) else None

    def _passed_run(self) -> Any:
        """Return the store and the id of the argument ``run``."""
        run = self._client_run
        if is_lightning_logger(run):
            return run.experiment.tracking_uri, run.run_id
        return self.mlflow.get_tracking_uri(), run.info.run_id

    def _modules(self, runner: Runner) -> Sequence[str]:
        """Return the client's modules; for a local file with the modules of the store."""
        store = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.db.utils")
        return *super()._modules(runner), *(store if self._uses_file(runner) else ())

    def _uses_file(self, runner: Runner) -> bool:
        """Whether the store is an SQLite file, because no store or experiment is chosen."""
        if self._tracking_uri is not None:
            return False
        variables = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_ID"
        is_chosen = (
            any(name in os.environ for name in variables)
            or ("mlflow" in sys.modules and self.mlflow.is_tracking_uri_set())
            or _program_experiment() is not None  # its number is one of the client's store
        )
        return not is_chosen and is_local(runner.work_dir)

    def _target(self, runner: Runner) -> dict[str, Any]:
        """Return an sqlite file in the work dir, unless another store is configured."""
        if in_fit(runner) and not self.mlflow.utils.autologging_utils.autologging_is_disabled(
            "pytorch"
        ):
            runner.logger.warning(
                "%s: mlflow.autolog logs this training too, under names of its own; "
                "mlflow.pytorch.autolog(disable=True) leaves it to the hook",
                type(self).__name__,
            )
        name = self.exp_name or None
        if name is None and _program_experiment() is None:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or None
        run, job_run = self._tracked, self._run_of_job()
        if job_run is not None and self.exp_name is not None:
            text = "%s: MLFLOW_RUN_ID names a run, so exp_name has no effect"
            runner.logger.warning(text, type(self).__name__)
        target: dict[str, Any] = {"label": run.key, "after": run.after}
        target["run_id"] = job_run or run.run_id
        target["tags"] = {str(k): str(v) for k, v in self.tags.items()}
        if self._run_name is not None:
            target["tags"][RUN_NAME] = self._run_name
        if not self._uses_file(runner):
            uri = self._tracking_uri or self.mlflow.get_tracking_uri()
            return {**target, "uri": uri, "experiment": name}
        folder = os.path.abspath(runner.work_dir)
        os.makedirs(folder, exist_ok=True)
        return {
            **target,
            "uri": f"{SQLITE}{folder}/mlflow.db",
            "artifacts": f"file://{folder}/mlartifacts",
            "experiment": name or os.path.basename(folder) or "lightning_hooks",
        }

    def _run_of_job(self) -> str | None:
        """Return the run that the environment names, once in a process, as the client does."""
        run_id = os.environ.get("MLFLOW_RUN_ID")
        if not run_id or run_id in self._begun:
            return None
        self._begun.add(run_id)
        return run_id

    def log(self, runner: Runner) -> None:
        """Append the values to the spool; name a run that the module's own calls have begun."""
        super().log(runner)
        fluent = sys.modules.get(_FLUENT)  # None of a broken client
        has_own = self._session is not None and self._open_run is None and self._begins_run
        if has_own and fluent is not None and (run := fluent.active_run()) is not None:
            runner.warn_once(
                f"{type(self).__name__}: the module's own calls of mlflow log to run "
                f"{run.info.run_id}, which they have begun; with mlflow.start_run() before the fit "
                "these calls and the hook share a run"
            )

    def _parameters(self, runner: Runner) -> dict[str, Any]:
        """Return the module's hyper-parameters and ``params``."""
        return {**super()._parameters(runner), **self.params}

    def _start_arguments(self) -> Sequence[str]:
        """Return the names of the user's arguments for a new run."""
        given = {"exp_name": self.exp_name, "run_name": self._run_name, "tags": self.tags}
        return [name for name, value in given.items() if value]

    def _files(self, runner: Runner, folders: contextlib.ExitStack) -> list[tuple[str, str]]:
        """Return the files of the model, for ``mlflow.pytorch.load_model``."""
        if not self.log_model:
            return []
        from mlflow.utils.logging_utils import suppress_logs

        folder = folders.enter_context(tempfile.TemporaryDirectory())
        model, path = unwrap(runner.model), os.path.join(folder, "models")
        with suppress_logs("mlflow.pytorch", re.compile("serialization_format")):
            self.mlflow_pytorch.save_model(
                *(model, path),
                pip_requirements=[*requirements_of(model)],
                signature=signature_of(runner.module),
                **_known(self.mlflow_pytorch.save_model, serialization_format="pickle"),
            )
        written = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return [(file, os.path.relpath(file, folder)) for file in sorted(written)]


def _known(function: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return the arguments that the installed release of MLflow knows by name.

    >>> _known(lambda path, mode: None, mode=1, encoding="utf-8")
    {'mode': 1}
    """
    known = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in known}


def requirements_of(model: torch.nn.Module) -> Iterator[str]:
    """Yield the packages of a model's classes with their versions.

    >>> "torch" in [each.partition("==")[0] for each in requirements_of(torch.nn.Linear(1, 1))]
    True
    """
    classes = {cls for part in model.modules() for cls in type(part).__mro__}
    for package in sorted({"cloudpickle", *(cls.__module__.partition(".")[0] for cls in classes)}):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version = importlib.metadata.version(package)
            yield f"{package}=={version.partition('+')[0]}"


def signature_of(module: Any) -> Any:
    """Return MLflow's signature of a module's inputs, None without an example tensor.

    The module is not called: a call on one of several ranks could wait for the other ranks.
    """
    example = getattr(module, "example_input_array", None)
    if not isinstance(example, torch.Tensor):
        return None
    from mlflow.models import infer_signature

    return infer_signature(example.detach().cpu().numpy())
