"""``ProfilerHook``: torch's profiler over the first epochs or iterations of a run."""

from __future__ import annotations

import contextlib
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from lightning.pytorch.profilers import PyTorchProfiler
from torch import profiler
from torch._C._autograd import _profiler_enabled as is_profiling
from torch.autograd.profiler_util import EventList
from torch.profiler import tensorboard_trace_handler

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import check_bool, check_count, check_dict, check_path, shown

__all__ = ["ProfilerHook", "refuse_another"]


@HOOKS.register_module()
class ProfilerHook(Hook):
    """Profiles the start of a run with ``torch.profiler``, on rank 0.

    Profiling begins before the first epoch and ends with the ``profile_iters``-th epoch or
    iteration of this run (resumed or not), with training, or with an error.

    Args:
        by_epoch: Whether ``profile_iters`` are epochs or iterations.
        profile_iters: The number of epochs or iterations to profile, at least 1.
        activities: The activities to record: ``"cpu"``, ``"cuda"`` and others of torch's.
            Activities missing on the machine are left out.
        schedule: Arguments of ``torch.profiler.schedule``, counted in iterations; None records
            a single trace.
        on_trace_ready: A function, called with the profiler after each trace; or
            ``dict(type="log_trace", **arguments of EventList.table)`` to print a table, or
            ``dict(type="tb_trace", dir_name=...)`` to write for TensorBoard, into a directory of
            the work directory, ``tf_tracing_logs`` by default.
        record_shapes: Whether the shapes of inputs are recorded.
        profile_memory: Whether allocations are recorded.
        with_stack: Whether source lines are recorded.
        with_flops: Whether FLOPs of matrix products and convolutions are estimated.
        json_trace_path: A file for the last trace, in the format of Chrome's tracing.

    Raises:
        TypeError: for an argument of the wrong type, or an unknown argument of a handler.
        ValueError: for an unknown activity or handler; for a ``profile_iters`` below 1 or, at the
            start of a run, beyond the end of the run; for ``json_trace_path`` beside ``tb_trace``,
            which writes the same trace.
        RuntimeError: at the start of a run, if another of torch's profilers is running.

    Source: mmcv's ``ProfilerHook``.

    Note:
        Departures from mmcv: profiling ends also in a resumed run, early, or with an error (mmcv
        goes on for ever); ``json_trace_path`` beside a schedule holds the last trace recorded
        (mmcv writes the unfinished next trace); ``tb_trace`` needs no ``torch_tb_profiler``; bad
        arguments are refused at construction; no warning for a run of several epochs.
    """

    _reads_step = False
    _transient = ("profiler", "_running")
    profiler: torch.profiler.profile | None = None
    """The running profiler, or the last profiler with its records."""

    _running: torch.profiler.profile | None = None
    _first = 0

    def __init__(
        self,
        by_epoch: bool = True,
        profile_iters: int = 1,
        activities: Sequence[str] = ("cpu", "cuda"),
        schedule: Mapping[str, int] | None = None,
        # a parser of configs takes the first type that fits: any dict is tried as a function's
        on_trace_ready: Mapping[str, Any] | Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        json_trace_path: str | None = None,
    ) -> None:
        super().__init__()
        check_bool(
            by_epoch=by_epoch,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
        )
        self.record_shapes = record_shapes
        self.profile_memory = profile_memory
        self.with_stack = with_stack
        self.with_flops = with_flops
        check_count("profile_iters", profile_iters)
        self.by_epoch = by_epoch
        self.profile_iters = profile_iters
        self.activities = _activities(activities)
        self.schedule = check_dict("schedule", schedule)
        if self.schedule is not None:
            profiler.schedule(**self.schedule)  # raises for bad arguments
        self.on_trace_ready = _checked_handler(on_trace_ready)
        self.json_trace_path = check_path("json_trace_path", json_trace_path)
        if self.json_trace_path and self._writes_for_tensorboard:
            raise ValueError("tb_trace writes the same trace as json_trace_path; give one of them")

    @property
    def _writes_files(self) -> bool:
        """Whether the hook writes files: with ``tb_trace`` or ``json_trace_path``."""
        return self._writes_for_tensorboard or self.json_trace_path is not None

    @property
    def _writes_for_tensorboard(self) -> bool:
        handler = self.on_trace_ready
        return isinstance(handler, dict) and handler["type"] == "tb_trace"

    def before_run(self, runner: Runner) -> None:
        """Start the profiler."""
        if self.by_epoch and not runner.counts_epochs:
            raise ValueError("this run is counted in iterations; give ProfilerHook(by_epoch=False)")
        end = runner.max_epochs if self.by_epoch else runner.max_iters
        is_short = end is not None and self.profile_iters > end
        if is_short and not runner.trainer.fast_dev_run:  # type: ignore[attr-defined]
            unit = "epochs" if self.by_epoch else "iterations"
            raise ValueError(f"profile_iters={self.profile_iters}, but the run has {end} {unit}")
        if runner.rank != 0:
            return
        refuse_another(runner.trainer)
        self._first = runner.epoch if self.by_epoch else runner.iter
        present = profiler.supported_activities()  # type: ignore[no-untyped-call]  # torch's
        self.profiler = profiler.profile(
            activities=[activity for activity in self.activities if activity in present],
            schedule=profiler.schedule(**self.schedule) if self.schedule else None,
            on_trace_ready=self._trace_handler(runner),
            record_shapes=self.record_shapes,
            profile_memory=self.profile_memory,
            with_stack=self.with_stack,
            with_flops=self.with_flops,
        )
        self.profiler.start()
        self._running = self.profiler
        Driver.of(runner.trainer).fit.callback(self._abandon)
        runner.logger.info("profiler is profiling...")

    def after_train_iter(self, runner: Runner) -> None:
        """Go on to the next step of the schedule, or stop."""
        if self._running is not None:
            self._running.step()
            if not self.by_epoch and runner.iter + 1 - self._first >= self.profile_iters:
                self._stop(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """Stop after the last epoch to profile."""
        if self.by_epoch and runner.epoch + 1 - self._first >= self.profile_iters:
            self._stop(runner)

    def after_run(self, runner: Runner) -> None:
        """Stop if training ends early."""
        self._stop(runner)

    def _abandon(self) -> None:
        """Stop after an error without raising: a second error would hide the first."""
        running, self._running = self._running, None
        # a failed profiler is off, and stopping a profiler that is off ends the process
        if running is not None and is_profiling():
            with contextlib.suppress(Exception):
                running.stop()

    def _stop(self, runner: Runner) -> None:
        running, self._running = self._running, None
        if running is not None:
            runner.logger.info("profiler may take a few minutes...")
            running.stop()

    def _trace_handler(self, runner: Runner) -> Callable[[Any], Any] | None:
        """Return the function that torch calls after each trace."""
        if self._writes_files and not runner.may_write:
            return None
        handler: Any = self.on_trace_ready
        if isinstance(handler, dict):
            arguments = {key: value for key, value in handler.items() if key != "type"}
            if handler["type"] == "log_trace":
                handler = partial(_print_table, arguments)
            else:
                name = arguments.pop("dir_name", "tf_tracing_logs")
                directory = os.path.join(runner.work_dir, name)
                runner.logger.info("tracing files of ProfilerHook will be saved to %s.", directory)
                handler = tensorboard_trace_handler(directory, **arguments)
        return partial(self._on_trace, handler)

    def _on_trace(self, handler: Callable[[Any], Any] | None, running: Any) -> None:
        """Handle a trace at once: torch drops a trace before the next."""
        if handler is not None:
            handler(running)
        if self.json_trace_path is not None:
            os.makedirs(os.path.dirname(os.path.abspath(self.json_trace_path)), exist_ok=True)
            running.export_chrome_trace(self.json_trace_path)


def _activities(names: Sequence[str]) -> list[profiler.ProfilerActivity]:
    if not isinstance(names, (list, tuple)):
        raise TypeError(f'activities must be a list such as ["cpu", "cuda"], got {shown(names)}')
    known = {name.lower(): each for name, each in profiler.ProfilerActivity.__members__.items()}
    unknown = [x for x in names if not isinstance(x, str) or x.lower() not in known]
    if unknown or not names:
        raise ValueError(f"activities must be some of {sorted(known)}, got {shown(names)}")
    return [known[name.lower()] for name in names]


def refuse_another(trainer: Any) -> None:
    """Raise RuntimeError if a profiler of torch is running: two end the process silently."""
    if is_profiling() or isinstance(trainer.profiler, PyTorchProfiler):
        raise RuntimeError(
            "another of torch's profilers is running: that of a second hook, or of "
            'Trainer(profiler="pytorch"); torch can run one at a time'
        )


_KINDS: dict[str, Callable[..., Any]] = {
    "log_trace": EventList.table,
    "tb_trace": tensorboard_trace_handler,
}


def _checked_handler(handler: Any) -> Any:
    """Check mmcv's ``on_trace_ready`` and return it, a dict as a copy.

    Raises:
        TypeError: for anything but a function, a dict or None, and for an unknown argument.
        ValueError: for an unknown type.
    """
    if handler is None or callable(handler):
        return handler
    if not isinstance(handler, Mapping):
        raise TypeError(f"on_trace_ready must be a function, a dict or None, got {shown(handler)}")
    arguments = dict(handler)
    kind = arguments.pop("type", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"on_trace_ready's type must be one of {list(_KINDS)}, got {shown(kind)}")
    try:
        inspect.signature(_KINDS[kind]).bind_partial(**arguments)
    except TypeError as error:
        raise TypeError(f"on_trace_ready=dict(type={kind!r}, ...): {error}") from None
    return dict(handler)


def _print_table(arguments: Mapping[str, Any], running: Any) -> None:
    print(running.key_averages().table(**arguments))
