"""Actions on an invalid loss that restore the last good state of the run.

The state is the newest checkpoint of the run, or a copy in memory before the first checkpoint.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning_utilities.core.apply_func import apply_to_collection
from torch import nn
from torch.utils import _pytree as pytree

from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api import progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.averaging.base import AveragingHook, averages_of
from lightning_hooks.hooks.averaging.saved_average import find_averages
from lightning_hooks.hooks.invalid_loss.actions import Action, InvalidLossError
from lightning_hooks.hooks.invalid_loss.loss_history import Reading
from lightning_hooks.hooks.saving.due import files_of
from lightning_hooks.storage import files, verification
from lightning_hooks.storage.checkpoint_io import wait_for_writer
from lightning_hooks.storage.layout import raw_weights
from lightning_hooks.utils import ranks
from lightning_hooks.utils.dtensors import local_part

if TYPE_CHECKING:
    from lightning_hooks.hooks.invalid_loss.check import CheckInvalidLossHook

__all__ = ["LastGoodState", "Restore", "Stop"]


class Restore(Action):
    """Restores the last good state, up to ``max_restores`` times, and then raises."""

    keeps_state = True

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        super().__init__(hook, runner)
        self._state = LastGoodState(runner.trainer)
        self._restores = 0
        self._resumed = False
        self._limit: int | None = hook.max_restores

    def resume(self, state: Mapping[str, Any]) -> None:
        """Have the checkpoint as the last good state, as its run has, until the next."""
        self._resumed = True

    def begin(self) -> None:
        """Keep the state at the start."""
        self._state.keep(is_of_file=self._resumed)

    def handle(self, reading: Reading, at_interval: bool) -> None:
        """Keep a good state; restore the last one after a bad reading."""
        if reading.all_good:
            if at_interval:
                self._state.keep()
            return
        if self._limit is not None and self._restores >= self._limit:
            raise InvalidLossError(
                f"{self.describe(reading)}\nmax_restores={self._limit}: the last good state "
                f"has been put back {self._restores} times already"
            )
        self._restores += 1
        source = self._state.restore()
        self.runner.logger.warning(
            "%s\nput back weights, optimizers and averages from %s; %s",
            self.describe(reading),
            source,
            self.proceed(),
        )

    def proceed(self) -> str:
        """Continue after a restore; return a phrase for the log."""
        limit = "" if self._limit is None else f" of {self._limit}"
        return f"training goes on (restore {self._restores}{limit})"

    def on_saved(self, path: Any) -> None:
        """Use this checkpoint for the next restores."""
        self._state.add_file(path)

    def after_error(self, reading: Reading) -> None:
        """Restore the good state: a callback may write a checkpoint because of the error."""
        super().after_error(reading)
        if not reading.all_good:
            if self.runner.world_size == 1:
                self._state.restore()
            else:
                self._state.restore_copy()


class Stop(Restore):
    """Restores the last good state and ends training."""

    def __init__(self, hook: CheckInvalidLossHook, runner: Runner) -> None:
        super().__init__(hook, runner)
        self._limit = None

    def proceed(self) -> str:
        """Stop training, also before ``min_epochs`` and ``min_steps``."""
        trainer = self.runner.trainer
        progress.forget_minimum(trainer, Driver.of(trainer).fit)
        # all ranks had the same reading and need no agreement
        self.runner.should_stop = trainer.should_stop = True
        return "training stops"


class LastGoodState:
    """Weights, buffers, optimizers, averages and gradient scaler of a run when all were finite.

    Counters, learning rates, callbacks, the random state and the data are no part of the state and
    go on. The source is the newest checkpoint of this run; before the first checkpoint, a copy in
    memory, on the same devices, of the size of weights, optimizer state and averages together. In a
    resumed run the copy is the state of the file resumed from, as the uninterrupted run has it.
    Strategies with sharded parameters always use the copy.

    Args:
        trainer: The Trainer, in a fit.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._shards = trainer.strategy.restore_checkpoint_after_setup
        self._paths: list[str] = []
        self._has_file = False
        self._copy: dict[str, Any] | None = None
        self._is_of_file = False  # the copy

    def add_file(self, path: Any) -> None:
        """Add a checkpoint, written after a good reading."""
        self._paths.append(os.fspath(path))

    def keep(self, is_of_file: bool = False) -> None:
        """Copy the state after a good reading, until a checkpoint exists.

        Args:
            is_of_file: Whether the state is that of the file resumed from: no later copy replaces
                it.
        """
        # look until the first file only: the directory may be remote
        self._has_file = self._has_file or self._newest_file() is not None
        if self._is_of_file and not self._has_file:
            return
        self._is_of_file = is_of_file and not self._shards
        self._copy = None  # before the new copy: two copies need too much memory
        if not self._has_file:
            self._copy = _copy_state(self._trainer)

    def restore(self) -> str:
        """Restore the last good state, on all ranks together; return its source for the log.

        Raises:
            RuntimeError: if the files have been deleted, or cannot be read.
        """
        trainer, path = self._trainer, self._newest_file()
        if path is None and self._copy is None:
            raise RuntimeError("the checkpoints of this run were deleted: there is none to restore")
        with _raw_weights(trainer):
            if path is None:
                self.restore_copy()
            else:
                _restore_file(trainer, path)
        trainer.lightning_module.zero_grad()  # bad gradients may have been accumulated
        copy = "the file resumed from" if self._is_of_file else "the last reading"
        return copy if path is None else path

    @torch.no_grad()
    def restore_copy(self) -> None:
        """Restore the copy, if any, on this rank without communication."""
        if self._copy is not None:
            for live, value in self._copy["tensors"]:
                live.copy_(value)
            _restore_rest(self._trainer, self._copy)

    def _newest_file(self) -> str | None:
        """Return rank 0's newest complete file, without deleted and unfinished files."""
        if self._shards:
            return None
        wait_for_writer(self._trainer.strategy)
        threads = [kind.store.thread for kind in files_of(callbacks_of(self._trainer))]
        # before the write, the path may be an earlier run's file
        finished = (
            path
            for path in reversed(self._paths)
            if not any(thread.is_writing(path) for thread in threads) and files.exists(path)
        )
        return self._trainer.strategy.broadcast(next(finished, None))


