"""``LoggerHook``: the base of all loggers. It averages values and names them."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import distributed

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.log_buffer import LogBuffer
from lightning_hooks.utils.arguments import check_bool, check_int
from lightning_hooks.utils.samples import as_image, is_image

if TYPE_CHECKING:
    import lightning as L

    from lightning_hooks.engine.runner.runner import Runner

__all__ = ["LoggerHook", "by_kind", "has_rates", "in_fit", "is_scalar", "peak_memory"]


def in_fit(runner: Runner) -> bool:
    """Whether a fit is in progress, not a test or validation alone."""
    return bool(runner.trainer.state.fn == TrainerFn.FITTING)


def has_rates(runner: Runner) -> bool:
    """Whether a line has the rates of a step: in a fit, but not with values of a whole epoch."""
    return runner.mode != "train_epoch" and in_fit(runner)


def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
    """Whether a value is a number, or an array or tensor with one element.

    >>> is_scalar(torch.tensor(0.5)), is_scalar(np.ones(2)), is_scalar("cat")
    (True, False, False)
    """
    if isinstance(val, numbers.Number):
        return True
    if isinstance(val, np.ndarray):
        return include_np and val.ndim == 0
    return include_torch and isinstance(val, torch.Tensor) and val.numel() == 1


def by_kind(tags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort tags into ``scalars``, ``texts`` and ``images``; other values are left out.

    >>> by_kind({"loss": 0.5, "best": "cat", "recalls": [0.1, 0.2]})
    {'scalars': {'loss': 0.5}, 'texts': {'best': 'cat'}, 'images': {}}
    """
    kinds: dict[str, dict[str, Any]] = {"scalars": {}, "texts": {}, "images": {}}
    for name, value in tags.items():
        if is_scalar(value):
            kinds["scalars"][name] = float(value)
        elif isinstance(value, str):
            kinds["texts"][name] = value
        elif is_image(value):
            kinds["images"][name] = as_image(value)
    return kinds


