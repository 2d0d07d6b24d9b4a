"""``Hosted`` calls a hook of another library; ``Facade`` is the run as the hook sees it."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any

import lightning as L
import torch

from lightning_hooks.dialects.dialect import DIALECTS, MMCV, Dialect, detect
from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.error_notes import calling
from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.hook_states import DIALECTS_KEY, finds_none, has_no_owner, has_state
from lightning_hooks.engine.hosted import HostedHook, class_name, foreign, is_one_of
from lightning_hooks.engine.lightning_api import logged_values, validation
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.priority import get_priority
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "Facade",
    "Hosted",
    "foreign",
    "has_base",
    "host_as",
    "load_state_of",
    "load_states",
    "of_runner",
    "save_states",
    "scalars_of",
    "state_of",
]


class Hosted(HostedHook):
    """A hook of another library, called at mmcv's points.

    A point of mmcv may map to several points of the dialect (``before_run``, then
    ``before_train``): the first is called on all hooks of the dialect before the second.

    Args:
        hook: The hook.
        dialect: Its dialect.
    """

    dialect: Dialect

    get_triggered_stages = None
    """Not the hook's own, which MMEngine's hooks have for MMEngine's points."""

    def __init__(self, hook: Any, dialect: Dialect) -> None:
        self.foreign_hook = hook
        self.dialect = dialect
        self.facade: Facade | None = None
        self.reached: set[str] = set()
        """The points of ``dialect.on_error`` already called in this run."""
        self.is_idle = True
        """Whether the run has called none of the hook's methods."""
        self.loaded_state: Any = None
        """The hook's state in a loaded checkpoint, until the run begins."""
        self.loaded_checkpoint: dict[str, Any] | None = None
        """The loaded checkpoint, until the run begins."""

    def forget_file(self) -> None:
        """Drop the loaded state and checkpoint, if no run has begun with them."""
        self.loaded_state = self.loaded_checkpoint = None

    def __reduce__(self) -> Any:
        return host_as, (self.foreign_hook, self.dialect.name)

    def _owns_backward(self, module: Any) -> bool:
        """Return whether the hook calls ``backward`` and steps the optimizer."""
        return any(has_base(self.foreign_hook, name) for name in self.dialect.owners)

    @property
    def cumulative_iters(self) -> int:
        """Iterations of a step that the hook makes: ``accumulate_grad_steps`` of cvpods' hooks."""
        declared = getattr(self.foreign_hook, "accumulate_grad_steps", 1)
        return declared if isinstance(declared, int) else 1

    @property
    def priority(self) -> int:
        """The hook's own priority; NORMAL in a dialect without priorities."""
        own = getattr(self.foreign_hook, "priority", None) if self.dialect.has_priority else None
        return get_priority("NORMAL" if own is None else own)

    def fail(self) -> None:
        """Call the ``on_error`` points of all hooks of the dialect, in an unfinished run."""
        if self.facade is not None and not self.facade.ended:
            self.facade.fail()

    @property
    def acts_after_backward(self) -> bool:
        """Whether the hook has detectron2's ``after_backward``."""
        return "after_backward" in self.known_points and self.implements("after_backward")

    # -- mmcv's points ---------------------------------------------------------------------

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
        first, others = self.dialect.points[point][:1], self.dialect.points[point][1:]
        now = point, runner.iter, runner.inner_iter
        if facade.ended_point == now:  # added by a hook at the last of the dialect's points
            return
        facade.enter_point(point)
        for name in first:
            self.call(name)
        facade.after_call(point)
        if others or point == "after_run":
            hooks = list(facade.hosted_hooks())
            if hooks[-1] is self:
                facade.ended_point = now
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
        facade, method = self.facade, self._method(name)
        if facade is not None and method is not None:
            parameters = inspect.signature(method).parameters.values()
            takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
            with facade.naming_as_model(checkpoint):
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


# -- the run, as hooks see it ------------------------------------------------------------------


def has_base(hook: Any, name: str) -> bool:
    """Return whether a hook's class, or a base of the class, has a name."""
    return any(base.__name__ == name for base in type(hook).__mro__)


