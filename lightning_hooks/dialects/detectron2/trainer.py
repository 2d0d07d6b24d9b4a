"""detectron2's ``TrainerBase``, with Lightning as the engine."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from lightning_hooks.dialects.detect import refuse_fast_reid
from lightning_hooks.dialects.detectron2.engine import run_steps
from lightning_hooks.dialects.detectron2.storage import EventStorage
from lightning_hooks.dialects.steps.storage import library
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["TrainerBase"]


class TrainerBase:
    """A loop of steps with hooks: subclasses define ``run_step``.

    While it trains, ``get_event_storage()`` returns its storage, detectron2's own function too if
    the library is loaded.

    Note:
        Departures from detectron2: the iterations run in a ``lightning.Trainer``, one batch each;
        it is made by ``train`` with the arguments ``lightning_options`` of the class.
    """

    lightning_options: Mapping[str, Any] = {}
    """Arguments of the ``lightning.Trainer``: ``callbacks``, ``profiler``."""

    start_iter: int = 0
    max_iter: int
    storage: EventStorage

    def __init__(self) -> None:
        self._hooks: list[Any] = []
        self.iter = 0

    @property
    def rank(self) -> int:
        """Number of this process."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        return torch.distributed.get_rank() if distributed else 0

    @property
    def logger(self) -> logging.Logger:
        """The logger of this package."""
        return default_logger(self.rank)

    def register_hooks(self, hooks: Iterable[Any]) -> None:
        """Add hooks, which are called in this order; None is skipped.

        Raises:
            TypeError: for an object that is no hook of detectron2.
        """
        for hook in hooks:
            if hook is None:
                continue
            refuse_fast_reid(hook)
            if not callable(getattr(hook, "after_step", None)):
                raise TypeError(f"{hook!r} has no after_step(): derive it from HookBase")
            hook.trainer = weakref.proxy(self)
            self._hooks.append(hook)

    def train(self, start_iter: int, max_iter: int) -> None:
        """Run the iterations from one number up to another, with all hooks.

        Args:
            start_iter: Number of the first iteration.
            max_iter: Number after the last iteration.
        """
        self.iter = self.start_iter = start_iter
        self.max_iter = max_iter
        modules = library.storage_modules(("detectron2",), [self, *self._hooks])
        with EventStorage(start_iter) as self.storage, library.entered(self.storage, modules):
            try:
                self.before_train()
                if start_iter < max_iter:
                    steps = range(start_iter, max_iter)
                    run_steps(self, steps, self._run_iteration, **self.lightning_options)
                self.iter += 1  # a complete run is at max_iter
            finally:
                self.after_train()

    def _run_iteration(self, number: int) -> None:
        self.iter = number
        self.before_step()
        self.run_step()
        self.after_step()

    def before_train(self) -> None:
        """Call this point of all hooks."""
        self._call("before_train")

    def after_train(self) -> None:
        """Call this point of all hooks, at the iteration where the run has ended."""
        self.storage.iter = self.iter
        self._call("after_train")

    def before_step(self) -> None:
        """Call this point of all hooks, with the storage at this iteration."""
        self.storage.iter = self.iter
        self._call("before_step")

    def after_backward(self) -> None:
        """Call this point of all hooks that have it."""
        self._call("after_backward")

    def after_step(self) -> None:
        """Call this point of all hooks."""
        self._call("after_step")

    def _call(self, point: str) -> None:
        for hook in self._hooks:
            method = getattr(hook, point, None)
            if method is not None:
                method()

    def run_step(self) -> None:
        """Run one step."""
        raise NotImplementedError(f"{type(self).__name__} must define run_step()")

    def state_dict(self) -> dict[str, Any]:
        """Return the iteration, and the states of the hooks by class."""
        hooks: dict[str, Any] = {}
        for hook in self._hooks:
            state = hook.state_dict() if callable(getattr(hook, "state_dict", None)) else None
            if state:
                hooks.setdefault(type(hook).__qualname__, state)
        return {"iteration": self.iter, **({"hooks": hooks} if hooks else {})}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Restore the iteration and the hooks."""
        self.iter = state_dict["iteration"]
        for key, value in state_dict.get("hooks", {}).items():
            owner = next((h for h in self._hooks if type(h).__qualname__ == key), None)
            if owner is None:
                self.logger.warning("the state of the hook %r is not used: there is no such", key)
            else:
                owner.load_state_dict(value)