class LoggerHook(Hook):
    """The base of loggers: calls ``log(runner)`` with the values of a line as the output.

    A line at iteration ``t`` averages the values of the iterations ``t - interval + 1`` to ``t``,
    independently of other loggers' intervals; a key without values in this window is absent. A
    validation has a separate line with the averages over the validation's batches. Values from
    other hooks in ``runner.log_buffer.output``, such as the results of an evaluation, are logged
    unchanged, once by each logger: immediately if the hook sets ``log_buffer.ready``, else in the
    next line. Learning rate and momentum are the values used by the iteration's step. A tensor
    logged by the module under another name and returned as ``loss`` appears once, as ``loss``.

    Args:
        interval: Iterations between two lines, counted in the epoch or, with ``by_epoch=False``,
            in the run; 0 logs nothing within the epoch.
        ignore_last: Whether to leave out the last iterations of an epoch if fewer than
            ``interval`` remain. An epoch without another line logs them anyway.
        reset_flag: Whether to clear the output after logging. A run sets the flag: true for the
            last logger, false for all others.
        by_epoch: Whether the run is counted in epochs.
        sync: Whether to average over the ranks, with one collective a line; by default a line has
            the averages of rank 0. With ``sync`` every rank must have the logger.

    Raises:
        TypeError: if ``interval`` is not an integer.
        ValueError: if ``interval`` is negative.

    Source: mmcv's ``LoggerHook``.

    Note:
        Departures from mmcv: a line averages the values of the line's iterations (mmcv: the last
        ``interval`` values of each key, also where some iterations have none), and each logger
        has an interval of its own (in mmcv all loggers log whenever any logger does). An epoch, or
        a run by iteration, shorter than the interval has one line at the end. By iteration a window
        reaches back into the previous epoch. A run without ``IterTimerHook`` logs training values
        as ``train`` (mmcv: ``val``). Training and validation have separate log buffers and are
        never averaged together. Where the Trainer validates within epochs, a validation's line has
        the current epoch and training iteration; so has an evaluation by a hook within an epoch
        (mmcv: the number of batches). Only the last logger clears the output, so all loggers see an
        evaluation's results; the next run sets ``reset_flag`` anew. ``eval_iter_num`` is no tag. A
        name with the mode as prefix (``val/acc``) gets no second prefix. 0-d tensors are scalars
        (mmcv raises TypeError). A run without optimizer logs no learning rate (mmcv raises). Values
        of a whole epoch, and of a test or validation outside of a fit, are logged once.
    """

    def __init__(
        self,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        sync: bool = False,
    ) -> None:
        super().__init__()
        check_int("interval", interval, 0)
        check_bool(ignore_last=ignore_last, reset_flag=reset_flag, by_epoch=by_epoch)
        check_bool(sync=sync)
        self.interval = interval
        self.ignore_last = ignore_last
        self.reset_flag = reset_flag
        self.by_epoch = by_epoch
        self.sync = sync

    reads_step = False
    reads_log_buffer = True
    timings = False
    """Whether the times of batches alone are values to log."""

    @property
    def writes_files(self) -> bool:
        """Whether the hook writes files or to a tracker, as loggers do."""
        return True

    transient: Sequence[str] = ("_results", "_read", "_line_at", "_counted")
    _results: Mapping[str, Any] = MappingProxyType({})  # of other hooks, not logged yet
    _read = 0  # the number of the last result read in the output
    _line_at: int | None = None  # the iteration of the last line
    _counted: int = 0  # 1 if the line's last iteration is counted by now

    def log(self, runner: Runner) -> Any:
        """Log the values of ``runner.log_buffer.output``."""
        raise NotImplementedError(f"{type(self).__name__} must define log(runner)")

    # -- schedule --------------------------------------------------------------------------

    def before_run(self, runner: Runner) -> None:
        """Let the last logger of the run clear the output, and no other."""
        loggers = [hook for hook in runner.hooks if is_family(hook, "LoggerHook")]
        for hook in loggers:
            hook.reset_flag = hook is loggers[-1]
        self._results, self._read, self._line_at = {}, 0, None

    def before_epoch(self, runner: Runner) -> None:
        """Drop the previous epoch's values, except for windows of loggers by iteration."""
        if runner.loops_itself:
            runner.log_buffer.clear()  # as in mmcv
        else:
            _forget_epoch(runner)

    def after_train_iter(self, runner: Runner) -> None:
        """Log the averages of the last iterations every ``interval`` iterations."""
        buffer = runner.log_buffer
        # an evaluation within an epoch has the iteration in the log, not the number of batches
        self._read_results(buffer, leave_out="" if runner.fills_log_buffer else "eval_iter_num")
        done = (runner.inner_iter if self.by_epoch else runner.iter) + 1
        now = buffer.progress.completed
        length = self._length(runner, done)
        # an evaluation by a hook may have logged this iteration before
        if length and (self._line_at != now or runner.loops_itself):
            self._line_at = now
            self._log_line(runner, length)
        elif buffer.ready and self._results:
            self._log_line(runner)
        if self.reset_flag:
            buffer.clear_logged()

    def after_train_epoch(self, runner: Runner) -> None:
        """Log an epoch shorter than the interval, and the results of other hooks."""
        self._read_results(runner.log_buffer)
        self._log_end_of_epoch(runner)
        if self.reset_flag:
            runner.log_buffer.clear_logged()
            if not runner.loops_itself:
                _forget_epoch(runner)

    def after_epoch(self, runner: Runner) -> None:
        """Log a run by iteration shorter than the interval."""
        if not self.by_epoch:
            self._log_if_short(runner, runner.iter)

    def after_val_epoch(self, runner: Runner) -> None:
        """Log the averages of a validation."""
        self._log_all(runner)
        if self.reset_flag:
            runner.log_buffer.clear_output()

    def log_values(self, runner: Runner) -> None:
        """Log values of a whole training epoch, or of a test or validation outside of a fit.

        Outside of a fit the log is opened before and closed afterwards.
        """
        if runner.mode == "train_epoch":
            self._log_all(runner)
            return
        self.before_run(runner)
        try:
            self._log_all(runner)
        finally:
            self.after_run(runner)

    def _length(self, runner: Runner, done: int) -> int:
        """Return the number of iterations of a line after the ``done``-th; 0 for no line."""
        if self.interval and done % self.interval == 0:
            return self.interval
        left = min(done, self.interval or done)
        if not self.ignore_last and self.end_of_epoch(runner):
            return left
        return left if done < self.interval and self._ends(runner) else 0

    def _ends(self, runner: Runner) -> bool:
        """Whether the epoch, or the run if counted in iterations, ends with this iteration."""
        if runner.should_stop or self.is_last_iter(runner):
            return True
        return self.end_of_epoch(runner) and (self.by_epoch or self.is_last_epoch(runner))

    def _log_all(self, runner: Runner) -> None:
        buffer = runner.log_buffer
        buffer.average()
        output = buffer.output
        averages = {name: output[name] for name in output if name in output.averages}
        if self.sync:
            averages = mean_over_ranks(averages)
        results = {key: value for key, value in output.items() if key not in averages}
        unshown = {"eval_iter_num"} if self.timings else {"eval_iter_num", "time", "data_time"}
        if unshown.issuperset({*averages, *results}) and not runner.loops_itself:
            return  # mmcv writes a line
        with buffer.showing(averages, results):
            self.log(runner)

    def _log_end_of_epoch(self, runner: Runner) -> None:
        ends = self.is_last_epoch(runner) or runner.iter == runner.max_iters or runner.should_stop
        if self.by_epoch or ends:
            self._log_if_short(runner, runner.inner_iter + 1 if self.by_epoch else runner.iter)
        if runner.log_buffer.ready and self._results:
            self._log_line(runner)

    def _log_if_short(self, runner: Runner, done: int) -> None:
        """Log an epoch, or run, of ``done`` iterations that has ended early without any line."""
        if 0 < done < self.interval and self._line_at != runner.log_buffer.progress.completed - 1:
            results = self._results if runner.log_buffer.ready else {}  # these have another line
            self._results = {} if results else self._results
            # by iteration a validation may have been last
            with setting(runner, mode="train"), setting(self, _counted=1):
                self._log_line(runner, done + 1)  # up to the next iteration
            self._results = results

    def _log_line(self, runner: Runner, n: int = 0) -> None:
        """Log averages of ``n`` iterations, and the results of other hooks not logged yet."""
        averages = runner.log_buffer.window(n) if n else {}
        if n and self.sync:
            averages = mean_over_ranks(averages)
        results, self._results = self._results, {}
        with runner.log_buffer.showing(averages, results):
            self.log(runner)

    def _read_results(self, buffer: LogBuffer, leave_out: str = "") -> None:
        """Keep what other hooks have written into the output, for the next line."""
        output = buffer.output
        if output.number > self._read:
            self._results = {**self._results, **output.results(since=self._read)}
            self._results.pop(leave_out, None)
            self._read = output.number

    # -- names -----------------------------------------------------------------------------

    is_scalar = staticmethod(is_scalar)

    def get_mode(self, runner: Runner) -> str:
        """``"train"`` if the output is an average of steps, else ``"val"``; or ``"test"``."""
        if runner.mode in ("val", "test"):
            return runner.mode
        _check_mode(runner)
        output = runner.log_buffer.output
        if not output:  # old hooks ask before a line and expect mmcv's answer
            return "val" if runner.loops_itself else "train"
        return "train" if output.averages else "val"

    def get_epoch(self, runner: Runner) -> int:
        """The number of the epoch, from 1."""
        _check_mode(runner)
        if runner.mode == "train":
            return runner.epoch + 1
        # mmcv has counted the epoch by now; within an epoch it is not counted yet
        if runner.loops_itself:
            return runner.epoch
        return runner.trainer.current_epoch + in_fit(runner)

    def get_iter(self, runner: Runner, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` counted in the epoch.

        A validation within an epoch has the last training iteration. A validation at the end of
        an epoch has, as in mmcv, the next iteration or, in the epoch, the number of batches.
        """
        trainer, inner = runner.trainer, self.by_epoch and inner_iter
        if runner.mode == "train_epoch" and inner:
            return progress.batch_idx(trainer) + 1
        if runner.mode != "train" and (not self.by_epoch or _validates_within_epochs(trainer)):
            return progress.batch_idx(trainer) + 1 if inner else runner.iter
        return runner.inner_iter + 1 if inner else runner.iter + 1 - self._counted

    def get_step(self, runner: Runner) -> int:
        """The iteration; by epoch, the epoch for a validation at the end of an epoch."""
        at_end = not (runner.mode == "val" and _validates_within_epochs(runner.trainer))
        if self.by_epoch and at_end and self.get_mode(runner) in ("val", "test"):
            return self.get_epoch(runner)
        return self.get_iter(runner)

    def get_lr_tags(self, runner: Runner) -> dict[str, float]:
        """``learning_rate`` of the first group; with several optimizers of each, by name."""
        return runner.step_rates.first("lr", "learning_rate")

    def get_momentum_tags(self, runner: Runner) -> dict[str, float]:
        """``momentum`` of the first group; with several optimizers of each, by name."""
        return runner.step_rates.first("momentum", "momentum")

    def get_loggable_tags(
        self,
        runner: Runner,
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
        ``system/<name>``                       the machine's load, in every mode
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
            tags[name if name.startswith((prefix, "system/")) else prefix + name] = value
        if not has_rates(runner):
            return tags
        return {**tags, **self.get_lr_tags(runner), **self.get_momentum_tags(runner)}


def _forget_epoch(runner: Runner) -> None:
    """Drop the values of the epoch, except for windows of loggers by iteration."""
    loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
    reach = [hook.interval for hook in loggers if not hook.by_epoch]
    runner.log_buffer.keep_window(max(reach, default=1))


def _check_mode(runner: Runner) -> None:
    if runner.mode not in ("train", "val", "train_epoch", "test"):
        raise ValueError(f'runner.mode must be "train" or "val", got {runner.mode!r}')


def _validates_within_epochs(trainer: L.Trainer) -> bool:
    """Whether the Trainer validates at other places than the ends of epochs."""
    every = trainer.val_check_batch
    return bool(
        trainer.check_val_every_n_epoch is None
        or every is None  # by time
        or every < trainer.num_training_batches
    )


def mean_over_ranks(averages: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of each value over the ranks with that key; one collective.

    >>> mean_over_ranks({"loss": 0.5})  # on one rank
    {'loss': 0.5}
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return dict(averages)
    of_ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(of_ranks, dict(averages))
    values: dict[str, list[float]] = {}
    for of_rank in of_ranks:
        for name, value in of_rank.items():
            values.setdefault(name, []).append(value)
    return {name: sum(each) / len(each) for name, each in values.items()}


def peak_memory(runner: Runner) -> int | None:
    """Return torch's peak of allocated memory on the module's device, in MiB.

    The result is the maximum over the ranks, so all ranks must call this function. None without
    CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # without a collective nothing is read from the device
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