def of_runner(name: str, assigned: str = "") -> Any:
    """Return a property of a facade: an attribute of the Runner, read and assigned.

    Args:
        name: Name of the attribute.
        assigned: Name of the attribute for assignments, if different.
    """

    def assign(facade: Any, value: Any) -> None:
        setattr(facade.native_runner, assigned or name, value)

    return property(attrgetter(f"native_runner.{name}"), assign)


class Facade:
    """The runner or trainer that hooks of another library see.

    Subclasses define the attributes of the dialect's library. All other attributes come from the
    Runner: from ``HookAdapter(attributes=...)``, or under mmcv's names. Attributes set by a hook
    are visible to the dialect's other hooks.
    """

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        self.native_runner = runner
        """The Runner of all hooks, whatever their dialect."""
        self._dialect = dialect
        self._entered: tuple[str, int, int] | None = None
        self.ended_point: tuple[str, int, int] | None = None
        """The last point with several points of the dialect, all of them called."""
        self._logged: dict[str, torch.Tensor] = {}  # values of earlier steps
        self.ended = False

    def __getattr__(self, name: str) -> Any:
        if hasattr(type(self), name):  # a property raised: show the property's message
            return object.__getattribute__(self, name)
        # private attributes of the Runner are hidden, unless set by the user
        shown = not name.startswith("_") or name in self.native_runner.given_attributes
        if shown and hasattr(self.native_runner, name):
            return getattr(self.native_runner, name)
        message = f"the run, as hooks of {self._dialect.name} see it, has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=self)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copied or pickled hook has no run

    def _user_attribute(self, name: str) -> Any:
        """Return an attribute set by ``HookAdapter(attributes=...)``, None if missing."""
        return vars(self.native_runner).get(name)

    def logged_in_step(self) -> dict[str, torch.Tensor]:
        """Return the values logged by the module in the current step; for one call in a step."""
        return logged_values.step_metrics(self.native_runner.trainer, self._logged)

    def _validation_results(self) -> dict[str, float]:
        """Return the values logged by the module in the last validation or test."""
        metrics = validation.val_metrics(self.native_runner.trainer)
        return {name: value.item() for name, value in metrics.items()}

    # -- attributes of all dialects --------------------------------------------------------

    iter = property(attrgetter("native_runner.iter"))
    """Number of finished iterations."""
    epoch = property(attrgetter("native_runner.epoch"))
    """Number of finished epochs."""
    optimizer = of_runner("optimizer")
    """The optimizer, or a dict of several by name; an assigned optimizer trains."""
    should_stop = of_runner("should_stop")
    """Whether training ends after this iteration; can be assigned."""
    device = property(attrgetter("native_runner.trainer.strategy.root_device"))
    """The device of the training."""

    is_writer = property(attrgetter("native_runner.is_writer"))
    """Whether this process writes files: on rank 0, unless the run is a ``fast_dev_run``."""

    @property
    def model(self) -> Any:
        """The model without a wrapper; an assigned model is trained from then on."""
        return unwrap(self.native_runner.model)

    @model.setter
    def model(self, value: Any) -> None:
        self.native_runner.model = value

    @property
    def hooks(self) -> list[Any]:
        """The hooks of the run, of all dialects."""
        return [*map(foreign, self.native_runner.hooks)]

    _hooks = hooks

    def register_hook(self, hook: Any, priority: int | str | None = None) -> None:
        """Add a hook to the run; the next point is the hook's first.

        Args:
            hook: A hook of this or another dialect.
            priority: Name, or integer from 0 (first) to 100; the hook's own by default.
        """
        hosted = host_as(hook)
        if getattr(hosted, "dialect", None) is self._dialect:
            self.attach(hosted)
        self.native_runner.register_hook(hosted, priority)

    def register_hooks(self, hooks: Iterable[Any]) -> None:
        """Add several hooks; None is skipped."""
        for hook in hooks:
            if hook is not None:
                self.register_hook(hook)

    # -- events ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a run: attach the hooks."""
        for hosted in self.hosted_hooks():
            self.attach(hosted)

    def attach(self, hosted: Hosted) -> None:
        """Add a hook to the run."""
        hosted.facade = self
        hosted.reached, hosted.is_idle = set(), True

    def check_stepped_once(self, hosted: Hosted, schedulers: Iterable[Any]) -> None:
        """Check that Lightning does not step a scheduler that a hook steps.

        Raises:
            ValueError: for a scheduler of the hook that ``configure_optimizers()`` returns, too.
        """
        trainer, steps_itself = self.native_runner.trainer, [*schedulers]
        if not self.native_runner.module.automatic_optimization:  # Lightning steps no scheduler
            return
        for config in trainer.lr_scheduler_configs:
            if is_one_of(config.scheduler, steps_itself):
                raise ValueError(
                    f"{type(config.scheduler).__name__} would be stepped twice, by the hook "
                    f"{class_name(hosted)} and by Lightning: let configure_optimizers() return the "
                    "optimizer alone, or leave out the hook"
                )

    def load_states(self) -> None:
        """Restore the hooks from a checkpoint, before the first call of any hook."""
        for hosted in self.hosted_hooks():
            state, hosted.loaded_state = hosted.loaded_state, None
            load = getattr(hosted.foreign_hook, "load_state_dict", None)
            if state is not None and callable(load):
                load(state)

    def pass_loaded_checkpoint(self) -> None:
        """Call ``after_load_checkpoint`` of the hooks in a resumed run."""
        for hosted in self.hosted_hooks():
            checkpoint, hosted.loaded_checkpoint = hosted.loaded_checkpoint, None
            if checkpoint is not None:
                hosted.call_with_checkpoint("after_load_checkpoint", checkpoint)

    @contextlib.contextmanager
    def naming_as_model(self, checkpoint: dict[str, Any]) -> Iterator[None]:
        """Name the weights in a checkpoint as ``model`` does, in the block."""
        weights, parts = checkpoint.get("state_dict", {}), self.native_runner.module.named_modules()
        prefix = next((f"{name}." for name, part in parts if name and part is self.model), "")
        own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        if not prefix or not own:  # the module itself, or already the names of the model
            yield
            return
        checkpoint["state_dict"] = own
        try:
            yield
        finally:
            weights.update({prefix + k: v for k, v in checkpoint["state_dict"].items()})
            checkpoint["state_dict"] = weights

    def enter_point(self, point: str) -> None:
        """Prepare for a point, before the call of the dialect's first hook."""
        runner = self.native_runner
        now = point, runner.iter, runner.inner_iter  # inner_iter: the batch of a validation
        if self._entered != now:
            self._entered = now
            self.prepare(point)

    def prepare(self, point: str) -> None:
        """Call the facade's method for a point, ``at_{point}``, if defined."""
        method = getattr(type(self), f"at_{point}", None)
        if method is not None:
            method(self)

    def calling(self, point: str) -> AbstractContextManager[None]:
        """Return the context manager around a hook's call at a point."""
        return contextlib.nullcontext()

    def after_call(self, point: str) -> None:
        """Run after each of the dialect's hooks at a point of mmcv."""

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Add the facade's state to a checkpoint."""

    def report(self) -> None:
        """Warn of each hook without a call in the run."""
        for hosted in self.hosted_hooks():
            reason = hosted.why_idle()
            if reason is not None:
                message = "%s, a hook of %s, was never called: %s"
                name = self._dialect.name
                self.native_runner.logger.warning(message, class_name(hosted), name, reason)

    def end(self) -> None:
        """End the run; may be called twice."""
        self.ended = True

    def hosted_hooks(self) -> Iterator[Hosted]:
        """Yield the dialect's hooks of the run, in the order of their calls."""
        for entry in self.native_runner.hooks:
            if getattr(entry, "dialect", None) is self._dialect:
                yield entry

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call a point of all hooks of the dialect; the name may be a point of the user's own.

        Args:
            fn_name: Name of the point. Hooks without a method of the name are skipped.
            kwargs: Arguments added to the arguments of the dialect.
        """
        with setting(self.native_runner, calls_hooks=True):
            for hosted in list(self.hosted_hooks()):
                hosted.call(fn_name, **kwargs)

    def fail(self) -> None:
        """End the run after an error: call each ``on_error`` point once for each hook."""
        for name in self._dialect.on_error:
            for hosted in list(self.hosted_hooks()):
                if name not in hosted.reached:
                    try:
                        hosted.call(name)
                    except Exception as error:  # Lightning raises the first error
                        self.native_runner.logger.error(
                            "%s.%s, called after an error, fails too: %r",
                            *(class_name(hosted), name, error),
                        )
        self.end()


def state_of(owner: Any) -> Any:
    """Return the state of an optimizer or scheduler, the states of a list, or of a dict by name."""
    if isinstance(owner, dict):
        return {name: state_of(each) for name, each in owner.items()}
    return [*map(state_of, owner)] if isinstance(owner, (list, tuple)) else owner.state_dict()


def load_state_of(owner: Any, state: Any) -> None:
    """Restore an optimizer or scheduler, a list, or a dict by name."""
    if isinstance(owner, (dict, list, tuple)):
        for key in owner if isinstance(owner, dict) else range(len(owner)):
            load_state_of(owner[key], state[key])
    else:
        owner.load_state_dict(state)


def scalars_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers and the one-element tensors among the values; tensors are detached."""
    scalars: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            if value.numel() == 1:
                scalars[name] = value.detach().as_subclass(torch.Tensor)
        elif isinstance(value, (int, float)):
            scalars[name] = value
    return scalars


