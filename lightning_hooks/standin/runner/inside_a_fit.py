"""Run a runner's loop inside one fit of Lightning's: in its precision, through its strategy."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from lightning_hooks.engine.runner.model_wrapper import StepOutputs

__all__ = ["InsideAFit"]

_OURS = "lightning_hooks."


class InsideAFit:
    """The part of a runner that makes Lightning the engine of its loop.

    The loop is mmcv's: it counts, fetches the batches and calls the hooks. It runs when a fit of
    Lightning's starts, also where a subclass brings a ``run``, ``train`` or ``val`` of its own.
    Each ``run_iter`` runs in the Trainer's precision, and ``loss.backward()`` and
    ``optimizer.step()`` go through its strategy.
    """

    run: Callable[..., Any]
    run_iter: Callable[..., Any]
    _engine: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = vars(cls)
        if "run_iter" in own:
            cls.run_iter = _in_precision(own["run_iter"])
        if "run" in own and not cls.__module__.startswith(_OURS) and _calls_hooks(own["run"]):
            cls.run = _inside_a_fit(own["run"])

    @property
    def outputs(self) -> Any:
        """The outputs of the last step."""
        try:
            return vars(self)["_outputs"]
        except KeyError:
            raise AttributeError("there are no outputs before the first step") from None

    @outputs.setter
    def outputs(self, value: Any) -> None:
        if isinstance(value, dict):
            value = StepOutputs.of(self, self._engine.with_strategy_loss(value))
        vars(self)["_outputs"] = value


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


def _calls_hooks(run: Any) -> bool:
    """Whether a ``run`` has its own loop: it uses ``call_hook`` and never ``super().run``."""
    names = getattr(getattr(inspect.unwrap(run), "__code__", None), "co_names", ())
    return "call_hook" in names and "run" not in names
