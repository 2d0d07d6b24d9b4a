"""``MlflowLoggerHook``: numbers, parameters and the model to MLflow.

``MlflowWriter``: a run in MLflow, in a file or on a server.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.loggers.trackers.inputs import is_lightning_logger
from lightning_hooks.loggers.trackers.packages import Package, environment, require
from lightning_hooks.storage.files import inner_path, is_local
from lightning_hooks.utils.arguments import check_bool, check_dict

__all__ = ["MlflowLoggerHook", "MlflowWriter", "metric_key"]

# a dead server costs ten seconds then, not the client's own four minutes
_IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1", "MLFLOW_HTTP_REQUEST_TIMEOUT": "5"}
_AT_ONCE = 1000, 100  # metrics, parameters: as many as a server takes


class MlflowWriter(Writer):
    """A run in MLflow; the same numbers sent twice are stored once.

    Args:
        client: An ``MlflowClient``.
        run_id: The run.
        owned: Whether it is ours to end.
    """

    name = "mlflow"
    batch = 256

    def __init__(self, client: Any, run_id: str, *, owned: bool) -> None:
        self.client = client
        self.run = self.run_id = run_id
        self._owned = owned

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
    ) -> MlflowWriter:
        """Create a run, or take one that there is.

        Args:
            run: The store and the id of a run that is there already.
            uri: The store.
            experiment: The experiment, which is made if it does not exist; MLflow's own default
                if None.
            artifacts: Where a new experiment keeps files.
            tags: Tags of the run.
            run_id: A run of ours to go on with.
        """
        from mlflow import MlflowClient

        with environment(**_IMPATIENT):
            client = MlflowClient(tracking_uri=uri if run is None else run[0])
            found = run_id if run is None else run[1]
            if found is not None:
                for name, value in (tags or {}).items():
                    client.set_tag(found, name, value)
                return cls(client, found, owned=run is None)
            number = _experiment(client, experiment, artifacts)
            made = client.create_run(number, tags=dict(tags or {}))
            return cls(client, made.info.run_id, owned=True)

    def write(self, records: Sequence[Record]) -> None:
        """Store numbers in few batches: a server takes as long for one as for a thousand."""
        from mlflow.entities import Metric

        metrics = [
            Metric(metric_key(name), value, int(record.time * 1000), record.step)
            for record in records
            for name, value in record.scalars.items()
        ]
        most = _AT_ONCE[0]
        with environment(**_IMPATIENT):
            for record in records:
                if record.params:
                    self.params(record.params)
            for start in range(0, len(metrics), most):
                self.client.log_batch(self.run_id, metrics=metrics[start : start + most])
            for record in records:
                for name, image in record.images.items():  # again under the same name
                    file = f"images/{metric_key(name)}/{record.step}.png"
                    self.client.log_image(self.run_id, image.transpose(1, 2, 0), file)

    def params(self, params: Mapping[str, Any]) -> None:
        """Store parameters as text, as MLflow does."""
        from mlflow.entities import Param

        found = [Param(metric_key(str(name)), str(value)) for name, value in params.items()]
        most = _AT_ONCE[1]
        for start in range(0, len(found), most):
            self.client.log_batch(self.run_id, params=found[start : start + most])

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files as artifacts."""
        with environment(**_IMPATIENT):
            for path, name in files:
                self.client.log_artifact(self.run_id, path, os.path.dirname(name) or None)

    def close(self, failed: bool = False) -> None:
        """Set the run's status if it is ours."""
        if self._owned:
            with environment(**_IMPATIENT):
                self.client.set_terminated(self.run_id, status="FAILED" if failed else "FINISHED")

    def resume(self) -> dict[str, Any]:
        """The run's id."""
        return {"run_id": self.run_id}

    @staticmethod
    def hopeless(error: Exception) -> bool:
        """What a server refuses is refused again; what it did not answer may pass."""
        from mlflow.exceptions import MlflowException

        if isinstance(error, MlflowException):
            status = int(error.get_http_status_code())  # type: ignore[no-untyped-call]
            return 400 <= status < 500 and status not in (408, 429)
        return Writer.hopeless(error)


def _experiment(client: Any, name: str | None, artifacts: str | None) -> str:
    if name is None:
        return os.environ.get("MLFLOW_EXPERIMENT_ID", "0")
    found = client.get_experiment_by_name(name)
    if found is None:
        return str(client.create_experiment(name, artifact_location=artifacts))
    return str(found.experiment_id)