# -- states ------------------------------------------------------------------------------------


def save_states(file: CheckpointFile, hooks: Sequence[Any]) -> None:
    """Add the ``state_dict()`` of each hook to a file.

    Args:
        file: The file.
        hooks: Hooks that are no callbacks, of mmcv or of another library.
    """
    keys, checkpoint = keys_of(file.trainer), file.contents
    hosted = [hook for hook in hooks if isinstance(hook, Hosted)]
    for facade in dict.fromkeys(hook.facade for hook in hosted):
        if facade is not None:
            facade.save(checkpoint)
    for hook in map(foreign, hooks):
        state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
        if state:
            checkpoint.setdefault(DIALECTS_KEY, {})[keys[id(hook)]] = state
    for hook in hosted:
        hook.call_with_checkpoint("before_save_checkpoint", checkpoint)


def load_states(file: CheckpointFile, hooks: Sequence[Any]) -> None:
    """Restore the states of hooks from a file; warn of states without a hook.

    Hooks of other libraries get the states when the run begins. A resumed run also warns of each
    stateful hook without a state in the checkpoint.
    """
    states, keys = file.contents.get(DIALECTS_KEY, {}), keys_of(file.trainer)
    for hosted in hooks:
        hook = foreign(hosted)
        state = states.get(keys[id(hook)])
        if isinstance(hosted, Hosted):
            hosted.loaded_state = state
            if "after_load_checkpoint" in hosted.dialect.methods:
                hosted.loaded_checkpoint = file.contents
            Driver.of(file.trainer).fit.callback(hosted.forget_file)
        elif state is not None:
            hook.load_state_dict(state)
        stateful = callable(getattr(hook, "state_dict", None))
        if file.resumes and stateful and state is None and has_state(hook):
            rank_zero_warn(finds_none("no state", keys[id(hook)]))
    # of several adapters, the adapter of the first hook warns
    if hooks and keys[id(foreign(hooks[0]))] == next(iter(keys.values())):
        for unknown in sorted(set(states) - set(keys.values())):
            rank_zero_warn(has_no_owner("the state", unknown))


def keys_of(trainer: L.Trainer) -> dict[int, str]:
    """Return the checkpoint key of each hosted hook by its id: class name, then number."""
    keys: dict[int, str] = {}
    count: Counter[str] = Counter()
    for hook in map(foreign, Driver.of(trainer).roster.hooks):
        if not isinstance(hook, HookCallback):
            name = type(hook).__qualname__
            keys[id(hook)] = f"{name}[{count[name]}]" if count[name] else name
            count[name] += 1
    return keys
