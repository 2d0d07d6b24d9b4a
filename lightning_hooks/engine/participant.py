"""The callbacks of ours in a Trainer: those that bring hooks, and how Lightning is to call them.

What a participant wants of the Runner, and the sum of what all of them want.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.usage_errors import AskedFirst, NoLogger, for_objects, refuse_misplaced
from lightning_hooks.utils.arguments import check_names, names_of

__all__ = ["Participant", "Settings", "each_once", "host", "leave_out", "merge", "mute", "unmute"]

EVENTS = tuple(
    name
    for name in vars(Callback)
    if name.startswith("on_") and name not in ("on_save_checkpoint", "on_load_checkpoint")
)


class Participant(NoLogger, Callback):
    """A callback that brings hooks into a Trainer: a single hook, or an adapter with many."""

    hosted_at: int | None = None
    """The place of a hook among those of its Trainer's adapters, if it is in one."""

    log_dict: Any = AskedFirst()
    """The module's, in a fit."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """Say what an argument with a wrong name may have meant."""
        if kwargs and (known := names_of(cls)) is not None:
            check_names(cls.__name__, kwargs, known)
        cls._check_positional(args)
        return super().__new__(cls)

    @classmethod
    def _check_positional(cls, args: Sequence[Any]) -> None:
        """Say what is better than Python's words where it is known what was meant."""

    def __repr__(self) -> str:
        # what Lightning shows where one is given as plugin, strategy or loader
        return f"<{type(self).__name__}, for Trainer(callbacks=[...])>"

    def entries(self) -> Sequence[tuple[Any, int]]:
        """The hooks with their priorities, in the order given."""
        raise NotImplementedError

    def settings(self) -> Settings:
        """What this participant wants of the Runner."""
        return Settings()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """See to it that a subclass's own ``setup`` joins the Trainer without ``super()`` too."""
        super().__init_subclass__(**kwargs)
        own = cls.__dict__.get("setup")
        if own is not None:

            @functools.wraps(own)
            def setup(
                self: Any, trainer: L.Trainer, pl_module: L.LightningModule, stage: str
            ) -> None:
                Participant.setup(self, trainer, pl_module, stage)
                own(self, trainer, pl_module, stage)

            cls.setup = for_objects(setup)  # type: ignore[method-assign]

    @for_objects
    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Make sure that the Trainer has its driver.

        Raises:
            TypeError: if the Trainer is that of the package ``pytorch_lightning``, or was given
                what is no callback.
        """
        from lightning_hooks.engine.driver.driver import Driver  # which knows its participants

        if not isinstance(trainer, L.Trainer):
            raise TypeError(
                f"{type(self).__name__} needs lightning.Trainer, got that of "
                f"{type(trainer).__module__.partition('.')[0]}: its classes are others; "
                "write `import lightning as L` and L.Trainer, L.LightningModule"
            )
        refuse_misplaced(trainer)
        Driver.of(trainer, stage)


def each_once(entries: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """Return the entries.

    Raises:
        ValueError: if a hook is among them twice.
    """
    for index, (hook, _) in enumerate(entries):
        if any(hook is other for other, _ in entries[:index]):
            raise ValueError(
                f"the same {type(hook).__name__} object is given twice; "
                "a hook takes part in a Trainer once"
            )
    return entries


def host(trainer: L.Trainer, hooks: Iterable[Any], hosted: list[Any], stage: str) -> None:
    """Give the native hooks of adapters their Lightning events: they are Callbacks too.

    Args:
        trainer: The Trainer, whose callbacks they become.
        hooks: Hooks of any kind.
        hosted: Those that became callbacks so; the new ones are added.
        stage: What the Trainer is about to do.
    """
    hooks = list(hooks)
    gone = [old for old in hosted if not any(old is hook for hook in hooks)]
    if gone:  # a module's configure_callbacks made others for this fit
        hosted[:] = [hook for hook in hosted if not any(hook is old for old in gone)]
        kept = [c for c in trainer.callbacks if not any(c is old for old in gone)]  # type: ignore[attr-defined]
        trainer.callbacks = kept  # type: ignore[attr-defined]
    for hook in hooks:
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        if isinstance(hook, Participant) and not any(c is hook for c in callbacks):
            hook.hosted_at = len(hosted)
            hosted.append(hook)
            trainer.callbacks = [*callbacks, hook]  # type: ignore[attr-defined]
            hook.setup(trainer, trainer.lightning_module, stage)


def mute(callbacks: Iterable[Callback]) -> None:
    """Set the events that a callback does not use to None: Lightning skips those.

    Otherwise every callback pays for every event of every batch, used or not.
    """
    for callback in callbacks:
        for name in EVENTS:
            stock = getattr(type(callback), name, None) is getattr(Callback, name)
            if stock and name not in callback.__dict__:  # it may have been set on the instance
                callback.__dict__[name] = None


def leave_out(callback: Callback, owner: type, *events: str) -> None:
    """Set events that a class has no use for in this run to None; the driver puts them back.

    What a subclass makes of them is called all the same.

    Args:
        callback: An object of the class, or of a subclass.
        owner: The class.
        events: Their names.
    """
    for name in events:
        if getattr(type(callback), name) is getattr(owner, name):
            callback.__dict__.setdefault(name, None)


def unmute(callbacks: Iterable[Callback]) -> None:
    """Give the callbacks all their events back; doing it twice does no harm."""
    for callback in callbacks:
        for name in EVENTS:
            if callback.__dict__.get(name, callback) is None:
                del callback.__dict__[name]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Wishes that belong to the Runner; None is no wish."""

    by_epoch: bool | None = None
    work_dir: str | None = None
    meta: dict[str, Any] | None = None
    model: Callable[[Any], torch.nn.Module] | None = None
    attributes: dict[str, Any] | None = None
    owns_backward: bool | Literal["auto"] | None = None
    runner: Any = None


def merge(wishes: Sequence[Settings]) -> Settings:
    """Return what all agree on.

    Raises:
        ValueError: if two differ in one of them: a Trainer has one Runner.
    """
    agreed: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        for wish in wishes:
            value = getattr(wish, field.name)
            if value is None:
                continue
            if not _same(agreed.setdefault(field.name, value), value):
                raise ValueError(
                    f"two HookAdapters of one Trainer differ in {field.name}: "
                    f"{agreed[field.name]!r} and {value!r}; they share one Runner, "
                    "so give it to one of them, or the same to both"
                )
    return Settings(**agreed)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[k], other[k]) for k in one)
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # tensors and arrays
        return False
