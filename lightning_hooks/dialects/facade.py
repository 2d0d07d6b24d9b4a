"""``Facade``: the runner or trainer passed to hooks of another library."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Any

import torch

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.hosting import Hosted, host_as
from lightning_hooks.engine.error_notes import class_name
from lightning_hooks.engine.hosted import foreign
from lightning_hooks.engine.lightning_api import logged_values, validation
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["Facade", "load_state_of", "of_runner", "scalars_of", "state_of"]


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
    """The runner or trainer passed to the hooks of a dialect.

    Subclasses define the attributes of the dialect's library. All other attributes come from the
    Runner: from ``HookAdapter(attributes=...)``, or under mmcv's names. Attributes set by a hook
    are visible to the dialect's other hooks.
    """

    packages: tuple[str, ...] = ()
    """Packages of the library, besides a package with the dialect's name."""

    def __init__(self, runner: Runner, dialect: Dialect) -> None:
        self.native_runner = runner
        """The Runner of all hooks, whatever their dialect."""
        self._dialect = dialect
        self._entered: tuple[str, int, int] | None = None
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

    @property
    def writes_files(self) -> bool:
        """Whether this process writes files: on rank 0, unless the run is a ``fast_dev_run``."""
        return self.native_runner.rank == 0 and self.native_runner.writes_files

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