def metric_key(name: str) -> str:
    """Return a key that MLflow takes: the characters that it knows, 250 at most, no way out.

    >>> metric_key("val/AP@50")
    'val/AP_50'
    """
    return re.sub(r"[^\w/. :-]", "_", inner_path(name), flags=re.ASCII)[:250]


@HOOKS.register_module()
class MlflowLoggerHook(TrackerHook):
    """Logs to MLflow: in ``{work_dir}/mlflow.db``, unless a tracking URI is configured.

    The keys are those of ``get_loggable_tags``. ``mlflow ui --backend-store-uri
    sqlite:///{work_dir}/mlflow.db`` shows the run. Artifacts are in ``{work_dir}/mlartifacts``.

    Args:
        exp_name: The experiment; made if it does not exist. By default the configured one, or
            one named as the work dir.
        tags: Tags of the run.
        params: Parameters of the run, beside the module's hyper-parameters.
        log_model: Whether the model is logged as the artifact ``models`` at the end.
        interval: Iterations between two logs.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten afterwards; in a run the last logger's are.
        by_epoch: Whether the run is counted in epochs.
        options: See ``TrackerHook``; ``run`` is MLflow's run or a Lightning ``MLFlowLogger``, to be
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
    run_has = "info"
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
        self.import_mlflow()
        if not (exp_name is None or isinstance(exp_name, str)):
            raise TypeError(f"exp_name must be a str or None, got {exp_name!r}")
        check_bool(log_model=log_model)
        self.exp_name = exp_name
        self.tags = check_dict("tags", tags) or {}
        self.params = check_dict("params", params) or {}
        self.log_model = log_model

    def import_mlflow(self) -> None:
        """Complain if mlflow is not installed; ``self.mlflow`` imports it when it is first read."""
        require("mlflow", type(self).__name__)

    def running(self) -> Any:
        """The active run, with the store that it is in."""
        active = self.mlflow.active_run()
        return active and (self.mlflow.get_tracking_uri(), active.info.run_id)

    def existing(self) -> Any:
        """The given run, with the store that it is in."""
        run = self._client_run
        if is_lightning_logger(run):
            return run.experiment.tracking_uri, run.run_id
        return self.mlflow.get_tracking_uri(), run.info.run_id

    def modules(self, runner: Any) -> Sequence[str]:
        """The store, where the client is one itself."""
        store = ("mlflow.store.tracking.sqlalchemy_store", "mlflow.store.db.utils")
        return "mlflow", *(store if self._embedded(runner) else ())

    def _embedded(self, runner: Any) -> bool:
        """Whether nothing is configured, and an sqlite file is the store."""
        told = "mlflow" in sys.modules and self.mlflow.is_tracking_uri_set()
        return not (told or "MLFLOW_TRACKING_URI" in os.environ) and is_local(runner.work_dir)

    def target(self, runner: Any) -> dict[str, Any]:
        """An sqlite file in the work dir, unless something else is configured."""
        work_dir = runner.work_dir
        name = self.exp_name or os.environ.get("MLFLOW_EXPERIMENT_NAME")
        target: dict[str, Any] = {"tags": {str(k): str(v) for k, v in self.tags.items()}}
        if self._embedded(runner):
            folder = os.path.abspath(work_dir)
            os.makedirs(folder, exist_ok=True)
            target["uri"] = f"sqlite:///{folder}/mlflow.db"
            # without a location MLflow puts artifacts into the current folder
            target["artifacts"] = f"file://{folder}/mlartifacts"
            name = name or os.path.basename(folder) or "lightning_hooks"
        else:
            target["uri"] = self.mlflow.get_tracking_uri()
        return {**target, "experiment": name}

    def parameters(self, runner: Any, own: bool) -> dict[str, Any]:
        """The module's hyper-parameters and those given."""
        return {**super().parameters(runner, own), **self.params}

    def files(self, runner: Any, folder: str) -> list[tuple[str, str]]:
        """The model, in the files of MLflow's that ``mlflow.pytorch.load_model`` reads."""
        if not self.log_model:
            return []
        version = torch.__version__.split("+")[0]
        save = self.mlflow_pytorch.save_model
        how = {"pip_requirements": [f"torch=={version}"], "serialization_format": "pickle"}
        known = inspect.signature(save).parameters
        path = os.path.join(folder, "models")
        save(unwrap(runner.model), path, **{k: v for k, v in how.items() if k in known})
        made = [os.path.join(at, name) for at, _, names in os.walk(path) for name in names]
        return [(file, os.path.relpath(file, folder)) for file in sorted(made)]
