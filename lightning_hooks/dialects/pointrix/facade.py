"""``TrainerFacade``: a run as pointrix's hooks see it, as ``trainner``."""

from __future__ import annotations

import os
from typing import Any

import torch

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade, scalars_of
from lightning_hooks.dialects.pointrix.writers import NullWriter, TensorboardWriter
from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.storage.torch_files import save_torch

__all__ = ["TrainerFacade"]


class TrainerFacade(Facade):
    """A pointrix-style trainer.

    ``writer``, ``cfg``, ``gui`` and other attributes that hooks use may be given by
    ``HookAdapter(attributes=...)``; by default, ``writer`` writes to TensorBoard in ``exp_dir``.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._logged: dict[str, torch.Tensor] = {}
        self._seen: dict[str, torch.Tensor] = {}
        self._writer: Any = None
        self.metric_dict: dict[str, Any] = {}
        """The result of a validation step; after the validation, the logged values."""

    @property
    def global_step(self) -> int:
        """Number of the iteration, from 1."""
        return self.iter + 1

    @property
    def start_steps(self) -> int:
        """Number of the first iteration."""
        return 1

    @property
    def max_steps(self) -> Any:
        """Number of the last iteration; None if it is unknown."""
        return self._runner.max_iters

    @property
    def loss_dict(self) -> dict[str, Any]:
        """The step's ``loss``, its other scalars and the values logged in the step."""
        outputs = getattr(self._runner, "outputs", None) or {}
        return scalars_of({**outputs, **(outputs.get("log_vars") or {}), **self._logged})

    @property
    def exp_dir(self) -> str:
        """The directory of the run's files."""
        return str(self._runner.work_dir)

    @property
    def cfg(self) -> Any:
        """The config of ``HookAdapter(attributes=...)``, else one with the length of the run."""
        return vars(self._runner).get("cfg", _DefaultConfig(self))

    @property
    def writer(self) -> Any:
        """The writer of ``HookAdapter(attributes=...)``, else TensorBoard's."""
        writer = self._user_attribute("writer")
        if writer is not None:
            return writer
        if self._writer is None:
            writer_class = TensorboardWriter if self._runner.rank == 0 else NullWriter
            self._writer = writer_class(self.exp_dir)
        return self._writer

    @property
    def val_dataset_size(self) -> int:
        """Number of validation steps."""
        batches = self._runner.trainer.num_val_batches
        return int(sum(batches if isinstance(batches, list) else [batches]))

    def save_model(self, path: str | None = None) -> None:
        """Save the model's weights, to ``exp_dir/chkpnt{global_step}.pth`` by default."""
        if self._runner.rank == 0:
            path = path or os.path.join(self.exp_dir, f"chkpnt{self.global_step}.pth")
            save_torch(self.model.state_dict(), path)

    # -- events ----------------------------------------------------------------------------

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` of the hooks in a resumed run."""
        for hosted in self.hosted_hooks():
            if hosted.loaded_checkpoint is not None:
                hosted.call_with_checkpoint("after_load_checkpoint", hosted.loaded_checkpoint)
                hosted.loaded_checkpoint = None

    def at_after_train_iter(self) -> None:
        """Read the values logged in the step."""
        self._logged = logged_values.step_metrics(self._runner.trainer, self._seen)

    def at_after_val_iter(self) -> None:
        """Read the result of the step: numbers, images, names."""
        self.metric_dict = dict(self._runner.outputs)

    def at_after_val_epoch(self) -> None:
        """Read the results of the validation."""
        self.metric_dict = {**self._validation_results()}

    def end(self) -> None:
        """Close the writer, unless the user gave it."""
        if self._writer is not None:
            self._writer.close()
        super().end()


class _DefaultConfig(dict[str, Any]):
    """The config of a run without one: the entries that hooks read."""

    def __init__(self, trainer: TrainerFacade) -> None:
        steps = trainer.max_steps
        super().__init__(max_steps=steps, save_step=steps, bar_upd_interval=10, enable_gui=False)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(
                f"there is no config with {name!r}: give HookAdapter(attributes=dict(cfg=...))"
            )
        return self[name]
