"""Write to an MLflow store: open its SQLite file, its experiment and a run."""

from __future__ import annotations

import contextlib
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from filelock import FileLock

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.stored_steps import in_mlflow
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.samples.forms import mlflow_files
from lightning_hooks.loggers.trackers.inputs import Names, metric_key
from lightning_hooks.loggers.trackers.packages import environment
from lightning_hooks.loggers.uploads.mlflow_artifacts import SHORT_WAITS, MlflowArtifacts
from lightning_hooks.storage.files import atomic_path
from lightning_hooks.utils.plain_types import USERINFO, without_secrets

__all__ = ["MlflowWriter", "find_experiment", "find_run", "make_database"]

MLFLOW_TAG = "lightning_hooks.run"
"""The tag by which a run is found whose id is not known."""

RUN_NAME = "mlflow.runName"
SQLITE = "sqlite:///"

_MAKING_TABLES = threading.Lock()  # alembic has one running migration in a process

_MAX_BATCH = 1000, 100  # metrics, parameters: as many as a server takes


class MlflowWriter(MlflowArtifacts):
    """A run in MLflow; the same numbers sent twice are stored once.

    Args:
        client: An ``MlflowClient``.
        run_id: The run.
        owned: Whether the run was created here.
    """

    name = "mlflow"
    takes = ("images", "tables", "checkpoints")
    batch = 256

    def __init__(self, client: Any, run_id: str, *, owned: bool) -> None:
        super().__init__(run_id, owned=owned)
        self.client = client
        self._params: dict[str, str] = {}  # of a continued run
        self._metric_keys, self._param_keys = Names(metric_key), Names(metric_key)

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
    ) -> MlflowWriter:
        """Create a run, or take an existing one.

        Args:
            run: The store and the id of an open run.
            uri: The store.
            experiment: The experiment, created if it does not exist; MLflow's default if None.
            artifacts: The location of files of a new experiment.
            tags: Tags of the run.
            run_id: A run to continue.
            label: A tag of the run, by which it is found where its id is not known.
            after: The iterations done at the checkpoint after which the run goes on.
        """
        from mlflow import MlflowClient

        tags = {**(tags or {}), **({MLFLOW_TAG: label} if label and run is None else {})}
        note = make_database(uri) if run is None else ""
        with environment(**SHORT_WAITS):
            client = MlflowClient(tracking_uri=uri if run is None else run[0])
            found = run_id if run is None else run[1]
            if run is None and after is not None:
                found = find_run(client, found, label)
            if found is None:
                experiment_id = find_experiment(client, experiment, artifacts)
                # MLflow itself would draw a name from the training's random numbers
                name = tags.get(RUN_NAME) or f"run-{secrets.token_hex(4)}"
                created = client.create_run(experiment_id, tags=tags, run_name=name)
                writer = cls(client, created.info.run_id, owned=True)
                writer.note = note
                return writer
            for name, value in tags.items():
                client.set_tag(found, name, value)
            writer = cls(client, found, owned=run is None)
            if after is not None:
                writer.go_on(after)
            return writer

    @classmethod
    def options(cls, run: Any, **arguments: Any) -> dict[str, Any]:
        """Return the store, the experiment and the run."""
        uri, run_id = run or (arguments.get("uri"), arguments.get("label"))
        configured = os.environ.get("MLFLOW_TRACKING_URI", "")
        if USERINFO.search(configured) and without_secrets(configured) == without_secrets(uri):
            uri = None  # the client reads the URI with its password from the environment
        name = (arguments.get("tags") or {}).get(RUN_NAME)
        experiment = arguments.get("experiment")
        return {"tracking_uri": uri, "experiment": experiment, "name": name, "run_id": run_id}

    @classmethod
    def arguments_for(
        cls,
        *,
        tracking_uri: str | None = None,
        experiment: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
    ) -> dict[str, Any]:
        """Return a store; artifacts of a new experiment in an SQLite file are beside the file."""
        found: dict[str, Any] = {"uri": tracking_uri, "experiment": experiment}
        if tracking_uri is not None and tracking_uri.startswith(SQLITE):
            folder = os.path.dirname(os.path.abspath(tracking_uri.removeprefix(SQLITE)))
            found["artifacts"] = f"file://{folder}/mlartifacts"
        if name is not None:
            found["tags"] = {RUN_NAME: name}
        return found if run_id is None else {**found, "run_id": run_id, "label": run_id, "after": 0}

    def go_on(self, after: int) -> None:
        """Find what the run has after a checkpoint: it is not stored twice."""
        if self._owned:
            self.client.update_run(self.run, status="RUNNING")
        self.keep_stored(in_mlflow(self.client, self.run), after)
        self._params = dict(self.client.get_run(self.run).data.params)

    def stored_name(self, name: str) -> str:
        """Return MLflow's key."""
        return self._metric_keys.of(name)

    def write(self, records: Sequence[Record]) -> None:
        """Store numbers in few batches: a server takes as long for one as for a thousand."""
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
                for method, content, path in mlflow_files(record, self.stored_name):
                    getattr(self.client, method)(self.run, content, path)
        for record in records:
            self.checkpoints(record)

    def params(self, params: Mapping[str, Any]) -> None:
        """Store parameters as text, as MLflow does."""
        from mlflow.entities import Param

        texts = [
            Param(self._param_keys.of(str(name)), str(value)) for name, value in params.items()
        ]
        changed = [p.key for p in texts if self._params.get(p.key, p.value) != p.value]
        if changed:
            self.note = (
                f"MLflow keeps the first value of a parameter: {', '.join(changed)} of the "
                "continued run stays as it was"
            )
        texts = [p for p in texts if p.key not in changed]
        for batch in _batches(texts, _MAX_BATCH[1]):
            self.client.log_batch(self.run, params=batch)

    def close(self, failed: bool = False) -> None:
        """Set the run's status if it is owned."""
        if self._owned:
            with environment(**SHORT_WAITS):
                self.client.set_terminated(self.run, status="FAILED" if failed else "FINISHED")

    def run_id(self) -> str:
        """Return the run's id."""
        return str(self.run)

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether a server does not want what was sent; a proxy's or a token's error may pass."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
            return status in (400, 413, 422)
        return Writer.is_permanent(error)


