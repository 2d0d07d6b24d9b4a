"""Store checkpoints and other files as artifacts of a run in MLflow."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from typing import Any

from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.packages import environment
from lightning_hooks.loggers.uploads.upload import Upload

__all__ = ["SHORT_WAITS", "MlflowArtifacts"]

# a dead server costs ten seconds then, not the client's own four minutes; and none of the
# training's random numbers, from which a jitter would be drawn
SHORT_WAITS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0",
}

_FOLDER = "checkpoints"
_SECONDS_PER_BYTE = 1e-6  # in which a server answers that has stored a file


class MlflowArtifacts(Writer):
    """A writer for a run in MLflow that stores files; ``client`` is an ``MlflowClient``."""

    client: Any

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Store files as artifacts."""
        with environment(**SHORT_WAITS):
            for path, name in files:
                self.client.log_artifact(self.run, path, os.path.dirname(name) or None)

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Store a file in ``checkpoints``; the tags ``checkpoint.best`` ... have its path."""
        seconds = str(5 + int(upload.size * _SECONDS_PER_BYTE))
        with environment(**{**SHORT_WAITS, "MLFLOW_HTTP_REQUEST_TIMEOUT": seconds}):
            self.client.log_artifact(self.run, upload.checked(), _FOLDER)
            for alias in upload.aliases:
                self.client.set_tag(self.run, f"checkpoint.{alias}", f"{_FOLDER}/{name}")

    def delete_checkpoint(self, name: str) -> None:
        """Delete a file in ``checkpoints``."""
        from mlflow.store.artifact import artifact_repository_registry as registry

        find: Any = registry.get_artifact_repository
        with environment(**SHORT_WAITS):
            options = {}
            if "tracking_uri" in inspect.signature(find).parameters:
                options["tracking_uri"] = self.client.tracking_uri
            location = self.client.get_run(self.run).info.artifact_uri
            find(location, **options).delete_artifacts(f"{_FOLDER}/{name}")
