"""Change the list of a Trainer's callbacks, at times when Lightning does not walk over the list."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.hosted import is_one_of
from lightning_hooks.engine.lightning_api.method_patch import Fit
from lightning_hooks.engine.participant import callbacks_of

__all__ = ["after_setups", "insert", "take_out"]


def after_setups(trainer: L.Trainer, call: Callable[[], None], fit: Fit) -> None:
    """Call a function once, when Lightning has called the ``setup`` of all callbacks.

    Lightning then calls the module's ``setup``, and no event of a callback in between. A callback
    that calls the module's ``setup`` is not taken for Lightning.
    """
    once = fit.part()

    def before(*_args: Any, **_kwargs: Any) -> None:
        if not _is_in_callback(trainer):
            once.close()
            call()

    fit.patch(trainer.lightning_module, "setup", before=before, until=once)


def _is_in_callback(trainer: L.Trainer) -> bool:
    """Whether Lightning is calling an event of the Trainer's callbacks."""
    return any(
        frame.f_code.co_name == "_call_callback_hooks" and frame.f_locals.get("trainer") is trainer
        for frame, _ in traceback.walk_stack(inspect.currentframe())
    )


def insert(trainer: L.Trainer, callback: Callback, before: Callable[[Callback], bool]) -> None:
    """Put a callback in front of the first callback of a kind, else at the end."""
    callbacks = callbacks_of(trainer)
    places = (i for i, one in enumerate(callbacks) if before(one))
    callbacks.insert(next(places, len(callbacks)), callback)


def take_out(trainer: L.Trainer, gone: Collection[Callback]) -> None:
    """Take callbacks out of the list."""
    callbacks = callbacks_of(trainer)
    callbacks[:] = [one for one in callbacks if not is_one_of(one, gone)]