def _batches(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def make_database(uri: str | None) -> str:
    """Create the SQLite file of a store, whole or not at all; return a message if one was mended.

    MLflow makes a hundred tables, one after the other: of a process that is killed meanwhile, or of
    two that do it at once, remains a file that can never be opened. Here the tables are made in
    another file, under a lock, which is then renamed. A half-made file, which has no run, is kept
    under another name.

    Args:
        uri: The store; one that is no SQLite file is left alone.
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
            _remove(f"{path}-journal")
            note = f"{path} was half-made by a process that was killed: it is {aside} now"
        if not os.path.exists(path):
            with _MAKING_TABLES, atomic_path(path, "mlflow") as temporary:
                _remove(temporary, f"{temporary}-journal")  # of a process that was killed
                _make_tables(f"{SQLITE}{temporary}")
        _remove(lock.lock_file)  # a process that waits for it finds a whole file
    return note


def _remove(*paths: str) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _make_tables(uri: str) -> None:
    from mlflow.store.db import utils

    engine = utils.create_sqlalchemy_engine_with_retry(uri)  # type: ignore[no-untyped-call]
    try:
        utils._initialize_tables(engine)  # type: ignore[no-untyped-call]
    finally:
        engine.dispose()


def _is_whole(path: str) -> bool:
    """Whether a file has all tables, or runs, or is no database: then it is MLflow's matter."""
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
            found = database.execute("select version_num from alembic_version").fetchone()
            newest = utils._get_latest_schema_revision()  # type: ignore[no-untyped-call]
            return bool(found == (newest,))
    except sqlite3.DatabaseError:
        return True


def find_experiment(client: Any, name: str | None, artifacts: str | None) -> str:
    """Return the id of an experiment, created if there is none; MLflow's default without name."""
    from mlflow.exceptions import MlflowException

    if name is None:
        return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
    existing = client.get_experiment_by_name(name)
    if existing is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException:  # another process has created it meanwhile
            existing = client.get_experiment_by_name(name)
            if existing is None:
                raise
    return str(existing.experiment_id)


def find_run(client: Any, run_id: str | None, label: str | None) -> str | None:
    """Return the id of a run to continue, None if the store has none."""
    from mlflow.exceptions import MlflowException

    if run_id is not None:
        try:
            info = client.get_run(run_id).info
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
        else:
            return str(info.run_id) if info.lifecycle_stage == "active" else None
    experiments = [each.experiment_id for each in client.search_experiments()]
    found = client.search_runs(experiments, f"tags.`{MLFLOW_TAG}` = '{label}'") if label else []
    return str(found[0].info.run_id) if found else None
