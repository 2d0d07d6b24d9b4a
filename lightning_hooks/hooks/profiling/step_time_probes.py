"""``Probes``: time the calls of Lightning and of hooks with a stopwatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api.events import EVENTS
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.stopwatch import Account, GpuClock, Stopwatch

__all__ = ["DATA", "OTHER", "Probes"]

DATA, OTHER = ("data", ""), ("other", "")
FAMILIES = {
    "EvalHook": "evaluation",
    "CheckpointHook": "checkpoint",
    "LoggerHook": "logging",
    "OptimizerHook": "optimizer",
}
"""The phase of a hook's time by its family; ``hooks`` for all others."""


class Probes:
    """Times the phases and hooks of a run, until ``remove`` is called.

    Args:
        runner: The run.
        module: Its module.
        warmup_iters: Iterations after which all times are reset to zero.
    """

    def __init__(self, runner: Runner, module: L.LightningModule, warmup_iters: int) -> None:
        self._warmup_iters = warmup_iters
        self._iterations = 0
        self._names: dict[int, str] = {}
        self._hooks = runner.hooks
        self.watch = Stopwatch(OTHER, GpuClock() if module.device.type == "cuda" else None)
        trainer = runner.trainer
        timed: list[tuple[Any, str, str]] = [
            (trainer.strategy, "training_step", "forward"),
            (trainer.strategy, "backward", "backward"),
            (trainer.strategy, "optimizer_step", "optimizer"),
            (trainer.fit_loop.epoch_loop.val_loop, "run", "evaluation"),
            (trainer, "save_checkpoint", "checkpoint"),
        ]
        for logger in trainer.loggers:
            timed += [(logger, name, "logging") for name in ("log_metrics", "save")]
        events = [(hook, name) for hook in runner.hooks for name in _events_of(hook)]
        self._patches = (
            *(self._timed(owner, name, (phase, "")) for owner, name, phase in timed),
            *(self._timed(hook, name, self._account(hook)) for hook, name in events),
            # Lightning calls the module's event after those of all callbacks
            MethodPatch(module, "on_train_batch_end", after=self._end_batch),
        )
        self._hooks.watch(self._around)

    def remove(self) -> None:
        """Restore the timed methods."""
        for patch in self._patches:
            patch.remove()
        self._hooks.unwatch(self._around)

    # -- around the calls --------------------------------------------------------------------

    def _timed(self, owner: Any, name: str, account: Account) -> MethodPatch:
        return MethodPatch(owner, name, partial(self._enter, account), self._leave)

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
        hooks = {}
        for (phase, name), seconds in self.watch.read().items():
            host[phase] += seconds  # type: ignore[assignment]  # counts may be any number
            if name:
                calls = self.watch.calls.get((phase, name), 0)
                hooks[name] = {"phase": phase, "calls": calls, "total": seconds}
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
    own = [n for n in EVENTS if getattr(type(hook), n) is not getattr(Callback, n)]
    return [name for name in own if callable(getattr(hook, name))]
