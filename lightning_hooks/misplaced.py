"""What was put where it does not belong: it is answered with where it does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import lightning as L
from lightning.pytorch.callbacks import Callback

__all__ = ["HostedOnly", "for_objects", "refuse_misplaced"]

F = TypeVar("F", bound=Callable[..., None])


def refuse_misplaced(trainer: L.Trainer) -> None:
    """Refuse what is in a Trainer's callbacks and is none.

    Raises:
        TypeError: with what to write instead.
    """
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    wrong = [c for c in callbacks if not _is_callback(c)]
    if wrong:
        # Lightning tells each of the error, which these would answer with another
        trainer.callbacks = [c for c in callbacks if _is_callback(c)]  # type: ignore[attr-defined]
        raise TypeError(_advice(wrong[0]))


def for_objects(setup: F) -> F:
    """Make a callback's ``setup`` refuse to be called for its class, as Lightning then does."""

    @functools.wraps(setup)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        if isinstance(self, L.Trainer):  # the bare function of a class: its first argument
            refuse_misplaced(self)
        setup(self, *args, **kwargs)

    return checked  # type: ignore[return-value]


def _is_callback(given: Any) -> bool:
    hosted = isinstance(given, HostedOnly)
    return hasattr(given, "on_exception") and not inspect.isclass(given) and not hosted


def _advice(given: Any) -> str:
    if inspect.isclass(given):
        made = f"{given.__name__}(...)"
        ours = issubclass(given, Callback)
        write = made if ours else f"HookAdapter([{made}])"
        return f"{given.__name__} is a class; pass an object: Trainer(callbacks=[{write}])"
    name = type(given).__name__
    return (
        f"the hook {name} is not a Lightning Callback; "
        f"write Trainer(callbacks=[HookAdapter([{name}(...)])])"
    )


class HostedOnly:
    """Base of the hooks that an adapter hosts, which say so where they are given to a Trainer."""

    @property
    def state_key(self) -> str:
        """What Lightning asks a callback with a state for, when a Trainer is made."""
        raise TypeError(_advice(self))

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """What it calls first."""
        refuse_misplaced(trainer)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """What it tells of an error: this one may not hide it."""
