"""Host a hook of another dialect: translate mmcv's points to its own, and save its state."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.dialects.detect import detect
from lightning_hooks.dialects.dialect import DIALECTS, Dialect
from lightning_hooks.engine.error_notes import add_hook_note, stop_iteration_error
from lightning_hooks.engine.points import STAGES

__all__ = ["KEY", "Hosted", "foreign", "host_as", "load_states", "save_states"]


class Hosted:
    """A hook of another dialect with mmcv's points, which it translates.

    The hooks of a dialect may all be called at one of mmcv's points several times, under several
    names (``before_run``, then ``before_train``): each name is finished for all of them before
    the next begins.

    Args:
        hook: The hook.
        dialect: What it is written in.
    """

    def __init__(self, hook: Any, dialect: Dialect) -> None:
        self.foreign_hook = hook
        self.dialect = dialect
        self.facade: Any = None
        self.reached: set[str] = set()
        """The points of ``dialect.on_error`` that this run has reached."""
        self.loaded_state: Any = None
        """What a checkpoint has for the hook, until the run begins."""
        self.loaded_checkpoint: dict[str, Any] | None = None
        """The checkpoint, until the run begins."""

    def __reduce__(self) -> Any:
        return _restore, (self.foreign_hook, self.dialect.name)

    def owns_backward(self, module: Any) -> bool:
        """Whether the hook calls ``backward`` and steps the optimizer."""
        return any(base.__name__ in self.dialect.owners for base in type(self.foreign_hook).__mro__)

    def attach(self, facade: Any) -> None:
        """Take part in a run."""
        if self.facade is not None and not self.facade.ended and self.facade is not facade:
            raise ValueError(
                f"{type(self.foreign_hook).__name__} takes part in a run that goes on; make another"
            )
        self.facade = facade
        self.reached = set()

    @property
    def in_run(self) -> bool:
        """Whether the hook takes part in a run that goes on."""
        return self.facade is not None and not self.facade.ended

    @property
    def is_first(self) -> bool:
        """Whether it is the first hook of its dialect in the run."""
        return self.facade is not None and next(self.facade.hosted()) is self

    def fail(self) -> None:
        """The run ends with an error: call the dialect's hooks that are still to hear of it."""
        if self.facade is not None and self.in_run:
            self.facade.fail()

    # -- as the driver sees it -------------------------------------------------------------

    def get_triggered_stages(self) -> list[str]:
        """mmcv's points at which the hook is called."""
        return [stage for stage in STAGES if self._is_called_at(stage)]

    def _is_called_at(self, point: str) -> bool:
        names = self.dialect.points.get(point, ())
        # a run begins and ends with every hook; where one point is several, the last goes round
        if point in ("before_run", "after_run", *self.dialect.attends) or len(names) > 1:
            return True
        return any(self.does(name) for name in names)

    def __getattr__(self, point: str) -> Any:
        known = self.__dict__.get("dialect")  # not there while a copy is being made
        if known is not None and not point.startswith("_"):
            if point in known.points and self._is_called_at(point):
                return functools.partial(self._run, point)
            others = known.methods.union(STAGES)
            if point not in others and self._method(point) is not None:
                return lambda runner: self.call(point)  # a point of the trainer's own
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {point!r}")

    def _run(self, point: str, runner: Any) -> None:
        facade = self.dialect.facade_of(runner, point)
        facade.arrive(point)
        first, *rest = self.dialect.points[point]
        self.call(first)
        facade.leave(point)
        if rest or point == "after_run":
            everyone = list(facade.hosted())
            if everyone[-1] is self:
                for name in rest:
                    facade.arrive(name)
                    for hosted in everyone:
                        hosted.call(name)
                if point == "after_run":
                    facade.end()

    # -- calls -----------------------------------------------------------------------------

    def _method(self, name: str) -> Any:
        method = getattr(self.foreign_hook, name, None)
        return method if callable(method) else None

    def does(self, name: str) -> bool:
        """Whether the hook has a method of that name that is not its library's empty one."""
        if self._method(name) is None:
            return False
        delegate = self.dialect.delegates.get(name)
        return not self._is_stock(name) or (delegate is not None and not self._is_stock(delegate))

    def _is_stock(self, name: str) -> bool:
        if name in getattr(self.foreign_hook, "__dict__", {}):
            return False
        for cls in type(self.foreign_hook).__mro__:
            if name in vars(cls):
                libraries = (self.dialect.name, "lightning_hooks")
                library = cls.__module__.partition(".")[0] in libraries
                return library and cls.__name__ == self.dialect.base
        return False

    def call_with_checkpoint(self, name: str, checkpoint: dict[str, Any]) -> None:
        """Call a point of the hook that gets a checkpoint, if it takes one."""
        method = self._method(name)
        if method is not None:
            parameters = inspect.signature(method).parameters.values()
            many = any(p.kind is p.VAR_POSITIONAL for p in parameters)
            self.call(name, *([checkpoint] if many or len(parameters) > 1 else []))

    def call(self, name: str, *more: Any, **kwargs: Any) -> None:
        """Call a point of the hook, if it has it; an error says which hook and point it was."""
        facade, method = self.facade, self._method(name)
        if name in self.dialect.on_error:
            self.reached.add(name)
        if method is None or facade is None:
            return
        args, named = self.dialect.arguments(facade, name, method)
        try:
            method(*args, *more, **{**named, **kwargs})
        except StopIteration as error:
            raise stop_iteration_error(error, self.foreign_hook, name, facade) from error
        except TypeError as error:
            if not self.dialect.renames_type_errors:
                add_hook_note(error, self.foreign_hook, name, facade)
                raise
            changed = TypeError(f"{error} in {self.foreign_hook}")
            add_hook_note(changed, self.foreign_hook, name, facade)
            raise changed from error
        except BaseException as error:
            add_hook_note(error, self.foreign_hook, name, facade)
            raise


