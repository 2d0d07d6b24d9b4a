"""Check and change the list of a Trainer's callbacks.

While Lightning walks over the list, callbacks are only appended. All other changes are made when
Lightning has called the ``setup`` of all callbacks.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Collection, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.lightning_api.method_patch import FitChanges

__all__ = ["add", "after_setups", "callbacks_of", "check_callbacks", "insert", "leave", "take_out"]


def callbacks_of(trainer: L.Trainer) -> list[Callback]:
    """Return the Trainer's callbacks; Lightning does not declare the attribute."""
    return trainer.callbacks  # type: ignore[attr-defined,no-any-return]


def check_callbacks(trainer: L.Trainer) -> None:
    """Raise for a class, or a hook that is no callback, in ``trainer.callbacks``.

    Raises:
        TypeError: with the code to write instead.
    """
    callbacks: list[Any] = callbacks_of(trainer)
    wrong = [c for c in callbacks if inspect.isclass(c) or not hasattr(c, "on_exception")]
    if not wrong:
        return
    # Lightning calls on_exception of each callback: the wrong objects would raise another error
    take_out(trainer, wrong)
    given = wrong[0]
    if inspect.isclass(given):
        made = f"{given.__name__}(...)"
        write = made if issubclass(given, Callback) else f"HookAdapter([{made}])"
        raise TypeError(
            f"{given.__name__} is a class; pass an object: Trainer(callbacks=[{write}])"
        )
    name = type(given).__name__
    raise TypeError(
        f"{name} is not a Lightning Callback; if it is a hook, write "
        f"Trainer(callbacks=[HookAdapter([{name}(...)])])"
    )


def after_setups(trainer: L.Trainer, call: Callable[[], None], fit: FitChanges) -> None:
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


def add(trainer: L.Trainer, *new: Callback) -> None:
    """Append callbacks that the list has not; Lightning may walk over the list."""
    callbacks = callbacks_of(trainer)
    known = set(map(id, callbacks))
    callbacks += [callback for callback in new if id(callback) not in known]


def insert(trainer: L.Trainer, new: Sequence[Callback], before: Callable[[Callback], bool]) -> None:
    """Put callbacks in front of the first callback of a kind, else at the end."""
    callbacks = callbacks_of(trainer)
    places = (place for place, callback in enumerate(callbacks) if before(callback))
    place = next(places, len(callbacks))
    callbacks[place:place] = new


def take_out(trainer: L.Trainer, gone: Collection[Callback]) -> None:
    """Take callbacks out of the list."""
    callbacks, out = callbacks_of(trainer), set(map(id, gone))
    callbacks[:] = [callback for callback in callbacks if id(callback) not in out]


def leave(trainer: L.Trainer, callback: Callback) -> None:
    """Take a callback out by a new list; Lightning may walk over the former list."""
    left = [each for each in callbacks_of(trainer) if each is not callback]
    trainer.callbacks = left  # type: ignore[attr-defined]
