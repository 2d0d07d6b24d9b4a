"""``NamedValues``: the names and numbers under which loggers write."""

from __future__ import annotations

from typing import Any

from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.loggers import values
from lightning_hooks.loggers.tags import as_tags

__all__ = ["NamedValues", "in_fit", "is_of_no_step"]

_OF_NO_STEP = "train_epoch", "test"
"""Modes of a log that mmcv does not have; they belong to no step, and have no learning rate."""


class NamedValues(Hook):
    """The base of ``LoggerHook`` that numbers and names what is logged."""

    by_epoch: bool

    is_scalar = staticmethod(values.is_scalar)

    def get_mode(self, runner: Any) -> str:
        """``"train"`` if the output is an average of steps, else ``"val"``; or ``"test"``."""
        if runner.mode in ("val", "test"):
            return str(runner.mode)
        _check_mode(runner)
        buffer = runner.log_buffer
        if not buffer.output:  # old hooks ask before a line, and expect mmcv's answer
            return "val" if getattr(runner, "loops_itself", False) else "train"
        return "train" if buffer.averages else "val"

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1."""
        _check_mode(runner)
        if runner.mode == "train":
            return int(runner.epoch) + 1
        # mmcv has counted the epoch by now; within an epoch it is not counted yet
        trainer = getattr(runner, "trainer", None)
        if trainer is None or getattr(runner, "loops_itself", False):
            return int(runner.epoch)
        return int(trainer.current_epoch) + in_fit(runner)

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` its number in the epoch.

        For a validation it is that of the last training iteration, where there may be several in
        an epoch; else, as in mmcv, the next one or, in the epoch, the number of batches.
        """
        inner = self.by_epoch and inner_iter
        if runner.mode == "train_epoch" and inner:
            return progress.batch_idx(runner.trainer) + 1
        if runner.mode != "train" and (not self.by_epoch or _validates_within_epochs(runner)):
            return progress.batch_idx(runner.trainer) + 1 if inner else int(runner.iter)
        return int(runner.inner_iter if inner else runner.iter) + 1

    def get_step(self, runner: Any) -> int:
        """The iteration; the epoch for a validation at its end, if the run is counted in epochs."""
        at_end = not (runner.mode == "val" and _validates_within_epochs(runner))
        if self.by_epoch and at_end and self.get_mode(runner) in ("val", "test"):
            return self.get_epoch(runner)
        return self.get_iter(runner)

    def get_lr_tags(self, runner: Any) -> dict[str, float]:
        """``learning_rate`` of the first group; of each optimizer by name if there are several."""
        return as_tags("learning_rate", runner, runner.step_lr)

    def get_momentum_tags(self, runner: Any) -> dict[str, float]:
        """``momentum`` of the first group; of each optimizer by name if there are several."""
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
        ``learning_rate/<optimizer>``, ...      of each optimizer, if there are several
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
        if is_of_no_step(runner):
            return tags
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}


def _validates_within_epochs(runner: Any) -> bool:
    trainer = getattr(runner, "trainer", None)
    return trainer is not None and validation.validates_within_epochs(trainer)


def in_fit(runner: Any) -> bool:
    """Whether a fit is in progress, not a test or validation alone."""
    return bool(runner.trainer.state.fn == TrainerFn.FITTING)


def is_of_no_step(runner: Any) -> bool:
    """Whether what is logged belongs to no step, and so has no learning rate.

    Outside of a fit that is a validation too: its Trainer has no optimizer in a new process, and
    after a fit that had no step to train one that no hook has set.
    """
    alone = getattr(runner, "trainer", None) is not None and not in_fit(runner)
    return runner.mode in _OF_NO_STEP or (runner.mode == "val" and alone)


def _check_mode(runner: Any) -> None:
    if runner.mode not in ("train", "val", *_OF_NO_STEP):
        raise ValueError(f'runner.mode must be "train" or "val", got {runner.mode!r}')
