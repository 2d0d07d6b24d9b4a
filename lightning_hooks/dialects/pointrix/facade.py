"""What pointrix's hooks see of a run, as ``trainner``."""

from __future__ import annotations

import os
from typing import Any

import torch

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade
from lightning_hooks.dialects.pointrix.writers import Nowhere, TensorboardWriter
from lightning_hooks.engine.lightning_api import logged_values, validation
from lightning_hooks.storage.torch_files import save_torch

__all__ = ["TrainerFacade"]


class TrainerFacade(Facade):
    """A pointrix-style trainer.

    ``writer``, ``cfg``, ``gui`` and whatever else hooks look for may be given by
    ``HookAdapter(attributes=...)``; ``writer`` is TensorBoard's in ``exp_dir`` otherwise.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._logged: dict[str, torch.Tensor] = {}
        self._seen: dict[str, torch.Tensor] = {}
        self._writer: Any = None
        self.metric_dict: dict[str, Any] = {}
        """What a validation step returned; after the validation, what was logged in it."""

    @property
    def global_step(self) -> int:
        """The iteration, from 1."""
        return self.iter + 1

    @property
    def start_steps(self) -> int:
        """The first iteration of a run."""
        return 1

    @property
    def max_steps(self) -> Any:
        """The last iteration, None where nobody knows."""
        return self._runner.max_iters

    @property
    def loss_dict(self) -> dict[str, Any]:
        """The step's ``loss``, its other scalars and what the module has logged for the step."""
        outputs = getattr(self._runner, "outputs", None) or {}
        found = {**outputs, **(outputs.get("log_vars") or {}), **self._logged}
        return {
            name: value.detach().as_subclass(torch.Tensor)
            if isinstance(value, torch.Tensor)
            else value
            for name, value in found.items()
            if isinstance(value, (int, float))
            or (isinstance(value, torch.Tensor) and value.numel() == 1)
        }

    @property
    def exp_dir(self) -> str:
        """Where the run writes."""
        return str(self._runner.work_dir)

    @property
    def cfg(self) -> Any:
        """The config given by ``HookAdapter(attributes=...)``; else the run's length is in it."""
        return self._runner.__dict__.get("cfg", _Config(self))

    @property
    def writer(self) -> Any:
        """The writer given by ``HookAdapter(attributes=...)``; TensorBoard's otherwise."""
        given = self._runner.__dict__.get("writer")
        if given is not None:
            return given
        if self._writer is None:
            first = self._runner.rank == 0
            self._writer = TensorboardWriter(self.exp_dir) if first else Nowhere(self.exp_dir)
        return self._writer

    @property
    def val_dataset_size(self) -> int:
        """Validation steps of a pass."""
        batches = self._runner.trainer.num_val_batches
        return int(sum(batches if isinstance(batches, list) else [batches]))

    def save_model(self, path: str | None = None) -> None:
        """Write the model's weights, into ``exp_dir/chkpnt{global_step}.pth`` by default."""
        if self._runner.rank == 0:
            path = path or os.path.join(self.exp_dir, f"chkpnt{self.global_step}.pth")
            save_torch(self.model.state_dict(), path)

    # -- on the way ------------------------------------------------------------------------

    def at_before_train(self) -> None:
        """Tell the hooks of a checkpoint that the run goes on from."""
        for hosted in self.hosted_hooks():
            if hosted.loaded_checkpoint is not None:
                hosted.call_with_checkpoint("after_load_checkpoint", hosted.loaded_checkpoint)
                hosted.loaded_checkpoint = None

    def at_after_train_iter(self) -> None:
        """Note what the module has logged for the step."""
        self._logged = logged_values.step_metrics(self._runner.trainer, self._seen)

    def at_after_val_iter(self) -> None:
        """Take what the step returned: numbers, images, names."""
        self.metric_dict = dict(self._runner.outputs)

    def at_after_val_epoch(self) -> None:
        """Read what the validation has found."""
        metrics = validation.val_metrics(self._runner.trainer)
        self.metric_dict = {name: value.item() for name, value in metrics.items()}

    def end(self) -> None:
        """Close the writer, if it is ours."""
        if self._writer is not None:
            self._writer.close()
        super().end()


class _Config(dict[str, Any]):
    """What hooks read of a config, where none is given."""

    def __init__(self, trainer: TrainerFacade) -> None:
        steps = trainer.max_steps
        super().__init__(max_steps=steps, save_step=steps, bar_upd_interval=10, enable_gui=False)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(
                f"there is no config with {name!r}: give HookAdapter(attributes=dict(cfg=...))"
            )
        return self[name]