def host_as(hook: Any, dialect: str = "auto") -> Any:
    """Return the object that the driver calls for a hook: itself if it is mmcv's, else its host."""
    name = detect(hook, dialect)
    return Hosted(hook, DIALECTS[name]) if name in DIALECTS else hook


def foreign(hook: Any) -> Any:
    """Return the hook that was given, where it is hosted."""
    return hook.foreign_hook if isinstance(hook, Hosted) else hook


def _restore(hook: Any, dialect: str) -> Hosted:
    return Hosted(hook, DIALECTS[dialect])


KEY = "lightning_hooks_dialects"
"""The entry of a checkpoint: the state by :func:`keys_of` name."""


def save_states(trainer: L.Trainer, hooks: Sequence[Hosted], checkpoint: dict[str, Any]) -> None:
    """Put the states of the hooks that have a ``state_dict()`` into a checkpoint."""
    keys = keys_of(trainer)
    for facade in dict.fromkeys(hosted.facade for hosted in hooks):
        if facade is not None:  # its run may be over
            facade.save(checkpoint)
    for hosted in hooks:
        hook = hosted.foreign_hook
        state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
        if state:
            checkpoint.setdefault(KEY, {})[keys[id(hook)]] = state
        if hosted.facade is not None:
            hosted.call_with_checkpoint("before_save_checkpoint", checkpoint)


def load_states(trainer: L.Trainer, hooks: Sequence[Hosted], checkpoint: dict[str, Any]) -> None:
    """Keep each hook's state for the beginning of its run; tell of those that nobody wants."""
    states, keys = checkpoint.get(KEY, {}), keys_of(trainer)
    for hosted in hooks:
        hosted.loaded_state = states.get(keys[id(hosted.foreign_hook)])
        hosted.loaded_checkpoint = checkpoint
    if hooks and keys[id(hooks[0].foreign_hook)] == next(iter(keys.values())):  # told once
        unknown = sorted(set(states) - set(keys.values()))
        if unknown:
            rank_zero_warn(
                f"the checkpoint has the state of {', '.join(unknown)}, and there is no such hook "
                f"now; there are: {', '.join(keys.values())}"
            )


def keys_of(trainer: L.Trainer) -> dict[int, str]:
    """Return a name for each hook of another dialect, by its id: its class, numbered if needed."""
    keys: dict[int, str] = {}
    met: Counter[str] = Counter()
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        for entry, _ in getattr(callback, "entries", list)():
            if isinstance(entry, Hosted):
                name = type(entry.foreign_hook).__qualname__
                keys[id(entry.foreign_hook)] = f"{name}[{met[name]}]" if met[name] else name
                met[name] += 1
    return keys
