"""The view of a run that hooks of another library get in place of mmcv's runner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from lightning_hooks.dialects.dialect import Dialect
from lightning_hooks.dialects.hosting import Hosted, host_as
from lightning_hooks.engine.runner.model_wrapper import unwrap

__all__ = ["Facade"]


class Facade:
    """What the hooks of a dialect see of a run.

    What a dialect's library has is a property or a method of a subclass. Anything else is looked
    for on the Runner: what the user gave in ``HookAdapter(attributes=...)``, and what mmcv has
    under the same name. Any attribute may be set, and is seen by the dialect's other hooks.
    """

    def __init__(self, runner: Any, dialect: Dialect) -> None:
        self._runner = runner
        self._dialect = dialect
        self._here: tuple[str, int, int] | None = None
        self.ended = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # of the Runner's insides nothing is shown
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return getattr(self._runner, name)

    def __reduce__(self) -> Any:
        return type(None), ()  # a copied or pickled hook has left its run

    # -- the run, as every dialect has it --------------------------------------------------

    @property
    def iter(self) -> int:
        """Training iterations done; within an iteration, those before it."""
        done: int = self._runner.iter
        return done

    @property
    def epoch(self) -> int:
        """Epochs done; within an epoch, those before it."""
        done: int = self._runner.epoch
        return done

    @property
    def model(self) -> Any:
        """The model without a wrapper; one that is assigned trains from then on."""
        return unwrap(self._runner.model)

    @model.setter
    def model(self, value: Any) -> None:
        self._runner.model = value

    @property
    def optimizer(self) -> Any:
        """The optimizer, or a dict of them by name."""
        return self._runner.optimizer

    @property
    def device(self) -> Any:
        """The device of the training."""
        return self._runner.trainer.strategy.root_device

    @property
    def hooks(self) -> list[Any]:
        """The hooks of the run, of all dialects, as they were given."""
        return [getattr(entry, "foreign_hook", entry) for entry in self._runner.hooks]

    @property
    def _hooks(self) -> list[Any]:
        return self.hooks

    def register_hook(self, hook: Any, priority: int | str | None = None) -> None:
        """Add a hook to the run that goes on; it is called from the next point on.

        Args:
            hook: A hook of this or another dialect.
            priority: A name, or an integer from 0 (first) to 100; its own by default.
        """
        hosted = host_as(hook)
        if getattr(hosted, "dialect", None) is self._dialect:
            self.take_in(hosted)
        if priority is None and self._dialect.has_priority:
            priority = getattr(hook, "priority", None)
        self._runner.register_hook(hosted, priority)

    def register_hooks(self, hooks: Iterable[Any]) -> None:
        """Add several, without what is None."""
        for hook in hooks:
            if hook is not None:
                self.register_hook(hook)

    @property
    def should_stop(self) -> bool:
        """Whether training ends after this iteration; set it to make it so."""
        return bool(self._runner.should_stop)

    @should_stop.setter
    def should_stop(self, value: bool) -> None:
        self._runner.should_stop = value

    # -- what happens on the way -----------------------------------------------------------

    def begin(self) -> None:
        """Get ready; the hooks are told of the facade."""
        hooks = [hosted.foreign_hook for hosted in self.hosted()]
        for index, hook in enumerate(hooks):
            if any(hook is other for other in hooks[:index]):
                raise ValueError(
                    f"the same {type(hook).__name__} object is given twice; "
                    "a hook takes part in a Trainer once"
                )
        for hosted in self.hosted():
            self.take_in(hosted)

    def take_in(self, hosted: Hosted) -> None:
        """Tell a hook of the run that it takes part in."""
        hosted.attach(self)

    def take_checkpoint(self) -> None:
        """Give the hooks what a checkpoint has for them, before any of them is called."""
        for hosted in self.hosted():
            state, hosted.loaded_state = hosted.loaded_state, None
            load = getattr(hosted.foreign_hook, "load_state_dict", None)
            if state is not None and callable(load):
                load(state)

    def arrive(self, point: str) -> None:
        """Do what comes before the dialect's first hook at one of mmcv's points."""
        here = point, self._runner.iter, self._runner.inner_iter  # the batch of a validation
        if self._here != here:
            self._here = here
            self.prepare(point)

    def prepare(self, point: str) -> None:
        """Do what a facade has to do at a point, once for all hooks."""
        own = getattr(type(self), f"at_{point}", None)
        if own is not None:
            own(self)

    def leave(self, point: str) -> None:
        """Do what comes after each of the dialect's hooks at one of mmcv's points."""

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Put what a run that goes on needs into a checkpoint."""

    def end(self) -> None:
        """Give back what the run has had; doing it twice does no harm."""
        self.ended = True

    def hosted(self) -> Iterator[Hosted]:
        """The dialect's hooks of the run, in their order."""
        for entry in self._runner.hooks:
            if getattr(entry, "dialect", None) is self._dialect:
                yield entry

    def call_hook(self, fn_name: str, **kwargs: Any) -> None:
        """Call a point of all hooks of the dialect that have it, also one of the trainer's own.

        Args:
            fn_name: The point.
            kwargs: Passed on, after what the dialect passes itself.
        """
        runner = self._runner
        outer, runner.calls_hooks = runner.calls_hooks, True
        try:
            for hosted in list(self.hosted()):
                hosted.call(fn_name, **kwargs)
        finally:
            runner.calls_hooks = outer

    def validate(self, point: str) -> None:
        """Call a point of a validation where the driver, as mmcv, has none: among iterations.

        Args:
            point: ``before_val_epoch`` or ``after_val_epoch``.
        """
        runner = self._runner
        if runner.counts_epochs or point not in self._dialect.points:
            return
        outer, runner.calls_hooks = runner.calls_hooks, True
        try:
            for hosted in list(self.hosted()):
                getattr(hosted, point, _nothing)(runner)
        finally:
            runner.calls_hooks = outer

    def fail(self) -> None:
        """Call what is reached also when training raises, on the hooks that it was not."""
        if self.ended:
            return
        for name in self._dialect.on_error:
            for hosted in list(self.hosted()):
                if name not in hosted.reached:
                    try:
                        hosted.call(name)
                    except Exception as error:  # the one that ended the training is raised
                        self._runner.logger.error(
                            "%s.%s, called after an error, fails too: %r",
                            *(type(hosted.foreign_hook).__name__, name, error),
                        )
        self.end()


def _nothing(runner: Any) -> None:
    """Stand in for a point that a hook does not have."""
