"""``MlflowLoggerHook``: numbers, parameters and the model to MLflow."""

from __future__ import annotations

import inspect
import os
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from lightning_hooks.files import is_local
from lightning_hooks.model import unwrap
from lightning_hooks.registry import HOOKS
from lightning_hooks.writers.tracker import Package, TrackerHook, environment, require

__all__ = ["MlflowLoggerHook", "MlflowWriter", "metric_key"]

# a dead server costs ten seconds then, not the client's own four minutes
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are those of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment; made if it does not exist. By default the configured one, or
            one named as the work dir.
        tags: Tags of the run.
        params: Parameters of the run.
        log_model: Whether the model is logged as the artifact ``models`` at the end.
        interval: Iterations between two logs.
        ignore_last: See ``LoggerHook``.
        reset_flag: See ``LoggerHook``.
        by_epoch: Whether the run is counted in epochs.

    Raises:
        ImportError: if mlflow is not installed.

    Source: mmcv's ``MlflowLoggerHook``.

    Note:
        Departures from mmcv: MLflow's global state is read, not changed. The run is closed at
        the end, as a failed one after an error; an active run of the program's own is used and
        left open. The model is logged without mmcv's wrapper. Characters that MLflow refuses in
        a key become ``_``.
    """

    package = "mlflow"
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
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch)
        self.import_mlflow()
        self.exp_name = exp_name
        self.tags = dict(tags or {})
        self.params = dict(params or {})
        self.log_model = log_model

    def import_mlflow(self) -> None:
        """Complain if mlflow is not installed; ``self.mlflow`` imports it when it is first read."""
        require("mlflow", type(self).__name__)

    def open_writer(self, runner: Any) -> MlflowWriter:
        """Create a run, or take the active one."""
        active = self.mlflow.active_run()
        uri = self._uri(runner.work_dir) if active is None else self.mlflow.get_tracking_uri()
        with environment(**_IMPATIENT):
            client = self.mlflow.MlflowClient(tracking_uri=uri)
            if active is not None:
                return MlflowWriter(client, active.info.run_id, owned=False)
            run = client.create_run(self._experiment(client, uri, runner.work_dir))
            return MlflowWriter(client, run.info.run_id, owned=True)

    def begin(self, runner: Any, writer: MlflowWriter) -> None:
        """Store tags and parameters."""
        with environment(**_IMPATIENT):
            writer.describe(self.tags, self.params)

    def _uri(self, work_dir: str) -> str | None:
        """Where to log to; None leaves it to what MLflow has configured."""
        configured = "MLFLOW_TRACKING_URI" in os.environ or self.mlflow.is_tracking_uri_set()
        if configured or not is_local(work_dir):
            return None
        os.makedirs(work_dir, exist_ok=True)
        return f"sqlite:///{os.path.abspath(work_dir)}/mlflow.db"

    def _experiment(self, client: Any, uri: str | None, work_dir: str) -> str:
        embedded = uri is not None
        name = self.exp_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        if name is None and not embedded:
            return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
        name = name or os.path.basename(os.path.abspath(work_dir)) or "lightning_hooks"
        found = client.get_experiment_by_name(name)
        if found is not None:
            return str(found.experiment_id)
        # without a location MLflow puts artifacts into the current folder
        location = f"file://{os.path.abspath(work_dir)}/mlartifacts" if embedded else None
        return str(client.create_experiment(name, artifact_location=location))

    def finish(self, runner: Any, writer: MlflowWriter) -> None:
        """Log the model."""
        if not self.log_model:
            return
        version = torch.__version__.split("+")[0]
        save = self.mlflow_pytorch.save_model
        how = {"pip_requirements": [f"torch=={version}"], "serialization_format": "pickle"}
        known = inspect.signature(save).parameters
        with tempfile.TemporaryDirectory() as folder, environment(**_IMPATIENT):
            path = os.path.join(folder, "models")
            save(unwrap(runner.model), path, **{k: v for k, v in how.items() if k in known})
            writer.client.log_artifacts(writer.run_id, path, artifact_path="models")


class MlflowWriter:
    """A run in MLflow; the same numbers sent twice are stored once.

    Args:
        client: An ``MlflowClient``.
        run_id: The run.
        owned: Whether it is ours to end.
    """

    def __init__(self, client: Any, run_id: str, *, owned: bool) -> None:
        self.client = client
        self.run_id = run_id
        self._owned = owned

    def describe(self, tags: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        """Store tags and parameters as text, as MLflow does."""
        from mlflow.entities import Param, RunTag

        entries = {"tags": (RunTag, tags), "params": (Param, params)}
        for kind, (entity, values) in entries.items():
            found = [entity(metric_key(str(name)), str(value)) for name, value in values.items()]
            for start in range(0, len(found), 100):  # as many as MLflow takes at once
                self.client.log_batch(self.run_id, **{kind: found[start : start + 100]})

    def log(self, metrics: Mapping[str, float], step: int, seconds: float) -> None:
        """Store numbers in one batch."""
        from mlflow.entities import Metric

        stamp = int(seconds * 1000)
        batch = [Metric(metric_key(name), value, stamp, step) for name, value in metrics.items()]
        with environment(**_IMPATIENT):
            self.client.log_batch(self.run_id, metrics=batch)

    def close(self, failed: bool = False) -> None:
        """Set the run's status if it is ours."""
        if self._owned:
            with environment(**_IMPATIENT):
                self.client.set_terminated(self.run_id, status="FAILED" if failed else "FINISHED")


def metric_key(name: str) -> str:
    """Return a key that MLflow takes: the characters that it knows, 250 at most.

    >>> metric_key("val/AP@50")
    'val/AP_50'
    """
    return re.sub(r"[^\w/. :-]", "_", name, flags=re.ASCII)[:250]
