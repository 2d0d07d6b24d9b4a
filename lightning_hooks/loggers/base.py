"""``LoggerHook``: the base of all loggers, which averages values and names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.loggers import values
from lightning_hooks.loggers.tags import as_tags
from lightning_hooks.utils.arguments import check_bool, check_int

__all__ = ["LoggerHook"]


class LoggerHook(Hook):
    """The base of hooks that log: it calls ``log(runner)`` with a line's values as the output.

    A line at iteration ``t`` averages the values of the iterations ``t - interval + 1`` to ``t``,
    whatever the intervals of other loggers; a key without values there is absent. A validation is
    a line of its own with the averages over its batches. What other hooks put into
    ``runner.log_buffer.output``, such as the results of an evaluation, is logged unchanged, once by
    each logger: at once if they set ``log_buffer.ready``, else in its next line. Learning rate and
    momentum are those of the iteration's step. ``loss`` and the same tensor that the module logs
    under a name of its own are one value, ``loss``.

    Args:
        interval: Iterations between two lines, counted in the epoch or, with ``by_epoch=False``,
            in the run; 0 logs nothing within the epoch.
        ignore_last: Whether the last iterations of an epoch are not logged when they are fewer
            than ``interval``; if the epoch has no other line, they are.
        reset_flag: Whether the output is cleared after this hook has logged it. A run sets
            it: true for its last logger and false for all others.
        by_epoch: Whether the run is counted in epochs.

    Raises:
        TypeError: if ``interval`` is not an integer.
        ValueError: if ``interval`` is negative.

    Source: mmcv's ``LoggerHook``.

    Note:
        Departures from mmcv: a line averages the values of its iterations (mmcv: the last
        ``interval`` values of each key, also where some iterations have none), and each logger
        has its own interval (in mmcv each logs whenever one does). An epoch, or a run by iteration,
        that is shorter than the interval has one line, at its end. By iteration a window reaches
        back into the epoch before. A run without ``IterTimerHook`` logs its training values as
        ``train`` (mmcv: ``val``). A validation has a log buffer of its own: nothing of it is
        averaged into the training, nor the other way round. Where the Trainer validates within
        epochs, the line of a validation has the epoch and the training iteration at which it ran;
        so has an evaluation by a hook within an epoch (mmcv: the number of its batches). Only the
        last logger clears the output, so that all see an evaluation's results; a next run sets
        ``reset_flag`` anew. ``eval_iter_num`` is no tag. A name that begins with the mode already
        (``val/acc``) does not get it again. 0-d tensors are scalars (mmcv raises TypeError). A run
        without optimizer has no learning rate to log (mmcv raises).
    """

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

    reads_step = False
    reads_log_buffer = True

    transient: tuple[str, ...] = ()
    """Attributes of a run, which are not pickled."""

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files or to a tracker, as loggers do."""
        return True

    # of a run
    _others: Sequence[LoggerHook] = ()
    _results: Mapping[str, Any] = MappingProxyType({})  # of other hooks, not logged yet
    _line_at: int | None = None  # the iteration of the last line

    def __getstate__(self) -> dict[str, Any]:
        left_out = (*self.transient, "_others", "_results", "_line_at")
        return {name: v for name, v in super().__getstate__().items() if name not in left_out}

    def log(self, runner: Any) -> Any:
        """Log the values of ``runner.log_buffer.output``."""
        raise NotImplementedError(f"{type(self).__name__} must define log(runner)")

    # -- schedule --------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Let the last logger of the run clear the output, and no other."""
        loggers = [hook for hook in runner.hooks if is_family(hook, "LoggerHook")]
        for hook in loggers:
            hook.reset_flag = hook is loggers[-1]
        self._others = [hook for hook in loggers if isinstance(hook, LoggerHook)]
        self._results, self._line_at = {}, None

    def before_epoch(self, runner: Any) -> None:
        """Forget the values of the epoch before, but for windows that reach back into it."""
        self._forget_epoch(runner.log_buffer)

    def after_train_iter(self, runner: Any) -> None:
        """Log the averages of the last iterations every ``interval`` iterations."""
        buffer = runner.log_buffer
        done = (runner.inner_iter if self.by_epoch else runner.iter) + 1
        length = self.interval if self.interval > 0 and done % self.interval == 0 else 0
        if not self.ignore_last and not length and self.end_of_epoch(runner):
            length = min(done, self.interval or done)
        if buffer.output:
            # an evaluation inside an epoch is logged with its iteration, not its number of batches
            self._take_results(buffer, leave_out="eval_iter_num")
        now = buffer.progress.completed
        if length and self._line_at != now:  # an evaluation by a hook has it logged before
            self._line_at = now
            averages, results, self._results = buffer.window(length), self._results, {}
            with buffer.showing(averages, results):
                self.log(runner)
        elif buffer.ready and self._results:
            self._log_results(runner)
        if self.reset_flag and buffer.was_logged:
            buffer.clear_output()

    def after_train_epoch(self, runner: Any) -> None:
        """Log an epoch that is shorter than the interval, and the results of other hooks."""
        buffer = runner.log_buffer
        self._take_results(buffer)
        self._log_end_of_epoch(runner)
        if self.reset_flag and buffer.was_logged:
            buffer.clear_output()
        if self in self._others[-1:]:
            self._forget_epoch(buffer)

    def after_epoch(self, runner: Any) -> None:
        """Log a run that is counted in iterations and shorter than the interval."""
        if not self.by_epoch:
            self._log_if_short(runner, runner.iter)

    def after_val_epoch(self, runner: Any) -> None:
        """Log the averages of a validation."""
        runner.log_buffer.average()
        self.log(runner)

    def _log_end_of_epoch(self, runner: Any) -> None:
        if self.by_epoch or self.is_last_epoch(runner):
            self._log_if_short(runner, runner.inner_iter + 1 if self.by_epoch else runner.iter)
        if runner.log_buffer.ready and self._results:
            self._log_results(runner)

    def _log_if_short(self, runner: Any, done: int) -> None:
        """Log the ``done`` iterations of an epoch, or run, that has ended before its first line."""
        buffer = runner.log_buffer
        if not 0 < done < self.interval or self._line_at == buffer.progress.completed - 1:
            return
        results = self._results
        if buffer.ready:
            results = {}  # they have a line of their own
        else:
            self._results = {}
        mode, runner.mode = runner.mode, "train"  # by iteration a validation may have come last
        runner._iter -= 1  # the line is that of the last iteration, which is counted by now
        try:
            with buffer.showing(buffer.window(done + 1), results):  # the next one is in it, too
                self.log(runner)
        finally:
            runner.mode = mode
            runner._iter += 1

    def _log_results(self, runner: Any) -> None:
        results, self._results = self._results, {}
        with runner.log_buffer.showing({}, results):
            self.log(runner)

    def _take_results(self, buffer: LogBuffer, leave_out: str = "") -> None:
        """Pass what other hooks have put into the output on to every logger of the run."""
        results = buffer.take_results()
        results.pop(leave_out, None)
        for hook in self._others or (self,):
            hook._results = {**hook._results, **results}

    def _forget_epoch(self, buffer: LogBuffer) -> None:
        reach = [hook.interval for hook in self._others if not hook.by_epoch]
        buffer.keep_window(max(reach, default=1))

    # -- names and numbers -----------------------------------------------------------------

    is_scalar = staticmethod(values.is_scalar)

    def get_mode(self, runner: Any) -> str:
        """``"train"`` if the output is an average of training steps, else ``"val"``."""
        if runner.mode == "val":
            return "val"
        _check_mode(runner)
        buffer = runner.log_buffer
        return "train" if buffer.averages or not buffer.output else "val"

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1."""
        if runner.mode != "val":
            _check_mode(runner)
            return int(runner.epoch) + 1
        # mmcv has counted the epoch by now; within an epoch it is not counted yet
        trainer = getattr(runner, "trainer", None)
        return int(runner.epoch if trainer is None else trainer.current_epoch + 1)

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` its number in the epoch.

        For a validation it is that of the last training iteration, where there may be several in
        an epoch; else, as in mmcv, the next one or, in the epoch, the number of batches.
        """
        inner = self.by_epoch and inner_iter
        if runner.mode == "val" and (not self.by_epoch or _validates_within_epochs(runner)):
            return progress.batch_idx(runner.trainer) + 1 if inner else int(runner.iter)
        return int(runner.inner_iter if inner else runner.iter) + 1

    def get_step(self, runner: Any) -> int:
        """The iteration; the epoch for a validation at its end, if the run is counted in epochs."""
        at_end = not (runner.mode == "val" and _validates_within_epochs(runner))
        if self.by_epoch and at_end and self.get_mode(runner) == "val":
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
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}


def _validates_within_epochs(runner: Any) -> bool:
    trainer = getattr(runner, "trainer", None)
    return trainer is not None and validation.validates_within_epochs(trainer)


def _check_mode(runner: Any) -> None:
    if runner.mode not in ("train", "val"):
        raise ValueError(f'runner.mode must be "train" or "val", got {runner.mode!r}')
