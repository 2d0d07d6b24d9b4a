"""Run the loop that a subclass of mmcv's runner brings, inside one fit of Lightning's."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

__all__ = ["OwnLoop"]

_OURS = "lightning_hooks."


class OwnLoop:
    """The part of a runner for subclasses with a loop of their own.

    A subclass that overrides ``train`` or ``val``, or ``run`` without ``super().run()``, brings its
    own loop. It runs as written, when a fit of Lightning's starts: the loop counts and calls the
    hooks, and the Trainer's strategy does backward and step. Lightning's own loop and its events
    for batches do not run.
    """

    loops_itself: ClassVar[bool] = False
    """Whether the class brings a loop of its own."""

    run: Callable[..., Any]
    run_iter: Callable[..., Any]
    _engine: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own_run = _is_foreign(cls.run) and _calls_hooks(cls.run)
        cls.loops_itself = own_run or any(
            _is_foreign(getattr(cls, name, None)) for name in ("train", "val")
        )
        if own_run and "run" in vars(cls):
            cls.run = _inside_a_fit(vars(cls)["run"])
        if cls.loops_itself:
            cls.run_iter = _in_precision(cls.run_iter)

    def check_loops_itself(self) -> None:
        """Raise NotImplementedError unless the class brings a loop of its own."""
        if not self.loops_itself:
            raise NotImplementedError(
                "the stand-in's runners train and validate in run(data_loaders, workflow), not by "
                "train(loader) and val(loader)"
            )

    @property
    def outputs(self) -> Any:
        """The outputs of the last step."""
        try:
            return vars(self)["_outputs"]
        except KeyError:
            raise AttributeError("there are no outputs before the first step") from None

    @outputs.setter
    def outputs(self, value: Any) -> None:
        is_new = self.loops_itself and isinstance(value, dict)
        vars(self)["_outputs"] = self._engine.with_strategy_loss(value) if is_new else value


def _inside_a_fit(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def fit_and_run(self: Any, *args: Any, **kwargs: Any) -> None:
        self._engine.fit(functools.partial(run, self, *args, **kwargs))

    return fit_and_run


def _in_precision(run_iter: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run_iter)
    def run(self: Any, *args: Any, **kwargs: Any) -> None:
        with self._engine.precision():
            run_iter(self, *args, **kwargs)

    return run


def _is_foreign(method: Any) -> bool:
    return not getattr(method, "__module__", _OURS).startswith(_OURS)


def _calls_hooks(run: Any) -> bool:
    """Whether a ``run`` has its own loop: it uses ``call_hook`` and never ``super().run``."""
    names = getattr(getattr(inspect.unwrap(run), "__code__", None), "co_names", ())
    return "call_hook" in names and "run" not in names
