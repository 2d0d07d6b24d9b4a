"""``ThroughputHook``: samples and tokens per second, and the use of the device's peak."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from numbers import Real
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.throughput import get_available_flops
from lightning.pytorch.utilities.data import extract_batch_size
from torch.utils.flop_counter import FlopCounterMode

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.logged import warn_unless_logged
from lightning_hooks.hooks.reached import warn_unless_reached
from lightning_hooks.utils.arguments import (
    check_count,
    check_function,
    check_needed,
    check_number,
    shown,
)

__all__ = ["ThroughputHook"]

SECOND = 1_000_000_000
"""Nanoseconds: an average weighted with whole numbers is exact."""


@HOOKS.register_module()
class ThroughputHook(Hook):
    """Logs how many samples and tokens a run trains in a second, on all ranks together.

    ==================  ==========================================================================
    key                 value
    ==================  ==========================================================================
    samples_per_sec     samples of the line's iterations / seconds of these iterations, times ranks
    tokens_per_sec      the same of tokens, with ``tokens``
    data_share          the share of the time in which the loop waits for data, 0 to 1
    tflops_per_sec      1e12 floating-point operations in a second, of one device, with ``flops``
    mfu                 the share of the device's peak, 0 to 1, with ``flops``, where Lightning
                        knows the peak of the device and the precision (not of a CPU)
    ==================  ==========================================================================

    A line has the numbers of its own iterations. The first iterations, validations and checkpoints
    do not count. Rank 0 counts, and stands for the others. No device is synchronised, and nothing
    is read from a device.

    Args:
        samples: A function of the batch that returns the number of samples; by default the size of
            the batch's first tensor, as Lightning finds it.
        tokens: A function of the batch that returns the number of tokens, a number or a 0-d tensor.
        flops: The floating-point operations of a batch, forward and backward, on a single device;
            or ``"measure"``, to count the operations of the first batch by torch's
            ``FlopCounterMode``, without compiled code.
        peak_flops: The peak of a device in operations per second, for ``mfu``; by default the peak
            that Lightning knows.
        warmup_iters: Iterations at the start of a run that do not count.

    Raises:
        TypeError: if ``samples`` or ``tokens`` is no function, or a number no number; in a step, if
            a function returns no number.
        ValueError: for ``flops`` or a ``peak_flops`` that is not above 0, ``peak_flops`` without
            ``flops``, or a negative ``warmup_iters``.

    Source: Lightning's ``ThroughputMonitor``, which waits for the device in every batch.
    """

    priority = "LOW"
    """As ``IterTimerHook``: before the loggers."""

    _reads_step = False
    _transient = ("_start", "_size_of", "_counter", "_counting")
    clock = staticmethod(time.perf_counter_ns)
    """The clock, in nanoseconds."""

    _start: int | None = None  # the end of the last iteration; None where no time counts
    _ready: int | None = None  # when the batch was there, within an iteration
    _first: int = 0  # the first iteration of the fit
    _size_of: Callable[[Any], Any] | None = None
    _counter: FlopCounterMode | None = None  # in the batch whose operations are counted
    _counting: contextlib.ExitStack
    _batch_flops: float | None = None
    _peak: float | None = None

    def __init__(
        self,
        samples: Callable[[Any], Any] | None = None,
        tokens: Callable[[Any], Any] | None = None,
        flops: float | str | None = None,
        peak_flops: float | None = None,
        warmup_iters: int = 10,
    ) -> None:
        check_function("samples", samples)
        check_function("tokens", tokens)
        if isinstance(flops, str):
            if flops != "measure":
                raise ValueError(f'flops must be a number, "measure" or None, got {shown(flops)}')
        elif flops is not None:
            check_number("flops", flops, above=0)
        if peak_flops is not None:
            check_number("peak_flops", peak_flops, above=0)
        if flops is None:
            check_needed('flops, such as flops="measure"', peak_flops=(peak_flops, None))
        check_count("warmup_iters", warmup_iters, 0)
        self.samples, self.tokens = samples, tokens
        self.flops, self.peak_flops = flops, peak_flops
        self.warmup_iters = warmup_iters

    def before_run(self, runner: Runner) -> None:
        """Watch the checkpoints and validations, and look up the peak of the device."""
        trainer, fit = runner.trainer, Driver.of(runner.trainer).fit
        self._start, self._ready, self._first = None, None, runner.iter
        warn_unless_logged(self, runner)
        warn_unless_reached(self, runner, "nothing is logged", warmup_iters=self.warmup_iters)
        self._size_of = self.samples or extract_batch_size
        self._batch_flops = None if isinstance(self.flops, str) else self.flops
        self._peak = self.peak_flops
        if self.flops is not None and self._peak is None:
            self._peak = peak_of(trainer)
        for owner in (trainer, runner):
            fit.patch(owner, "save_checkpoint", after=self._restart)
        # an average's second validation has no events
        fit.patch(trainer.fit_loop.epoch_loop.val_loop, "run", after=self._restart)

    @contextlib.contextmanager
    def _around_evaluation(self, trainer: L.Trainer) -> Iterator[None]:
        """Leave out an evaluation by a hook."""
        yield
        self._restart()

    def _restart(self, result: object = None) -> None:
        """Begin to measure anew; within an iteration, after its end."""
        self._start = self.clock() if self._ready is None else None

    def before_train_epoch(self, runner: Runner) -> None:
        """Begin with the wait for the first batch."""
        self._restart()

    def before_train_iter(self, runner: Runner) -> None:
        """End the wait for the batch; count the operations of the first."""
        self._ready = self.clock()
        if self.flops == "measure" and self._batch_flops is None:
            self._counting = Driver.of(runner.trainer).fit.part()
            self._counter = self._counting.enter_context(FlopCounterMode(display=False))

    def after_train_iter(self, runner: Runner) -> None:
        """Log the iteration's numbers, weighted by the iteration's time."""
        now, start, ready = self.clock(), self._start, self._ready
        self._start, self._ready = now, None
        if self._counter is not None:
            self._counting.close()
            self._batch_flops, self._counter = float(self._counter.get_total_flops()), None
        if start is None or ready is None or now <= start:
            return
        if runner.iter - self._first < self.warmup_iters:
            return
        spent, batch, ranks = now - start, runner.data_batch, runner.world_size
        values = {"data_share": (ready - start) / spent}
        if self._size_of is not None:
            try:
                samples = _number("samples", self._size_of(batch))
                values["samples_per_sec"] = samples * ranks * SECOND / spent
            except Exception as error:
                if self.samples is not None:
                    raise
                self._size_of = None
                runner.logger.warning(
                    "ThroughputHook: samples_per_sec is not logged, as the batch has no size that "
                    "can be found (%s); give ThroughputHook(samples=lambda batch: ...)",
                    error,
                )
        if self.tokens is not None:
            tokens = _number("tokens", self.tokens(batch))
            values["tokens_per_sec"] = tokens * ranks * SECOND / spent
        if self._batch_flops:
            per_second = self._batch_flops * SECOND / spent
            values["tflops_per_sec"] = per_second / 1e12
            if self._peak is not None:
                values["mfu"] = per_second / self._peak
        runner.log_buffer.update(values, spent)


def _number(name: str, value: Any) -> Any:
    """Return what a function of the batch has returned; raise TypeError unless a number."""
    is_number = value.ndim == 0 if isinstance(value, torch.Tensor) else isinstance(value, Real)
    if not is_number:
        raise TypeError(f"{name}(batch) must return a number or a 0-d tensor, got {shown(value)}")
    return value


def peak_of(trainer: L.Trainer) -> float | None:
    """Return the peak of the Trainer's device and precision, in operations per second.

    None where Lightning does not know the device.
    """
    halves = {"16": torch.float16, "bf16": torch.bfloat16, "transformer-engine": torch.bfloat16}
    kind = str(trainer.precision).partition("-")[0]
    dtype = halves.get(kind, torch.float32)
    with contextlib.suppress(Exception):  # of a device that is newer than Lightning's table
        peak = get_available_flops(trainer.strategy.root_device, dtype)
        return None if peak is None else float(peak)
    return None
