"""Log checkpoints and other files to W&B, as versions of artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.uploads.upload import Upload

__all__ = ["WandbArtifacts"]


class WandbArtifacts(Writer):
    """A writer for a run of W&B's that logs artifacts; one holds the versions of the checkpoint."""

    @property
    def _checkpoint(self) -> str:
        return f"checkpoint-{self.run.id}"

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Log files as the artifact ``artifacts``."""
        self.run.log_artifact(_artifact("artifacts", files))

    def send_checkpoint(self, name: str, upload: Upload, step: int) -> None:
        """Log a version, found by its file's name and its aliases; online, wait for it."""
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


def _artifact(
    name: str, files: Sequence[tuple[str, str]], metadata: dict[str, Any] | None = None
) -> Any:
    """Return an artifact of the type model, with copies of the files, which may be deleted."""
    import wandb

    artifact = wandb.Artifact(name=name, type="model", metadata=metadata)
    for path, inner in files:
        artifact.add_file(path, name=inner)
    return artifact
