"""``NamedValues``: names, iterations and epochs of logged values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.loggers import values
from lightning_hooks.loggers.values import as_tags

__all__ = ["EPOCH_MODES", "EvaluatedFile", "NamedValues", "in_fit"]

EPOCH_MODES = "train_epoch", "test"
"""Modes without a step and without a learning rate, which mmcv does not have."""


class NamedValues(Hook):
    """The base of ``LoggerHook``: names and numbers logged values."""

    by_epoch: bool
    _evaluated: EvaluatedFile | None = None

    is_scalar = staticmethod(values.is_scalar)

    def get_mode(self, runner: Any) -> str:
        """``"train"`` if the output is an average of steps, else ``"val"``; or ``"test"``."""
        if runner.mode in ("val", "test"):
            return str(runner.mode)
        _check_mode(runner)
        buffer = runner.log_buffer
        if not buffer.output:  # old hooks ask before a line and expect mmcv's answer
            return "val" if getattr(runner, "loops_itself", False) else "train"
        return "train" if buffer.averages else "val"

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1."""
        _check_mode(runner)
        if runner.mode == "train":
            return int(runner.epoch) + 1
        if self._evaluated is not None and self._evaluated.epoch is not None:
            return self._evaluated.epoch
        # mmcv has counted the epoch by now; within an epoch it is not counted yet
        trainer = getattr(runner, "trainer", None)
        if trainer is None or getattr(runner, "loops_itself", False):
            return int(runner.epoch)
        return int(trainer.current_epoch) + in_fit(runner)

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` counted in the epoch.

        A validation within an epoch has the last training iteration. A validation at the end of
        an epoch has, as in mmcv, the next iteration or, in the epoch, the number of batches.
        """
        inner = self.by_epoch and inner_iter
        if runner.mode == "train_epoch" and inner:
            return progress.batch_idx(runner.trainer) + 1
        if runner.mode != "train" and (not self.by_epoch or _validates_within_epochs(runner)):
            return progress.batch_idx(runner.trainer) + 1 if inner else int(runner.iter)
        return int(runner.inner_iter if inner else runner.iter) + 1

    def get_step(self, runner: Any) -> int:
        """The iteration; by epoch, the epoch for a validation at the end of an epoch."""
        at_end = not (runner.mode == "val" and _validates_within_epochs(runner))
        if self.by_epoch and at_end and self.get_mode(runner) in ("val", "test"):
            return self.get_epoch(runner)
        return self.get_iter(runner)

    def get_lr_tags(self, runner: Any) -> dict[str, float]:
        """``learning_rate`` of the first group; with several optimizers of each, by name."""
        return as_tags("learning_rate", runner, runner.step_lr)

    def get_momentum_tags(self, runner: Any) -> dict[str, float]:
        """``momentum`` of the first group; with several optimizers of each, by name."""
        return as_tags("momentum", runner, runner.step_momentum)

    def get_loggable_tags(
        self,
        runner: Any,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ("time", "data_time"),
    ) -> dict[str, Any]:
        """Return the values to log by name.

        ======================================  =======================================
        key                                     value
        ======================================  =======================================
        ``train/<name>``, ``val/<name>``        each value of the output
        ``learning_rate``, ``momentum``         of the first group
        ``learning_rate/<optimizer>``, ...      with several optimizers
        ======================================  =======================================

        Args:
            runner: The runner.
            allow_scalar: Whether numbers are included.
            allow_text: Whether strings are included.
            add_mode: Whether names begin with the mode.
            tags_to_skip: Names to leave out.
        """
        prefix = f"{self.get_mode(runner)}/" if add_mode else ""
        tags = {}
        for name, value in runner.log_buffer.output.items():
            if name in tags_to_skip or name == "eval_iter_num":
                continue
            if not allow_scalar and self.is_scalar(value):
                continue
            if not allow_text and isinstance(value, str):
                continue
            tags[name if name.startswith(prefix) else prefix + name] = value
        if runner.mode in EPOCH_MODES or (runner.mode == "val" and not in_fit(runner)):
            return tags
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}


def _validates_within_epochs(runner: Any) -> bool:
    trainer = getattr(runner, "trainer", None)
    return trainer is not None and validation.validates_within_epochs(trainer)


def in_fit(runner: Any) -> bool:
    """Whether a fit is in progress, not a test or validation alone."""
    return bool(runner.trainer.state.fn == TrainerFn.FITTING)


def _check_mode(runner: Any) -> None:
    if runner.mode not in ("train", "val", *EPOCH_MODES):
        raise ValueError(f'runner.mode must be "train" or "val", got {runner.mode!r}')


class EvaluatedFile:
    """Remembers the epoch of the checkpoint loaded by ``validate`` or ``test``.

    Lightning's own count does not change: 0 in a new process, else the last fit's epoch.
    """

    epoch: int | None = None
    """The number of the epoch, from 1; None in a fit, and without an epoch in the file."""
    _patch: MethodPatch | None = None

    def watch(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Observe ``on_load_checkpoint`` of the module, except in a fit.

        Args:
            trainer: The Trainer, in ``setup``.
            module: The module.
        """
        self.forget()  # an error may have ended the last evaluation
        if trainer.state.fn != TrainerFn.FITTING:
            self._patch = MethodPatch(module, "on_load_checkpoint", self._load)

    def _load(self, checkpoint: Mapping[str, Any]) -> None:
        """Read mmcv's count, saved by every Trainer with hooks."""
        epoch = (checkpoint.get("meta") or {}).get("epoch")
        self.epoch = epoch if isinstance(epoch, int) else None

    def forget(self) -> None:
        """Restore the module: the evaluation is over."""
        if self._patch is not None:
            self._patch.remove()
        self._patch = self.epoch = None
