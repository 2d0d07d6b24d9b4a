"""``TrainerFacade``: the ``trainner`` passed to pointrix's hooks."""

from __future__ import annotations

import os
from typing import Any

import torch

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.facade import Facade, optimizer_state, scalars_of
from lightning_hooks.dialects.pointrix.writers import NullWriter, TensorboardWriter
from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.storage.torch_files import save_torch, to_cpu

__all__ = ["TrainerFacade"]


class TrainerFacade(Facade):
    """The ``trainner`` passed to pointrix's hooks.

    ``HookAdapter(attributes=...)`` may set ``writer``, ``logger``, ``cfg``, ``gui`` and further
    attributes. By default ``writer`` writes to TensorBoard in ``exp_dir``, and ``logger`` logs
    lines and passes numbers and images to the ``writer``.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        super().__init__(runner, dialect)
        self._logged: dict[str, torch.Tensor] = {}
        self._seen: dict[str, torch.Tensor] = {}
        self._writer: Any = None
        self._step_shift = 0  # difference of an assigned `global_step` from the run's
        self._given_logger = self._user_attribute("given_logger")
        if self._given_logger is None and hasattr(runner.logger, "write_scalar"):
            self._given_logger = runner.logger
        self.metric_dict: dict[str, Any] = {}
        """The result of a validation step; after the validation, the logged values."""

    @property
    def global_step(self) -> int:
        """Number of the iteration, from 1; after an assignment, pointrix counts on from there.

        The length of the run stays.
        """
        return self.iter + 1 + self._step_shift

    @global_step.setter
    def global_step(self, value: int) -> None:
        self._step_shift = value - self.iter - 1

    @property
    def start_steps(self) -> int:
        """Number of the first iteration."""
        return 1

    @property
    def max_steps(self) -> Any:
        """Number of the last iteration; None if unknown."""
        return self._runner.max_iters

    @property
    def loss_dict(self) -> dict[str, Any]:
        """The step's ``loss``, the other returned scalars and the values logged in the step."""
        outputs = getattr(self._runner, "outputs", None) or {}
        return scalars_of({**outputs, **(outputs.get("log_vars") or {}), **self._logged})

    @property
    def exp_dir(self) -> str:
        """The directory of the run's files."""
        return str(self._runner.work_dir)

    @property
    def cfg(self) -> Any:
        """The config of ``HookAdapter(attributes=...)``; by default only the run's length."""
        return vars(self._runner).get("cfg", _DefaultConfig(self))

    @property
    def writer(self) -> Any:
        """The writer or logger of ``HookAdapter(attributes=...)``, else a TensorboardWriter."""
        for given in (self._user_attribute("writer"), self._given_logger):
            if given is not None:
                return given
        if self._writer is None:
            writer_class = TensorboardWriter if self._runner.rank == 0 else NullWriter
            self._writer = writer_class(self.exp_dir)
        return self._writer

    @property
    def val_dataset_size(self) -> int:
        """Number of validation steps."""
        batches = self._runner.trainer.num_val_batches
        return int(sum(batches if isinstance(batches, list) else [batches]))

    @property
    def logger(self) -> Any:
        """The logger of ``HookAdapter(attributes=...)``, else the default logger."""
        return _Logger(self) if self._given_logger is None else self._given_logger

    @logger.setter
    def logger(self, value: Any) -> None:
        self._given_logger = value

    def save_model(self, path: str | None = None, step: int | None = None) -> None:
        """Save the number of the step, the model and the optimizer in pointrix's format.

        Args:
            path: Path of the file; ``exp_dir/chkpnt{step}.pth`` by default.
            step: Number of the step; ``global_step`` by default.
        """
        if self._runner.rank != 0:
            return
        step = self.global_step if step is None else step
        state = {"optimizer": optimizer_state(self.optimizer), "model": self.model.state_dict()}
        state["global_step"] = step
        save_torch(to_cpu(state), path or os.path.join(self.exp_dir, f"chkpnt{step}.pth"))

    # -- events ----------------------------------------------------------------------------

    def at_before_train(self) -> None:
        """Call ``after_load_checkpoint`` of the hooks in a resumed run."""
        for hosted in self.hosted_hooks():
            if hosted.loaded_checkpoint is not None:
                hosted.call_with_checkpoint("after_load_checkpoint", hosted.loaded_checkpoint)
                hosted.loaded_checkpoint = None

    def at_after_train_iter(self) -> None:
        """Read the values logged in the step; after the last step, make Lightning validate."""
        trainer = self._runner.trainer
        self._logged = logged_values.step_metrics(trainer, self._seen)
        if self.max_steps is not None and self.iter + 1 >= self.max_steps:
            trainer.should_stop = True  # Lightning validates before a stop

    def at_after_val_iter(self) -> None:
        """Read the result of the step: numbers, images, names."""
        self.metric_dict = dict(self._runner.outputs)

    def at_after_val_epoch(self) -> None:
        """Read the results of the validation."""
        self.metric_dict = {**self._validation_results()}

    def end(self) -> None:
        """Close the default writer; a user's writer stays open."""
        if self._writer is not None:
            self._writer.close()
        super().end()


class _Logger:
    """pointrix's logger: lines go to the run's logger, ``write_*`` to the writer."""

    def __init__(self, trainer: TrainerFacade) -> None:
        self._trainer = trainer

    def __getattr__(self, name: str) -> Any:
        facade = self._trainer
        owner = facade.writer if name.startswith("write_") else facade._runner.logger
        return getattr(owner, name)


class _DefaultConfig(dict[str, Any]):
    """The default config, with the entries read by hooks."""

    def __init__(self, trainer: TrainerFacade) -> None:
        steps = trainer.max_steps
        super().__init__(max_steps=steps, save_step=steps, bar_upd_interval=10, enable_gui=False)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(
                f"the default config has no {name!r}: write HookAdapter(attributes=dict(cfg=...))"
            )
        return self[name]
