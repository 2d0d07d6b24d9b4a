"""``LoggerHook``: the base of all loggers, which averages values and names them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lightning_hooks.engine.hook import Hook
from lightning_hooks.loggers import values
from lightning_hooks.utils.arguments import check_bool, check_int

__all__ = ["LoggerHook", "by_group", "first_group", "peak_memory"]


class LoggerHook(Hook):
    """The base of hooks that log: it calls ``log(runner)`` when averages are ready.

    Every ``interval`` iterations the last ``interval`` values of each key are averaged into
    ``runner.log_buffer.output``; after validation all values of a key are. Values that other
    hooks put there, such as the results of an evaluation, are logged unchanged.

    Args:
        interval: Iterations between two logs, counted in the epoch or, with ``by_epoch=False``,
            in the run; 0 logs nothing within the epoch.
        ignore_last: Whether the last iterations of an epoch are not logged when they are fewer
            than ``interval``.
        reset_flag: Whether the averages are cleared after this hook has logged them. A run sets
            it: true for its last logger and false for all others.
        by_epoch: Whether the run is counted in epochs.

    Raises:
        TypeError: if ``interval`` is not an integer.
        ValueError: if ``interval`` is negative.

    Source: mmcv's ``LoggerHook``.

    Note:
        Departures from mmcv: a run without ``IterTimerHook`` logs its training values as
        ``train`` (mmcv: ``val``). Validation within an epoch is logged with the number of that
        epoch, and its values are not averaged into the training that goes on. Only the last
        logger clears the averages, so that all see an evaluation's results; a next run sets
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

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name not in self.transient}

    def log(self, runner: Any) -> Any:
        """Log the values of ``runner.log_buffer.output``."""
        raise NotImplementedError(f"{type(self).__name__} must define log(runner)")

    # -- schedule --------------------------------------------------------------------------

    def before_run(self, runner: Any) -> None:
        """Let the last logger of the run clear the averages, and no other."""
        loggers = [hook for hook in runner.hooks if isinstance(hook, LoggerHook)]
        for hook in loggers:
            hook.reset_flag = hook is loggers[-1]

    def before_epoch(self, runner: Any) -> None:
        """Clear the values of the epoch before."""
        runner.log_buffer.clear()

    def after_train_iter(self, runner: Any) -> None:
        """Average and log every ``interval`` iterations."""
        done = (runner.inner_iter if self.by_epoch else runner.iter) + 1
        is_due = self.interval > 0 and done % self.interval == 0
        if is_due or (not self.ignore_last and self.end_of_epoch(runner)):
            runner.log_buffer.average(self.interval)
        if runner.log_buffer.ready:
            self.log(runner)
            if self.reset_flag:
                runner.log_buffer.clear_output()

    def after_train_epoch(self, runner: Any) -> None:
        """Log the values that other hooks have put into the output."""
        if runner.log_buffer.ready:
            self.log(runner)
            if self.reset_flag:
                runner.log_buffer.clear_output()

    def after_val_epoch(self, runner: Any) -> None:
        """Average and log the validation."""
        runner.log_buffer.average()
        self.log(runner)
        if self.reset_flag and runner.fills_log_buffer:
            runner.log_buffer.clear_output()  # the workflow's next epoch clears the rest
        elif self.reset_flag:
            runner.log_buffer.clear()

    # -- names and numbers -----------------------------------------------------------------

    is_scalar = staticmethod(values.is_scalar)

    def get_mode(self, runner: Any) -> str:
        """``"train"`` if the output is an average of training steps, else ``"val"``."""
        if runner.mode == "val":
            return "val"
        _check_mode(runner)
        output, steps = runner.log_buffer.output, runner.log_buffer.val_history
        if "time" in steps:  # the steps are timed, so their averages have it
            return "train" if "time" in output else "val"
        return "train" if "time" in output or output.keys() <= steps.keys() else "val"

    def get_epoch(self, runner: Any) -> int:
        """The number of the epoch, from 1."""
        if runner.mode != "val":
            _check_mode(runner)
            return int(runner.epoch) + 1
        # mmcv has counted the epoch by now; within an epoch it is not counted yet
        trainer = getattr(runner, "trainer", None)
        return int(runner.epoch if trainer is None else trainer.current_epoch + 1)

    def get_iter(self, runner: Any, inner_iter: bool = False) -> int:
        """The number of the iteration, from 1; with ``inner_iter`` its number in the epoch."""
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
        return _as_tags("learning_rate", runner, runner.current_lr)

    def get_momentum_tags(self, runner: Any) -> dict[str, float]:
        """``momentum`` of the first group; of each optimizer by name if there are several."""
        return _as_tags("momentum", runner, runner.current_momentum)

    def get_loggable_tags(
        self,
        runner: Any,
        allow_scalar: bool = True,
        allow_text: bool = False,
        add_mode: bool = True,
        tags_to_skip: tuple[str, ...] = ("time", "data_time"),
    ) -> dict[str, Any]:
        """Return the values to log by name.

        ======================================  ==============================================
        key                                     value
        ======================================  ==============================================
        ``train/<name>``, ``val/<name>``        each value of the output
        ``learning_rate``, ``momentum``         of the first group
        ``learning_rate/<optimizer>``, ...      of each optimizer, if there are several
        ======================================  ==============================================

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


def _check_mode(runner: Any) -> None:
    if runner.mode not in ("train", "val"):
        raise ValueError(f'runner.mode must be "train" or "val", got {runner.mode!r}')


def first_group(rates: Any) -> Any:
    """Return the value of the first parameter group, or of each optimizer's first one.

    >>> first_group([0.1, 0.2]), first_group({"generator": [0.1, 0.2], "critic": [0.3]})
    (0.1, {'generator': 0.1, 'critic': 0.3})
    """
    if isinstance(rates, dict):
        return {name: of_groups[0] for name, of_groups in rates.items()}
    return rates[0] if rates else None


def _as_tags(tag: str, runner: Any, read: Callable[[], Any]) -> dict[str, float]:
    value = None if runner.optimizer is None else first_group(read())
    if isinstance(value, dict):
        return {f"{tag}/{name}": each for name, each in value.items()}
    return {} if value is None else {tag: value}


def by_group(tag: str, runner: Any, read: Callable[[], Any]) -> dict[str, float]:
    """Return what ``read()`` returns for every parameter group, by the group's name or number.

    ``learning_rate/backbone``, ``learning_rate/1``; with several optimizers the name of the
    optimizer comes before it: ``learning_rate/generator/0``.
    """
    optimizer = runner.optimizer
    if optimizer is None:
        return {}
    found = read()
    if isinstance(optimizer, dict):
        parts = [(f"{tag}/{key}/", each, found[key]) for key, each in optimizer.items()]
    else:
        parts = [(f"{tag}/", optimizer, found)]
    return {
        f"{prefix}{group.get('name', index)}": value
        for prefix, each, of_groups in parts
        for index, (group, value) in enumerate(zip(each.param_groups, of_groups, strict=True))
    }


def peak_memory(runner: Any) -> int | None:
    """Return the most that torch has allocated on the module's device, in MiB.

    With several ranks it is their maximum, so all ranks must call this. None without CUDA.
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
