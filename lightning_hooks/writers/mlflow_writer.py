"""``MlflowWriter``: a run in MLflow, in a file or on a server."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.files import inner_path
from lightning_hooks.writers.packages import environment
from lightning_hooks.writers.records import Record
from lightning_hooks.writers.writer import Writer

__all__ = ["MlflowWriter", "metric_key"]

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
