"""``LoggerHook``: when the values of a run are averaged and logged, and under which names."""

from __future__ import annotations

from typing import Any

from lightning_hooks.engine.hook import Hook
from lightning_hooks.loggers.log_tags import is_scalar, named, of_first_group
from lightning_hooks.utils.arguments import check_bool, check_int

__all__ = ["LoggerHook"]


class LoggerHook(Hook):
    """The base of hooks that log: it calls ``log(runner)`` with averages ready.

    Every ``interval`` iterations the last ``interval`` values of each key are averaged into
    ``runner.log_buffer.output``; after validation all of its values are. What another hook puts
    there (results of an evaluation) is logged as it is.

    Args:
        interval: Iterations between two logs, of the epoch or, with ``by_epoch=False``, of the
            run; 0 for none within the epoch.
        ignore_last: Whether an epoch's last iterations go unlogged when they are fewer than
            ``interval``.
        reset_flag: Whether the averages are forgotten after this hook has logged them. In a run
            that is so for the last logger, and for no other, whatever is given.
        by_epoch: Whether the run is counted in epochs.

    Raises:
        TypeError: if ``interval`` is not an integer.
        ValueError: if ``interval`` is negative.

    Source: mmcv's ``LoggerHook``.

    Note:
        Departures from mmcv: a run without ``IterTimerHook`` logs its training values as
        ``train`` (mmcv: ``val``). Validation within an epoch is logged with the number of that
        epoch, and what it measured is not averaged into the training that goes on. Only the
        last logger forgets the averages, so that all see an evaluation's results; nothing in
        ``reset_flag`` is changed for a next run. ``eval_iter_num`` is no tag. A name that has
        the mode in front already (``val/acc``) is not given it again. 0-d tensors are scalars
        (mmcv raises TypeError). A run without optimizer has no learning rate to log (mmcv
        raises).
    """

    _reset_wanted = False
    _is_last: bool | None = None

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
    ) -> None:
        super().__init__()
        check_int("interval", interval, 0)
        check_bool(ignore_last=ignore_last, reset_flag=reset_flag, by_epoch=by_epoch)
        self.interval = interval
        self.ignore_last = ignore_last
        self.reset_flag = reset_flag
        self.by_epoch = by_epoch

    @property
    def reset_flag(self) -> bool:
        """Whether the averages are forgotten after this hook; within a run: if it is the last."""
        return self._reset_wanted if self._is_last is None else self._is_last

    @reset_flag.setter
    def reset_flag(self, value: bool) -> None:
        self._reset_wanted = value

    reads_step = False
    reads_log_buffer = True

    def log(self, runner: Any) -> Any:
        """Log what is in ``runner.log_buffer.output``."""
        raise NotImplementedError(f"{type(self).__name__} must define log(runner)")

    # -- when ------------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Find the last logger."""
        loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
        for hook in loggers:
            hook._is_last = hook is loggers[-1]

    def before_epoch(self, runner: Any) -> None:
        """Forget the epoch before."""
        runner.log_buffer.clear()

    def after_train_iter(self, runner: Any) -> None:
        """Average and log every ``interval`` iterations."""
        every_n = self.every_n_inner_iters if self.by_epoch else self.every_n_iters
        if every_n(runner, self.interval) or (not self.ignore_last and self.end_of_epoch(runner)):
            runner.log_buffer.average(self.interval)
        if runner.log_buffer.ready:
            self._log_output(runner)

    def after_train_epoch(self, runner: Any) -> None:
        """Log what others have put there."""
        if runner.log_buffer.ready:
            self._log_output(runner)

    def after_val_epoch(self, runner: Any) -> None:
        """Average and log the validation."""
        runner.log_buffer.average()
        self.log(runner)
        if self.reset_flag and runner.fills_log_buffer:
            runner.log_buffer.clear_output()  # the workflow's next epoch forgets the rest
        elif self.reset_flag:
            runner.log_buffer.clear()

    def _log_output(self, runner: Any) -> None:
        self.log(runner)
        if self.reset_flag:
            runner.log_buffer.clear_output()

    # -- what ------------------------------------------------------------------------------

    is_scalar = staticmethod(is_scalar)

    def get_mode(self, runner: Any) -> str:
        """``"train"`` if the output is an average of training steps, else ``"val"``."""
        if runner.mode == "val":
            return "val"
        if runner.mode != "train":
            raise ValueError(f'runner.mode should be "train" or "val", got {runner.mode!r}')
        output, steps = runner.log_buffer.output, runner.log_buffer.val_history
        if "time" in steps:  # the steps are timed, so their averages have it
            return "train" if "time" in output else "val"
        return "train" if "time" in output or output.keys() <= steps.keys() else "val"

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1."""
        if runner.mode == "train":
            return int(runner.epoch) + 1
        if runner.mode == "val":
            # mmcv has counted the epoch by now; within one, it is still to be counted
            trainer = getattr(runner, "trainer", None)
            return int(runner.epoch if trainer is None else trainer.current_epoch + 1)
        raise ValueError(f'runner.mode should be "train" or "val", got {runner.mode!r}')

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; of that in the epoch with ``inner_iter``."""
        if runner.mode == "val" and not self.by_epoch:
            return int(runner.iter)  # the validation comes after the iteration that it belongs to
        inner = self.by_epoch and inner_iter
        return int(runner.inner_iter if inner else runner.iter) + 1

    def get_step(self, runner: Any) -> int:
        """The epoch for validation when the run is counted in epochs, else the iteration."""
        if self.get_mode(runner) == "val" and self.by_epoch:
            return self.get_epoch(runner)
        return self.get_iter(runner)

    def get_lr_tags(self, runner: Any) -> dict[str, float]:
        """``learning_rate`` of the first group; of each optimizer by name if there are several."""
        return named("learning_rate", of_first_group(runner, runner.current_lr))

    def get_momentum_tags(self, runner: Any) -> dict[str, float]:
        """``momentum`` of the first group; of each optimizer by name if there are several."""
        return named("momentum", of_first_group(runner, runner.current_momentum))

    def get_loggable_tags(
        self,
        runner: Any,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ("time", "data_time"),
    ) -> dict[str, Any]:
        """Return what is to be logged by name.

        ======================================  ==============================================
        key                                     value
        ======================================  ==============================================
        ``train/<name>``, ``val/<name>``        what is in the output
        ``learning_rate``, ``momentum``         of the first group
        ``learning_rate/<optimizer>``, ...      of each optimizer, if there are several
        ======================================  ==============================================

        Args:
            runner: The runner.
            allow_scalar: Whether numbers are wanted.
            allow_text: Whether strings are wanted.
            add_mode: Whether the mode goes in front of the name.
            tags_to_skip: Names that are left out.
        """
        prefix = f"{self.get_mode(runner)}/" if add_mode else ""
        tags = {}
        for name, value in runner.log_buffer.output.items():
            if name in tags_to_skip or name == "eval_iter_num":
                continue
            if self.is_scalar(value) and not allow_scalar:
                continue
            if isinstance(value, str) and not allow_text:
                continue
            tags[name if name.startswith(prefix) else prefix + name] = value
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}