@contextlib.contextmanager
def _raw_weights(trainer: L.Trainer) -> Iterator[None]:
    """Swap averages out of the module during a validation."""
    module = trainer.lightning_module
    for hook in averages_of(trainer):
        hook.on_validation_end(trainer, module)
    yield
    if trainer.validating:
        for hook in averages_of(trainer):
            hook.on_validation_start(trainer, module)


def _copy_state(trainer: L.Trainer) -> dict[str, Any]:
    module = trainer.lightning_module
    tensors = [t for t in (*module.parameters(), *module.buffers()) if not nn.parameter.is_lazy(t)]
    own = {local_part(tensor).data_ptr() for tensor in tensors}

    def separate(average: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {k: v.clone() for k, v in average.items() if local_part(v).data_ptr() not in own}

    return {
        "tensors": [(tensor, tensor.detach().clone()) for tensor in tensors],
        "optimizers": [_cloned(o.state_dict()["state"]) for o in trainer.optimizers],
        "averages": {id(hook): separate(average) for hook, average in _averages(trainer)},
        "precision": _cloned(trainer.precision_plugin.state_dict()),
    }


def _restore_file(trainer: L.Trainer, path: str) -> None:
    """Restore from a checkpoint that rank 0 reads; the other ranks' tensors become rank 0's."""
    rest = ranks.from_rank_0(partial(_read_file, trainer, path), trainer.world_size)
    if trainer.world_size > 1:
        _share(trainer, rest)


@torch.no_grad()
def _read_file(trainer: L.Trainer, path: str) -> dict[str, Any]:
    """Restore this rank from a checkpoint; return what other ranks need beside the tensors."""
    module, scaler = trainer.lightning_module, type(trainer.precision_plugin).__qualname__
    hooks = averages_of(trainer)
    try:
        checkpoint = verification.load(path)
        averages = find_averages(checkpoint, module.state_dict(), hooks, path)
        state = {
            "optimizers": [optimizer["state"] for optimizer in checkpoint["optimizer_states"]],
            "averages": {
                id(hook): average and {**average.tensors, **average.exact}
                for hook, average in zip(hooks, averages, strict=True)
            },
            "precision": checkpoint.get(scaler, {}),
        }
        module.load_state_dict(raw_weights(checkpoint), strict=module.strict_loading)
        _restore_rest(trainer, state)
    except Exception as error:
        raise RuntimeError(f"the last good checkpoint {path} cannot be read: {error!r}") from error
    own = module.state_dict()
    return {
        "extra": {key: value for key, value in own.items() if not isinstance(value, torch.Tensor)},
        "optimizers": [_without_values(o.state_dict()["state"]) for o in trainer.optimizers],
        "precision": state["precision"],
    }


def _without_values(state: Mapping[Any, Any]) -> Any:
    """Return an optimizer's state with the shapes and types of its tensors alone."""
    return apply_to_collection({**state}, torch.Tensor, lambda tensor: tensor.to("meta"))


@torch.no_grad()
def _share(trainer: L.Trainer, rest: Mapping[str, Any]) -> None:
    """Have rank 0's weights, optimizers and averages on all ranks, one tensor after another.

    Args:
        trainer: The Trainer, restored on rank 0.
        rest: What rank 0's :func:`_read_file` has returned.
    """
    module, device = trainer.lightning_module, trainer.strategy.root_device
    own = module.state_dict()
    ranks.broadcast_((own[key] for key in own if key not in rest["extra"]), device)
    states = []
    for optimizer, shapes in zip(trainer.optimizers, rest["optimizers"], strict=True):
        state = _filled(shapes, optimizer.state_dict()["state"], device)
        leaves = pytree.tree_leaves(state)
        ranks.broadcast_((leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), device)
        states.append(state)
    for _, average in _averages(trainer):
        ranks.broadcast_(average.values(), device)
    if trainer.is_global_zero:
        return
    module.load_state_dict({**own, **rest["extra"]}, strict=module.strict_loading)
    for optimizer, state in zip(trainer.optimizers, states, strict=True):
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    if rest["precision"]:
        trainer.precision_plugin.load_state_dict(rest["precision"])


def _filled(shapes: Any, live: Any, device: torch.device) -> Any:
    """Return an optimizer's state of given shapes: live tensors where shape and type are equal."""
    if isinstance(shapes, torch.Tensor):
        fits = isinstance(live, torch.Tensor) and (live.shape, live.dtype) == (
            shapes.shape,
            shapes.dtype,
        )
        return live if fits else torch.empty_like(shapes, device=device)
    if isinstance(shapes, Mapping):
        lives = live if isinstance(live, Mapping) else {}
        return {key: _filled(value, lives.get(key), device) for key, value in shapes.items()}
    return apply_to_collection(shapes, torch.Tensor, partial(_filled, live=None, device=device))


def _restore_rest(trainer: L.Trainer, state: dict[str, Any]) -> None:
    """Restore optimizers, gradient scaler and averages, once the weights are in place."""
    for optimizer, saved in zip(trainer.optimizers, state["optimizers"], strict=True):
        # learning rates stay; cloned, since torch would train on the tensors of the copy
        optimizer.load_state_dict({**optimizer.state_dict(), "state": _cloned(saved)})
    if state["precision"]:
        trainer.precision_plugin.load_state_dict(_cloned(state["precision"]))
    weights = trainer.lightning_module.state_dict()
    for hook, average in _averages(trainer):
        # an average without a saved state begins again from the weights
        saved = state["averages"].get(id(hook)) or weights
        for key, live in average.items():
            live.copy_(saved[key] if key in saved else weights[key])


def _averages(trainer: L.Trainer) -> list[tuple[AveragingHook, dict[str, torch.Tensor]]]:
    """Return the live tensors of averages in progress."""
    tensors = []
    for hook in averages_of(trainer):
        if hook._average is not None:
            hook._average.repair()
            tensors.append((hook, hook._average.live()))
    return tensors


def _cloned(value: Any) -> Any:
    return apply_to_collection(value, torch.Tensor, lambda tensor: tensor.detach().clone())
