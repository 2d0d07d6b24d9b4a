"""Train a model assigned to ``runner.model`` by a hook; isolate hooks' calls of the model."""

from __future__ import annotations

import contextlib
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.lightning_api import model_state
from lightning_hooks.engine.lightning_api.method_patch import FitChanges, MethodPatch
from lightning_hooks.engine.runner.model_wrapper import ModelWrapper, isolated_model_calls, unwrap
from lightning_hooks.engine.runner.runner import Runner

__all__ = ["ModelWatch"]

STEPS = (
    "forward",
    "training_step",
    "validation_step",
    "test_step",
    "predict_step",
    "train_step",
    "val_step",
)
"""The methods of Lightning and mmcv that run a model."""


class _Guard(MethodPatch):
    """A method that is isolated when called by a hook."""

    def __init__(self, part: torch.nn.Module, name: str, runner: Runner) -> None:
        super().__init__(part, name)
        self._runner = runner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._runner.calls_hooks:
            return self._call(*args, **kwargs)
        with isolated_model_calls(self._runner):
            return self._call(*args, **kwargs)


class ModelWatch:
    """Trains models assigned by hooks, and isolates hooks' calls of the model.

    The model inside (of a ``TrainStepModule``, or picked by ``HookAdapter(model=...)``) is
    replaced. A LightningModule stays the object called by Lightning, and takes over the
    parameters, buffers and submodules of another module of the same class. The optimizers stay, as
    in mmcv: a hook that replaces the model also replaces ``param_groups``.
    """

    def __init__(self, runner: Runner, fit: FitChanges) -> None:
        self._runner, self._fit = runner, fit
        self._trained = unwrap(runner.model)
        self._is_whole = self._trained is runner.module
        self._own = model_state.parts_of(runner.module)
        self._guards: contextlib.ExitStack | None = None

    def assigned(self) -> None:
        """Use a model that a hook assigns to ``runner.model``: later hooks keep its parameters."""
        # the model may be assigned for a moment only; else the next step raises the error
        with contextlib.suppress(TypeError, RuntimeError):
            self.take()

    def take(self) -> None:
        """Train and validate with the assigned model, if a hook has assigned a model."""
        if self._replace() and self._guards is not None:
            self._guards.close()
            self._guards = None
            self.guard()

    def guard(self) -> None:
        """Isolate hooks' calls of the model's methods."""
        runner = self._runner
        if self._guards is None:
            self._guards = self._fit.part()
            for part in dict.fromkeys((runner.module, unwrap(runner.model))):
                for name in STEPS:
                    if _defines(part, name):
                        self._fit.hold(_Guard(part, name, runner), self._guards)

    def _replace(self) -> bool:
        """Train the assigned model; return whether the model has changed.

        Raises:
            TypeError: if the new model cannot be trained in place of the old model.
            RuntimeError: if the module is trained on several ranks: the ranks would drift apart.
        """
        runner, wanted = self._runner, unwrap(self._runner.model)
        if wanted is self._trained:
            return False
        if runner.world_size > 1 and runner.trainer.state.fn == TrainerFn.FITTING:
            raise RuntimeError(
                "runner.model was replaced in training on several ranks, but gradients are "
                "synchronised for the old model only; replace the model before Trainer.fit()"
            )
        if not self._is_whole:
            _replace(runner.module, self._trained, wanted)
        elif type(wanted) is type(runner.module):
            own = wanted is runner.module
            parts = self._own if own else model_state.parts_of(wanted)
            model_state.set_parts(runner.module, parts)
        else:
            raise TypeError(
                f"runner.model was replaced by a {type(wanted).__name__}, but Lightning runs a "
                f"{type(runner.module).__name__}: assign a module of the same class; or train a "
                "TrainStepModule(model), where any model with train_step() may replace the model; "
                "or let hooks replace a model inside the module, with HookAdapter(model=...)"
            )
        self._trained = wanted
        if not (isinstance(runner.model, ModelWrapper) and runner.model.host is not None):
            runner.model = ModelWrapper(wanted, runner)
        return True


def _replace(module: torch.nn.Module, old: torch.nn.Module, new: torch.nn.Module) -> None:
    if hasattr(old, "train_step") and not hasattr(new, "train_step"):
        raise TypeError(
            f"runner.model was replaced by a {type(new).__name__} without "
            "train_step(data, optimizer)"
        )
    if not model_state.replace_submodule(module, old, new):
        raise TypeError(
            f"runner.model was replaced by a {type(new).__name__}, but the {type(old).__name__} "
            f"in its place is no part of {type(module).__name__}"
        )


def _defines(part: torch.nn.Module, name: str) -> bool:
    stock = [getattr(base, name, None) for base in (L.LightningModule, torch.nn.Module)]
    return name in part.__dict__ or getattr(type(part), name, None) not in [None, *stock]
