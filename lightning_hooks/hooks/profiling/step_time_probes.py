"""``Probes``: time the calls of Lightning and of hooks with a stopwatch.

``Stopwatch`` has accounts for the host's time, and ``GpuClock`` reads GPU events without a
synchronization.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["DATA", "OTHER", "Account", "GpuClock", "Probes", "Stopwatch"]

Account = tuple[str, str]
"""A phase, and the name of the hook or method within the phase, or an empty string."""

DATA, OTHER = ("data", ""), ("other", "")
FAMILIES = {
    "EvalHook": "evaluation",
    "CheckpointHook": "checkpoint",
    "LoggerHook": "logging",
    "OptimizerHook": "optimizer",
}
"""The phase of a hook's time by its family; ``hooks`` for all others."""


class Stopwatch:
    """Charges every moment to a single account; the accounts add up to the elapsed time.

    ``enter(account)`` and ``leave()`` enclose a piece of work; an inner piece is charged to the
    inner account only. ``switch(account)`` sets the account for the time outside of all pieces.

    Args:
        account: The first account.
        gpu: A GPU clock; gets every change of phase.
        clock: A function; returns seconds.

    >>> now = iter([0.0, 1.0, 3.0, 3.5])
    >>> watch = Stopwatch(("data", ""), clock=lambda: next(now))
    >>> watch.enter(("hooks", "EMAHook")); watch.leave(); watch.switch(("other", ""))
    >>> watch.seconds
    {('data', ''): 1.5, ('hooks', 'EMAHook'): 2.0}
    """

    def __init__(
        self,
        account: Account,
        gpu: GpuClock | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.seconds: dict[Account, float] = {}
        self.calls: dict[Account, int] = {}
        self.gpu = gpu
        self._clock = clock
        self._open = [account]
        self._since = clock()
        if gpu is not None:
            gpu.mark(account[0])

    @property
    def account(self) -> Account:
        """The account charged now."""
        return self._open[-1]

    def enter(self, account: Account) -> None:
        """Charge an account from now on; a phase inside the same phase keeps the hook's name."""
        current = self.account
        if not account[1] and account[0] == current[0]:
            account = current
        elif account != current:
            self.calls[account] = self.calls.get(account, 0) + 1
        self._charge(account)
        self._open.append(account)

    def leave(self) -> None:
        """Charge the previous account again."""
        if len(self._open) > 1:  # else a switch has closed it after an error
            self._charge(self._open[-2])
            self._open.pop()

    def switch(self, account: Account) -> None:
        """Close all open pieces and charge an account from now on."""
        self._charge(account)
        self._open = [account]

    def read(self) -> dict[Account, float]:
        """Return the seconds of all accounts up to now."""
        self._charge(self._open[-1])
        return dict(self.seconds)

    def reset(self) -> None:
        """Restart from zero, in the current account."""
        self._charge(self._open[-1])
        self.seconds.clear()
        self.calls.clear()
        if self.gpu is not None:
            self.gpu.reset(self._open[-1][0])

    def _charge(self, following: Account) -> None:
        now, account = self._clock(), self._open[-1]
        self.seconds[account] = self.seconds.get(account, 0.0) + now - self._since
        self._since = now
        if self.gpu is not None and following[0] != account[0]:
            self.gpu.mark(following[0])


class GpuClock:
    """Measures a GPU stream's time in each phase, by events.

    The host queues work ahead of the GPU: an event is recorded behind the work of a phase, and the
    time between two events is read after the GPU has passed both, without waiting. Time of the GPU
    without work, for example before a batch, counts for the host's phase.

    Args:
        new_event: A function; returns an event with ``record``, ``query``, ``synchronize`` and
            ``elapsed_time`` (milliseconds).
    """

    def __init__(self, new_event: Callable[[], Any] | None = None) -> None:
        self.seconds: dict[str, float] = {}
        self._new_event = new_event or partial(torch.cuda.Event, enable_timing=True)
        self._marks: deque[tuple[str, Any]] = deque()  # a phase, and the event of its start
        self._spare: list[Any] = []

    def mark(self, phase: str) -> None:
        """Begin a phase behind the work queued so far."""
        event = self._spare.pop() if self._spare else self._new_event()
        event.record()
        self._marks.append((phase, event))

    def collect(self, wait: bool = False) -> None:
        """Add up the phases finished by the GPU.

        Args:
            wait: Whether to wait for the remaining phases, at the end of a run.
        """
        if wait and self._marks:
            self._marks[-1][1].synchronize()
        while len(self._marks) > 1 and self._marks[1][1].query():
            phase, start = self._marks.popleft()
            spent = start.elapsed_time(self._marks[0][1]) / 1e3
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent
            self._spare.append(start)

    def reset(self, phase: str) -> None:
        """Restart from zero, in a phase."""
        self.seconds.clear()
        self._marks.clear()
        self.mark(phase)


class Probes:
    """Times the phases and hooks of a run, until the end of the fit.

    Args:
        runner: The run.
        module: Its module.
        warmup_iters: Iterations after which all times are reset to zero.
    """

    def __init__(self, runner: Runner, module: L.LightningModule, warmup_iters: int) -> None:
        self._warmup_iters = warmup_iters
        self._iterations = 0
        self._names: dict[int, str] = {}
        self.watch = Stopwatch(OTHER, GpuClock() if module.device.type == "cuda" else None)
        trainer = runner.trainer
        self._fit = Driver.of(trainer).fit
        self._time(trainer.strategy, "training_step", ("forward", ""))
        self._time(trainer.strategy, "backward", ("backward", ""))
        self._time(trainer.strategy, "optimizer_step", ("optimizer", ""))
        self._time(trainer.fit_loop.epoch_loop.val_loop, "run", ("evaluation", ""))
        self._fit.patch(trainer, "save_checkpoint", self._enter_save, self._leave)
        for logger in trainer.loggers:
            self._time(logger, "log_metrics", ("logging", ""))
            self._time(logger, "save", ("logging", ""))
        for hook in runner.hooks:
            for event in _events_of(hook):
                self._time(hook, event, self._account(hook))
        # Lightning calls the module's event after those of all callbacks
        self._fit.patch(module, "on_train_batch_end", after=self._end_batch)
        runner.hooks.watch(self._around)
        self._fit.callback(runner.hooks.unwatch, self._around)

    # -- around the calls --------------------------------------------------------------------

    def _time(self, owner: Any, name: str, account: Account) -> None:
        self._fit.patch(owner, name, partial(self._enter, account), self._leave)

    def _around(self, hook: Any, method: Callable[[Any], None]) -> Callable[[Any], None]:
        """Wrap a hook's method in the stopwatch."""
        if _is_timer(hook):
            return method
        enter, leave, account = self._enter, self._leave, self._account(hook)

        @wraps(method)
        def timed(runner: Runner) -> None:
            enter(account)
            try:
                method(runner)
            finally:
                leave()

        return timed

    def _account(self, hook: Any) -> Account:
        """Return the phase of a hook and the hook's name, with a number for a repeated name."""
        if id(hook) not in self._names:
            name = type(hook).__name__
            same = [n for n in self._names.values() if n.partition(" (")[0] == name]
            self._names[id(hook)] = f"{name} ({len(same) + 1})" if same else name
        families = (phase for name, phase in FAMILIES.items() if is_family(hook, name))
        return next(families, "hooks"), self._names[id(hook)]

    def _enter(self, account: Account, *args: Any, **kwargs: Any) -> None:
        self.watch.enter(account)

    def _enter_save(self, *args: Any, **kwargs: Any) -> None:
        """Charge a checkpoint to the hook that saves."""
        self.watch.enter(("checkpoint", self.watch.account[1] or "Trainer.save_checkpoint"))

    def _leave(self, result: Any = None) -> None:
        self.watch.leave()

    def _end_batch(self, result: Any) -> None:
        """Count the iteration, and start the wait for the next batch."""
        self._iterations += 1
        self.watch.switch(DATA)
        if self._iterations == self._warmup_iters:
            self.watch.reset()

    # -- the numbers -------------------------------------------------------------------------

    def iterations(self, open_batch: bool = False) -> int:
        """Return the measured iterations, with an open batch after its step."""
        return max(0, self._iterations + open_batch - self._warmup_iters)

    def numbers(self) -> dict[str, Any]:
        """Return the numbers of this rank for :func:`.step_time.across_ranks`."""
        host: Counter[str] = Counter()
        hooks: dict[str, dict[str, Any]] = {}
        for (phase, name), seconds in self.watch.read().items():
            host[phase] += seconds  # type: ignore[assignment]  # counts may be any number
            if name:
                calls = self.watch.calls.get((phase, name), 0)
                row = f"{name}: {phase}" if name in hooks else name
                hooks[row] = {"phase": phase, "calls": calls, "total": seconds}
        gpu = self.watch.gpu
        return {
            "iterations": self.iterations(),
            "phases": dict(host) if gpu is None else dict(gpu.seconds),
            "host": {} if gpu is None else dict(host),
            "hooks": hooks,
        }


def _is_timer(hook: Any) -> bool:
    return is_family(hook, "StepTimeHook")


def _events_of(hook: Any) -> list[str]:
    """Return the Lightning events that a native hook overrides."""
    if not isinstance(hook, Hook) or _is_timer(hook):
        return []
    events = [n for n in vars(Callback) if n.startswith("on_") and not n.endswith("_checkpoint")]
    own = [n for n in events if getattr(type(hook), n) is not getattr(Callback, n)]
    return [name for name in own if callable(getattr(hook, name))]
