"""``MlflowLoggerHook``: log to MLflow, in a file or on a server."""

from __future__ import annotations

import inspect
import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.stored_steps import in_mlflow
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import (
    MLFLOW_TAG,
    is_lightning_logger,
    metric_key,
    mlflow_experiment,
    mlflow_run,
)
from lightning_hooks.loggers.trackers.packages import Package, environment
from lightning_hooks.storage.files import is_local
from lightning_hooks.utils.arguments import check_bool, check_dict

__all__ = ["MlflowLoggerHook", "MlflowWriter", "metric_key"]

# a dead server costs ten seconds then, not the client's own four minutes; and none of the
# training's random numbers, from which a jitter would be drawn
_SHORT_WAITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}
_MAX_BATCH = 1000, 100  # metrics, parameters: as many as a server takes


class MlflowWriter(Writer):
    """A run in MLflow; the same numbers sent twice are stored once.

    Args:
        client: An ``MlflowClient``.
        run_id: The run.
        owned: Whether the run was created here.
    """

    name = "mlflow"
    batch = 256

    def __init__(self, client: Any, run_id: str, *, owned: bool) -> None:
        super().__init__(run_id, owned=owned)
        self.client = client
        self._params: dict[str, str] = {}  # of a continued run

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
        with environment(**_SHORT_WAITS):
            client = MlflowClient(tracking_uri=uri if run is None else run[0])
            found = run_id if run is None else run[1]
            if run is None and after is not None:
                found = mlflow_run(client, found, label)
            if found is None:
                experiment_id = mlflow_experiment(client, experiment, artifacts)
                # MLflow itself would draw a name from the training's random numbers
                name = tags.get("mlflow.runName") or f"run-{secrets.token_hex(4)}"
                created = client.create_run(experiment_id, tags=tags, run_name=name)
                return cls(client, created.info.run_id, owned=True)
            for name, value in tags.items():
                client.set_tag(found, name, value)
            writer = cls(client, found, owned=run is None)
            if after is not None:
                writer.go_on(after)
            return writer

    def go_on(self, after: int) -> None:
        """Find what the run has after a checkpoint: it is not stored twice."""
        if self._owned:
            self.client.update_run(self.run, status="RUNNING")
        self.keep_stored(in_mlflow(self.client, self.run), after)
        self._params = dict(self.client.get_run(self.run).data.params)

    def stored_name(self, name: str) -> str:
        """Return MLflow's key."""
        return metric_key(name)

    def write(self, records: Sequence[Record]) -> None:
        """Store numbers in few batches: a server takes as long for one as for a thousand."""
        from mlflow.entities import Metric

        metrics = [
            Metric(metric_key(name), value, int(record.time * 1000), record.step)
            for record in records
            for name, value in record.scalars.items()
        ]
        with environment(**_SHORT_WAITS):
            for record in records:
                if record.params:
                    self.params(record.params)
            for batch in _batches(metrics, _MAX_BATCH[0]):
                self.client.log_batch(self.run, metrics=batch)
            for record in records:
                for name, image in record.images.items():  # again under the same name
                    file = f"images/{metric_key(name)}/{record.step}.png"
                    self.client.log_image(self.run, image.transpose(1, 2, 0), file)

    def params(self, params: Mapping[str, Any]) -> None:
        """Store parameters as text, as MLflow does."""
        from mlflow.entities import Param

        texts = [Param(metric_key(str(name)), str(value)) for name, value in params.items()]
        changed = [p.key for p in texts if self._params.get(p.key, p.value) != p.value]
        if changed:
            self.note = (
                f"MLflow keeps the first value of a parameter: {', '.join(changed)} of the "
                "continued run stays as it was"
            )
        texts = [p for p in texts if p.key not in changed]
        for batch in _batches(texts, _MAX_BATCH[1]):
            self.client.log_batch(self.run, params=batch)

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files as artifacts."""
        with environment(**_SHORT_WAITS):
            for path, name in files:
                self.client.log_artifact(self.run, path, os.path.dirname(name) or None)

    def close(self, failed: bool = False) -> None:
        """Set the run's status if it is owned."""
        if self._owned:
            with environment(**_SHORT_WAITS):
                self.client.set_terminated(self.run, status="FAILED" if failed else "FINISHED")

    def resume(self) -> dict[str, Any]:
        """Return the run's id."""
        return {"run_id": self.run}

    @staticmethod
    def is_permanent(error: Exception) -> bool:
        """Whether a server has refused the request; a missing answer may pass."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
            return 400 <= status < 500 and status not in (408, 429)
        return Writer.is_permanent(error)


def _batches(values: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are those of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment, created if it does not exist. By default the configured one, or
            one with the name of the work dir.
        tags: Tags of the run.
        params: Parameters of the run, beside the module's hyper-parameters.
        log_model: Whether the model is logged as the artifact ``models`` at the end.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        options: See ``TrackerHook``; ``run`` is MLflow's run or a Lightning ``MLFlowLogger``; it is
            used and left open.

    Raises:
        ImportError: if mlflow is not installed.
        TypeError: if ``run`` is no run of MLflow's.

    Source: mmcv's ``MlflowLoggerHook``.

    Note:
        Departures from mmcv: MLflow's global state is read, not changed. The run is closed at
        the end, as a failed one after an error; an active run of the program's own is used and
        left open. The model is logged without mmcv's wrapper. Characters that MLflow refuses in
        a key become ``_``.
    """

    package = "mlflow"
    writer_class = MlflowWriter
    run_attribute = "info"
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
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        self.require_client()
        if not (exp_name is None or isinstance(exp_name, str)):
            raise TypeError(f"exp_name must be a str or None, got {exp_name!r}")
        check_bool(log_model=log_model)
        self.exp_name = exp_name
        self.tags = check_dict("tags", tags) or {}
        self.params = check_dict("params", params) or {}
        self.log_model = log_model

    def import_mlflow(self) -> None:
        """Check that mlflow is installed; ``self.mlflow`` imports it when it is first read."""
        super().require_client()

    def require_client(self) -> None:
        """Call mmcv's method, which old subclasses override."""
        self.import_mlflow()

    def active_run(self) -> Any:
        """Return the store and the id of the active run."""
        active = self.mlflow.active_run()
        return active and (self.mlflow.get_tracking_uri(), active.info.run_id)

    def passed_run(self) -> Any:
        """Return the store and the id of the run that was passed."""
        run = self._client_run
        if is_lightning_logger(run):
            return run.experiment.tracking_uri, run.run_id
        return self.mlflow.get_tracking_uri(), run.info.run_id

    def modules(self, runner: Any) -> Sequence[str]:
        """Return the client's modules, with those of the store if it is a local file."""
        store = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.db.utils")
        return "mlflow", *(store if self._uses_file(runner) else ())

    def _uses_file(self, runner: Any) -> bool:
        """Whether the store is an sqlite file, since no other one is configured."""
        is_set = "mlflow" in sys.modules and self.mlflow.is_tracking_uri_set()
        return not (is_set or "MLFLOW_TRACKING_URI" in os.environ) and is_local(runner.work_dir)

    def target(self, runner: Any) -> dict[str, Any]:
        """Return an sqlite file in the work dir, unless another store is configured."""
        work_dir = runner.work_dir
        name = self.exp_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        target: dict[str, Any] = {"tags": {str(k): str(v) for k, v in self.tags.items()}}
        if self._uses_file(runner):
            folder = os.path.abspath(work_dir)
            os.makedirs(folder, exist_ok=True)
            target["uri"] = f"sqlite:///{folder}/mlflow.db"
            # without a location MLflow puts artifacts into the current folder
            target["artifacts"] = f"file://{folder}/mlartifacts"
            name = name or os.path.basename(folder) or "lightning_hooks"
        else:
            target["uri"] = self.mlflow.get_tracking_uri()
        return {**target, "experiment": name}

    def run_arguments(self, run: TrackedRun) -> dict[str, Any]:
        """Return the run's id, and the tag by which it is found without."""
        return {**run.opened, "label": run.key, "after": run.after}

    def parameters(self, runner: Any, own: bool) -> dict[str, Any]:
        """Return the module's hyper-parameters and ``params``."""
        return {**super().parameters(runner, own), **self.params}

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """Return the files of the model, for ``mlflow.pytorch.load_model``."""
        if not self.log_model:
            return []
        version = torch.__version__.split("+")[0]
        save = self.mlflow_pytorch.save_model
        options = {"pip_requirements": [f"torch=={version}"], "serialization_format": "pickle"}
        known = inspect.signature(save).parameters
        path = os.path.join(folder, "models")
        save(unwrap(runner.model), path, **{k: v for k, v in options.items() if k in known})
        written = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return [(file, os.path.relpath(file, folder)) for file in sorted(written)]
