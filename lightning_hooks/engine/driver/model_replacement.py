"""Train a model that a hook assigns to ``runner.model``; isolate hooks' calls of the model."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.ownership import is_ours
from lightning_hooks.engine.runner.model_wrapper import ModelWrapper, unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.engine.runner.side_effects import CallGuards

__all__ = ["ModelWatch", "ReplacedModel"]


class ModelWatch:
    """Trains the model that hooks assign, and isolates their calls of it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._replaced = ReplacedModel(runner)
        self._guards: CallGuards | None = None
        self._is_assigned = False
        self._takes_at_once = False

    def assigned(self) -> None:
        """Note that a hook has assigned ``runner.model``."""
        self._is_assigned = True
        if self._takes_at_once:
            # it may be there for a moment only; if it stays, the next step raises what is wrong
            with contextlib.suppress(TypeError, RuntimeError):
                self.take()

    def take(self) -> None:
        """Train and validate with the model that a hook has assigned, if one has."""
        if not self._is_assigned:
            return
        if self._replaced.take() and self._guards is not None:
            self.unguard()
            self.guard()
        self._is_assigned = False

    @contextlib.contextmanager
    def taken_at_once(self) -> Iterator[None]:
        """Take a model when it is assigned: later hooks in the block keep its parameters."""
        self._takes_at_once = True
        try:
            yield
        finally:
            self._takes_at_once = False

    def guard(self) -> None:
        """Isolate the calls that foreign hooks make of the model's methods."""
        runner = self._runner
        foreign = not all(is_ours(hook) for hook in runner.hooks)
        if runner.guards_model and foreign and self._guards is None:
            self._guards = CallGuards(runner, runner.module, unwrap(runner.model))

    def unguard(self) -> None:
        """Restore the model's methods; a second call changes nothing."""
        if self._guards is not None:
            self._guards.remove()
            self._guards = None


_PARTS = ("_parameters", "_buffers", "_modules")


class ReplacedModel:
    """Put a hook's model in the place of the module's, or of the model inside it.

    The model inside (that of a ``TrainStepModule``, or what ``HookAdapter(model=...)`` picks) is
    replaced by the new one. A LightningModule stays the one that Lightning calls, and takes over
    the parameters, buffers and submodules of another of its class. The optimizers are the old
    ones, as in mmcv: a hook that replaces the model replaces their ``param_groups`` too.

    Args:
        runner: The runner, whose ``model`` was assigned.
    """

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._trained, self._wrapper = unwrap(runner.model), runner.model
        self._is_whole = self._trained is runner.module
        self._own = {name: vars(runner.module)[name] for name in _PARTS}

    def take(self) -> bool:
        """Train the model that is assigned now; return whether it is another one.

        Raises:
            TypeError: if it cannot be trained in the old one's place.
            RuntimeError: if the module is trained on several ranks, which would drift apart.
        """
        runner, wanted = self._runner, unwrap(self._runner.model)
        if wanted is self._trained:
            return False
        if runner.world_size > 1 and runner.trainer.state.fn == TrainerFn.FITTING:
            raise RuntimeError(
                "runner.model was replaced in training on several ranks, whose gradients are "
                "synchronised for the old model only; replace it before Trainer.fit()"
            )
        if not self._is_whole:
            _replace(runner.module, self._trained, wanted)
        elif type(wanted) is type(runner.module):
            own = wanted is runner.module
            vars(runner.module).update(self._own if own else {n: vars(wanted)[n] for n in _PARTS})
        else:
            raise TypeError(
                f"runner.model was replaced by a {type(wanted).__name__}, but Lightning runs a "
                f"{type(runner.module).__name__}: assign one of that class, or train a "
                "TrainStepModule(model), whose model may be replaced by any with train_step(); "
                "of another module HookAdapter(model=...) shows hooks the model inside, which "
                "they may replace"
            )
        self._trained = wanted
        if not (isinstance(runner.model, ModelWrapper) and runner.model.host is not None):
            wrap_outputs, runner.model = self._wrapper.wrap_outputs, runner.wrapped(wanted)
            runner.model.wrap_outputs = wrap_outputs
        return True


def _replace(module: torch.nn.Module, old: torch.nn.Module, new: torch.nn.Module) -> None:
    if hasattr(old, "train_step") and not hasattr(new, "train_step"):
        raise TypeError(
            f"runner.model was replaced by a {type(new).__name__}, which has no "
            "train_step(data, optimizer)"
        )
    for name, part in module.named_modules():
        if part is old and name:
            parent, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(parent), attribute, new)
            return
    raise TypeError(
        f"runner.model was replaced by a {type(new).__name__}, but the {type(old).__name__} "
        f"in its place is no part of {type(module).__name__}"
    )
