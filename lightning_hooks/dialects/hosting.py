"""``Hosted``: calls a hook of another library at mmcv's points, and saves the hook's state."""

from __future__ import annotations

import functools
import inspect
from collections import Counter
from collections.abc import Sequence
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.dialects.dialect import DIALECTS, MMCV, Dialect, detect
from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.hook_states import DIALECTS_KEY, finds_none, has_no_owner, has_state
from lightning_hooks.engine.hosted import HostedHook, foreign
from lightning_hooks.engine.participant import Participant, hooks_of
from lightning_hooks.engine.points import STAGES
from lightning_hooks.engine.priority import get_priority
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["Hosted", "foreign", "host_as", "load_states", "save_states"]


class Hosted(HostedHook):
    """A hook of another library, called at mmcv's points.

    A point of mmcv may map to several points of the dialect (``before_run``, then
    ``before_train``): the first is called on all hooks of the dialect before the second.

    Args:
        hook: The hook.
        dialect: Its dialect.
    """

    dialect: Dialect

    def __init__(self, hook: Any, dialect: Dialect) -> None:
        self.foreign_hook = hook
        self.dialect = dialect
        self.facade: Any = None
        self.reached: set[str] = set()
        """The points of ``dialect.on_error`` already called in this run."""
        self.is_idle = True
        """Whether the run has called none of the hook's methods."""
        self.loaded_state: Any = None
        """The hook's state in a loaded checkpoint, until the run begins."""
        self.loaded_checkpoint: dict[str, Any] | None = None
        """The loaded checkpoint, until the run begins."""

    def __reduce__(self) -> Any:
        return host_as, (self.foreign_hook, self.dialect.name)

    def owns_backward(self, module: Any) -> bool:
        """Return whether the hook calls ``backward`` and steps the optimizer."""
        return any(base.__name__ in self.dialect.owners for base in type(self.foreign_hook).__mro__)

    @property
    def priority(self) -> int:
        """The hook's own priority; NORMAL in a dialect without priorities."""
        own = getattr(self.foreign_hook, "priority", None) if self.dialect.has_priority else None
        return get_priority("NORMAL" if own is None else own)

    @property
    def in_run(self) -> bool:
        """Whether the hook takes part in an unfinished run."""
        return self.facade is not None and not self.facade.ended

    def fail(self) -> None:
        """Call the ``on_error`` points of all hooks of the dialect."""
        if self.in_run:
            self.facade.fail()

    @property
    def acts_after_backward(self) -> bool:
        """Whether the hook has detectron2's ``after_backward``."""
        return "after_backward" in self.known_points and self.implements("after_backward")

    # -- mmcv's points ---------------------------------------------------------------------

    def get_triggered_stages(self) -> list[str]:
        """Return the points of mmcv at which the hook is called."""
        return [stage for stage in STAGES if self.is_called_at(stage)]

    def is_called_at(self, point: str) -> bool:
        """Return whether the hook or the facade has work at a point of mmcv."""
        names = self.dialect.points.get(point, ())
        # every hook begins and ends a run; the last hook calls the second of several points
        if point in ("before_run", "after_run", *self.dialect.facade_points) or len(names) > 1:
            return True
        return any(self.implements(name) for name in names)

    def __getattr__(self, point: str) -> Any:
        dialect = self.__dict__.get("dialect")  # missing during copy
        if dialect is not None and not point.startswith("_"):
            if point in dialect.points and self.is_called_at(point):
                return functools.partial(self.run_point, point)
            if point not in dialect.methods.union(MMCV) and self._method(point) is not None:
                return lambda runner: self.call(point)  # a point of the user's own
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {point!r}")

    def run_point(self, point: str, runner: Runner) -> None:
        """Call the dialect's points at a point of mmcv."""
        facade = self.dialect.facade_of(runner, point)
        first, *others = self.dialect.points[point]
        facade.enter_point(point)
        self.call(first)
        facade.after_call(point)
        if others or point == "after_run":
            hooks = list(facade.hosted_hooks())
            if hooks[-1] is self:
                for name in others:
                    facade.enter_point(name)
                    for hosted in hooks:
                        hosted.call(name)
                if point == "after_run":
                    facade.report()
                    facade.end()

    # -- calls -----------------------------------------------------------------------------

    def _method(self, name: str) -> Any:
        method = getattr(self.foreign_hook, name, None)
        return method if callable(method) else None

    known_points = property(lambda self: self.dialect.methods)
    """The names of the dialect's points."""
    step_point = property(lambda self: self.dialect.points["after_train_iter"][0])
    """The name of the point after a training step."""

    def why_idle(self) -> str | None:
        """Return why a fit called no point of the hook; None if no call is missing."""
        own = {name for name in self.dialect.methods if self.implements(name)}
        if not self.is_idle or (own and own <= {*self.dialect.further, *self.dialect.on_error}):
            return None
        if own:
            return f"the run came to none of its points ({', '.join(sorted(own))})"
        return f"it has none of the points ({', '.join(sorted(self.dialect.methods))})"

    def implements(self, name: str) -> bool:
        """Return whether the hook defines a point; the base class's empty method does not count."""
        if self._method(name) is None:
            return False
        delegate = self.dialect.delegates.get(name)
        return not self._is_empty(name) or (delegate is not None and not self._is_empty(delegate))

    def _is_empty(self, name: str) -> bool:
        """Return whether a method is inherited from the library's base class."""
        if name in getattr(self.foreign_hook, "__dict__", {}):
            return False
        for cls in type(self.foreign_hook).__mro__:
            if name in vars(cls):
                package = cls.__module__.partition(".")[0]
                is_known = package in ("lightning_hooks", *self.dialect.packages)
                return is_known and cls.__name__ == self.dialect.base
        return False

    def call_with_checkpoint(self, name: str, checkpoint: dict[str, Any]) -> None:
        """Call a point of the hook, with the checkpoint if the method accepts it."""
        method = self._method(name)
        if method is not None:
            parameters = inspect.signature(method).parameters.values()
            takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
            with self.facade.naming_as_model(checkpoint):
                self.call(name, *([checkpoint] if takes_any or len(parameters) > 1 else []))

    def call(self, name: str, *more: Any, **kwargs: Any) -> None:
        """Call a point of the hook, if defined; errors get a note with hook and point."""
        facade, method = self.facade, self._method(name)
        if name in self.dialect.on_error:
            self.reached.add(name)
        if method is None or facade is None:
            return
        if self.is_idle and self.implements(name):
            self.is_idle = False
        args, named = self.dialect.arguments(facade, name, method)
        with calling(self, name, facade):
            try:
                with facade.calling(name):
                    method(*args, *more, **{**named, **kwargs})
            except TypeError as error:
                if not self.dialect.renames_type_errors:
                    raise
                raise TypeError(f"{error} in {self.foreign_hook}") from error


