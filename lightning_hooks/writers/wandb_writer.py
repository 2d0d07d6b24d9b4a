"""``WandbWriter``: a run in Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.files import inner_path
from lightning_hooks.writers.records import Record
from lightning_hooks.writers.writer import Writer

__all__ = ["WandbWriter"]


class WandbWriter(Writer):
    """A run in W&B.

    Args:
        run: The client's run.
        owned: Whether it is ours to number its steps and to finish it.
        with_step: Whether the iteration is W&B's step.
        commit: Whether a log without step ends one of W&B's.
    """

    name = "wandb"

    def __init__(self, run: Any, owned: bool, *, with_step: bool = True, commit: bool = True):
        self.run = run
        self._owned = owned
        self._with_step = with_step and owned
        self._commit = commit
        self._on_axis: set[str] = set()

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
    ) -> WandbWriter:
        """Start a run, or take the one that there is.

        Args:
            run: A run that is there already.
            init: Arguments of ``wandb.init``; the settings as a dict.
            with_step: Whether the iteration is W&B's step.
            commit: Whether a log without step ends one of W&B's.
            summaries: How metrics are summarised.
            run_id: The run to go on with.
        """
        import wandb

        owned = run is None
        if owned:
            arguments = dict(init or {})
            arguments["settings"] = wandb.Settings(**arguments.get("settings", {}))
            if run_id is not None:
                arguments.update(id=run_id, resume="allow")
            run = wandb.init(**arguments)
        for metric, summary in (summaries or {}).items():
            run.define_metric(metric, summary=summary)
        return cls(run, owned, with_step=with_step, commit=commit)

    def log(self, record: Record) -> None:
        """Log a row, or what there is of it so far."""
        row: dict[str, Any] = {**record.scalars, **record.texts}
        if record.images:
            from wandb import Image

            # [H, W, C], or [H, W] in grey
            for name, image in record.images.items():  # each in a file of that name
                row[inner_path(name)] = Image(image.transpose(1, 2, 0).squeeze())
        if self._with_step:
            self.run.log(row, step=record.step)
            return
        for name in row.keys() - self._on_axis:
            self.run.define_metric(name, step_metric="global_step")
            self._on_axis.add(name)
        self.run.log({**row, "global_step": record.step}, commit=self._commit)

    def params(self, params: Mapping[str, Any]) -> None:
        """Add to the config; what is there already stays."""
        known = dict(self.run.config)
        self.run.config.update({k: v for k, v in params.items() if k not in known})

    def send_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Log files as the artifact ``artifacts``."""
        import wandb

        artifact = wandb.Artifact(name="artifacts", type="model")
        for path, name in files:
            artifact.add_file(path, name=name)
        self.run.log_artifact(artifact)

    def close(self, failed: bool = False) -> None:
        """Finish the run if it is ours."""
        if self._owned:
            self.run.finish(exit_code=1 if failed else 0)

    def resume(self) -> dict[str, Any]:
        """The run's id."""
        return {"run_id": self.run.id}

    @staticmethod
    def hopeless(error: Exception) -> bool:
        """Wrong use and wrong keys stay so; what the network does may pass."""
        import wandb

        wrong = (wandb.errors.UsageError, wandb.errors.AuthenticationError)
        return isinstance(error, wrong) or Writer.hopeless(error)

    @staticmethod
    def let_go() -> None:
        """End W&B's service: the process, when it ends, would wait for as long as that tries."""
        import wandb

        if wandb.run is None:  # else somebody uses it
            wandb.teardown()
