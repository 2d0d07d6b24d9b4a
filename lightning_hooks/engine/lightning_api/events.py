"""Skip unused events of callbacks, and Lightning's own backward and step.

Lightning calls every event of a batch for every callback, through a profiler context, whether or
not the class defines the event. Lightning skips an event set to None, so for the length of a fit a
hook's unused events of a batch are None on the instance. With eight hooks this saves about ten
microseconds of a step. Outside of a fit a hook has all events, and so has a hook that the module or
a callback of the user holds, to pass events on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.profilers import PassThroughProfiler
from lightning.pytorch.strategies import SingleDeviceStrategy, Strategy

from lightning_hooks.engine.hook_callback import HookCallback, natives_with
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.utils.origin import is_ours

__all__ = [
    "EVENTS",
    "adds_to_step",
    "restore_events",
    "skip_events",
    "skip_unused_events",
    "suspend_optimization",
]

EVENTS = (
    "on_train_batch_start",
    "on_before_zero_grad",
    "on_before_backward",
    "on_after_backward",
    "on_before_optimizer_step",
    "on_train_batch_end",
    "on_validation_batch_start",
    "on_validation_batch_end",
)
"""The events of a batch, which can be skipped."""
STOCK = {name: getattr(Callback, name) for name in EVENTS}


def skip_unused_events(trainer: L.Trainer, callbacks: Sequence[Callback], fit: FitChanges) -> None:
    """Skip the events of a batch that callbacks do not use, until the end of a fit.

    An event is unused if the class does not override the event, or if the class says so
    (``HookCallback._unused_events``) and a subclass does not override the event.
    """
    fit.callback(restore_events, callbacks)
    held = _held_by_users(trainer)
    muted = [callback for callback in callbacks if id(callback) not in held]
    for callback in muted:
        kind = type(callback)
        skip_events(callback, *[n for n in EVENTS if getattr(kind, n, None) is STOCK[n]])
    for hook in natives_with("_unused_events", muted):
        skip_events(hook, *_unused_events(trainer, hook))


def _unused_events(trainer: L.Trainer, hook: HookCallback) -> list[str]:
    """Return the events that the class declares unused and no subclass overrides."""
    kind, declared = type(hook), hook._unused_events(trainer)
    owner = next(base for base in kind.__mro__ if "_unused_events" in vars(base))
    return [name for name in declared if getattr(kind, name) is getattr(owner, name)]


def _held_by_users(trainer: L.Trainer) -> set[int]:
    """Return the ids of what the module, and callbacks of users, hold as attributes."""
    callbacks = [c for c in callbacks_of(trainer) if not is_ours(type(c))]
    held: set[int] = set()
    for holder in (trainer.lightning_module, *callbacks):
        for value in vars(holder).values():
            several = value.values() if isinstance(value, dict) else value
            held.update(map(id, several if isinstance(value, (dict, list, tuple)) else [value]))
    return held


def skip_events(callback: Callback, *events: str) -> None:
    """Have Lightning skip events of a callback, but no function that the user has set."""
    for name in events:
        vars(callback).setdefault(name, None)


def restore_events(callbacks: Iterable[Callback], events: Iterable[str] = EVENTS) -> None:
    """Call the skipped events again."""
    for callback in callbacks:
        for name in events:
            if vars(callback).get(name, callback) is None:
                del vars(callback)[name]


def adds_to_step(trainer: Any) -> bool:
    """Whether Lightning's backward and step do more than torch's: scale, synchronise, call events.

    False only if all called methods are Lightning's own, on the objects and on the classes.
    """
    strategy, precision = trainer.strategy, trainer.precision_plugin
    called = [
        (strategy, STRATEGY_METHODS),
        (precision, PRECISION_METHODS),
        (trainer.lightning_module, MODULE_METHODS),
        *((callback, CALLBACK_METHODS) for callback in trainer.callbacks),
    ]
    for owner, methods in called:
        kind, own = type(owner), vars(owner)
        for name, stock in methods:  # a skipped event (None) is no method
            if (own[name] is not None) if name in own else (getattr(kind, name) is not stock):
                return True
    return not (
        type(strategy) is SingleDeviceStrategy
        and type(precision) is Precision
        and type(trainer.profiler) is PassThroughProfiler
    )


class _Suspended(int):
    """``automatic_optimization`` while hooks own backward: false in the fit only.

    True in a copy of the module, and after a fit that ended without an event.
    """

    fit: FitChanges

    def __bool__(self) -> bool:
        if self.fit.is_running:
            return False
        self.fit.close()
        return True

    def __repr__(self) -> str:
        return "False"

    def __deepcopy__(self, memo: dict[int, Any]) -> bool:
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return bool, (True,)


def suspend_optimization(module: L.LightningModule, fit: FitChanges) -> None:
    """Have Lightning run neither backward nor step, until the end of a fit."""
    suspended = _Suspended()
    suspended.fit = fit
    fit.callback(setattr, module, "automatic_optimization", True)
    module.automatic_optimization = suspended  # type: ignore[assignment]


def _methods(kind: type, *names: str) -> tuple[tuple[str, Any], ...]:
    return tuple((name, getattr(kind, name)) for name in names)


STEP_EVENTS = ("on_before_backward", "on_after_backward", "on_before_optimizer_step")
STEP_PARTS = ("pre_backward", "backward", "post_backward", "optimizer_step")
STRATEGY_METHODS = _methods(Strategy, *STEP_PARTS)
PRECISION_METHODS = _methods(Precision, *STEP_PARTS)
MODULE_METHODS = _methods(L.LightningModule, "backward", *STEP_EVENTS)
CALLBACK_METHODS = _methods(Callback, *STEP_EVENTS)
"""Lightning's own methods, kept, as a user may replace methods on a class."""