def host_as(hook: Any, dialect: str = "auto") -> Any:
    """Return an object with mmcv's points: the hook itself, or a ``Hosted`` around it."""
    name = detect(hook, dialect)
    return Hosted(hook, DIALECTS[name]) if name in DIALECTS else hook


# -- states ------------------------------------------------------------------------------------


def save_states(trainer: L.Trainer, hooks: Sequence[Any], checkpoint: dict[str, Any]) -> None:
    """Add the ``state_dict()`` of each hook to a checkpoint.

    Args:
        trainer: The Trainer.
        hooks: Hooks that are no callbacks, of mmcv or of another library.
        checkpoint: Lightning's dict, changed.
    """
    keys = keys_of(trainer)
    hosted = [hook for hook in hooks if isinstance(hook, Hosted) and hook.facade is not None]
    for facade in dict.fromkeys(one.facade for one in hosted):
        facade.save(checkpoint)
    for hook in map(foreign, hooks):
        state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
        if state:
            checkpoint.setdefault(DIALECTS_KEY, {})[keys[id(hook)]] = state
    for one in hosted:
        one.call_with_checkpoint("before_save_checkpoint", checkpoint)


def load_states(trainer: L.Trainer, hooks: Sequence[Any], checkpoint: dict[str, Any]) -> None:
    """Give each hook its state, of another library when the run begins; warn of states left over.

    A resumed run also warns of each stateful hook without a state in the checkpoint.
    """
    states, keys = checkpoint.get(DIALECTS_KEY, {}), keys_of(trainer)
    resumes = trainer.state.fn == TrainerFn.FITTING
    for one in hooks:
        hook = foreign(one)
        state = states.get(keys[id(hook)])
        if isinstance(one, Hosted):
            one.loaded_state = state
            if "after_load_checkpoint" in one.dialect.methods:
                one.loaded_checkpoint = checkpoint
        elif state is not None:
            hook.load_state_dict(state)
        stateful = callable(getattr(hook, "state_dict", None))
        if resumes and stateful and state is None and has_state(hook):
            rank_zero_warn(finds_none("no state", keys[id(hook)]))
    # of several adapters, the adapter of the first hook warns
    if hooks and keys[id(foreign(hooks[0]))] == next(iter(keys.values())):
        for unknown in sorted(set(states) - set(keys.values())):
            rank_zero_warn(has_no_owner("the state", unknown))


def keys_of(trainer: L.Trainer) -> dict[int, str]:
    """Return the checkpoint key of each hosted hook by its id: class name, then number."""
    keys: dict[int, str] = {}
    count: Counter[str] = Counter()
    for hook in map(foreign, hooks_of(trainer)):
        if not isinstance(hook, Participant):
            name = type(hook).__qualname__
            keys[id(hook)] = f"{name}[{count[name]}]" if count[name] else name
            count[name] += 1
    return keys
