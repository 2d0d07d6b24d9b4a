"""The last good state of a run: its newest checkpoint, or a copy in memory until there is one."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import fsspec
import lightning as L
import torch
from torch import nn

from lightning_hooks.hooks.averaging.base import AveragingHook
from lightning_hooks.hooks.checkpoint.writer import CheckpointWriter
from lightning_hooks.storage import verification
from lightning_hooks.storage.checkpoint_io import wait_for_writer
from lightning_hooks.utils.dtensors import held

__all__ = ["GoodState"]

KEY = "ema_state_dict"
"""Where a checkpoint has the average of the first such hook."""


class GoodState:
    """Weights, buffers, optimizers, averages and gradient scaler of a run when it was well.

    Counters, learning rates, callbacks, the random state and the data are no part of it: they go
    on. A checkpoint that was written in this run is what is gone back to. As long as there is
    none, it is a copy in memory, on the same devices: of the size of weights, optimizer state
    and averages together. Strategies that shard the parameters have the copy only.

    Args:
        trainer: The Trainer, in a fit.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._shards = trainer.strategy.restore_checkpoint_after_setup
        self._paths: list[str] = []
        self._has_file = False
        self._copy: dict[str, Any] | None = None

    def note_file(self, path: Any) -> None:
        """Take note of a checkpoint, written when all was well."""
        self._paths.append(os.fspath(path))

    def keep(self) -> None:
        """Copy the state, which is good, until there is a file."""
        if not self._has_file:  # asked once: it may be far away
            newest = None if self._shards else self._trainer.strategy.broadcast(self._newest())
            self._has_file = newest is not None
        self._copy = None  # first: there is no time at which there are two
        if not self._has_file:
            self._copy = _copy_of(self._trainer)

    def put_back(self) -> str:
        """Go back to the last good state, on all ranks; return what that was.

        Raises:
            RuntimeError: if the files have been deleted, or cannot be read.
        """
        trainer = self._trainer
        path = trainer.strategy.broadcast(None if self._shards else self._newest())
        if path is None and self._copy is None:
            raise RuntimeError("the checkpoints of this run are gone: there is none to restore")
        with _raw_weights(trainer):
            if path is None:
                self.put_back_copy()
            else:
                _load(trainer, path)
        _drop_gradients(trainer)
        return "the last reading" if path is None else str(path)

    def put_back_copy(self) -> None:
        """Go back to the copy, where there is one: on this rank alone, without the others."""
        if self._copy is not None:
            _put_back(self._trainer, self._copy)

    def _newest(self) -> str | None:
        """Return the newest file that is there: some are deleted, some are still being written."""
        wait_for_writer(self._trainer.strategy)
        callbacks: list[Any] = self._trainer.callbacks  # type: ignore[attr-defined]
        savers = [callback for callback in callbacks if isinstance(callback, CheckpointWriter)]
        for path in reversed(self._paths):
            # until it is written, an earlier run's file may have its name
            if not any(saver.is_writing(path) for saver in savers) and _is_file(path):
                return path
        return None


def _is_file(path: str) -> bool:
    fs, target = fsspec.core.url_to_fs(path)
    return bool(fs.isfile(target))


@contextlib.contextmanager
def _raw_weights(trainer: L.Trainer) -> Iterator[None]:
    """Have the module's own weights in place, where a validation has put an average there."""
    module = trainer.lightning_module
    for hook in _averaging(trainer):
        hook.on_validation_end(trainer, module)
    yield
    if trainer.validating:
        for hook in _averaging(trainer):
            hook.on_validation_start(trainer, module)


def _copy_of(trainer: L.Trainer) -> dict[str, Any]:
    tensors = _tensors(trainer.lightning_module)
    own = {held(tensor).data_ptr() for tensor in tensors}
    return {
        "tensors": [(tensor, tensor.detach().clone()) for tensor in tensors],
        "optimizers": [_cloned(o.state_dict()["state"]) for o in trainer.optimizers],
        "averages": {
            id(hook): {k: v.clone() for k, v in average.items() if held(v).data_ptr() not in own}
            for hook, average in _averages(trainer)
        },
        "precision": _cloned(trainer.precision_plugin.state_dict()),
    }


@torch.no_grad()
def _put_back(trainer: L.Trainer, copy: dict[str, Any]) -> None:
    for live, value in copy["tensors"]:
        live.copy_(value)
    _load_optimizers(trainer, copy["optimizers"])
    _load_precision(trainer, _cloned(copy["precision"]))
    for hook, average in _averages(trainer):
        _set_average(trainer, average, copy["averages"].get(id(hook)))


@torch.no_grad()
def _load(trainer: L.Trainer, path: str) -> None:
    """Load from a checkpoint what :func:`_put_back` puts back; rank 0 reads it for all."""
    scaler = type(trainer.precision_plugin).__qualname__
    found: Any = None
    if trainer.is_global_zero:
        try:
            checkpoint = verification.load(path)
            wanted = {"state_dict", "optimizer_states", KEY, f"{KEY}s", scaler}
            found = {key: value for key, value in checkpoint.items() if key in wanted}
        except Exception as error:  # the others are waiting to be told
            found = f"the last good checkpoint {path} cannot be read: {error!r}"
    found = trainer.strategy.broadcast(found)
    if isinstance(found, str):
        raise RuntimeError(found)
    module = trainer.lightning_module
    module.load_state_dict(found["state_dict"], strict=module.strict_loading)
    _load_optimizers(trainer, [state["state"] for state in found["optimizer_states"]])
    _load_precision(trainer, found.get(scaler, {}))
    for hook, average in _averages(trainer):
        first = hook is _averaging(trainer)[0]
        saved = found.get(KEY) if first else found.get(f"{KEY}s", {}).get(hook.state_key)
        _set_average(trainer, average, saved)


def _set_average(
    trainer: L.Trainer, average: dict[str, torch.Tensor], saved: dict[str, torch.Tensor] | None
) -> None:
    """Set a live average; one that had not begun begins again, from the weights."""
    own = trainer.lightning_module.state_dict()
    for key, live in average.items():
        live.copy_((saved or own).get(key, own[key]))


def _load_optimizers(trainer: L.Trainer, states: list[Any]) -> None:
    """Load the state of each parameter; learning rates and the like stay as they are now."""
    for optimizer, state in zip(trainer.optimizers, states, strict=True):
        # torch keeps the tensors that it is given, and would train on those of the copy
        optimizer.load_state_dict({**optimizer.state_dict(), "state": _cloned(state)})


def _load_precision(trainer: L.Trainer, state: dict[str, Any]) -> None:
    if state:
        trainer.precision_plugin.load_state_dict(state)


def _drop_gradients(trainer: L.Trainer) -> None:
    """Forget what has been accumulated: bad gradients may be in it."""
    for parameter in trainer.lightning_module.parameters():
        parameter.grad = None


def _tensors(module: nn.Module) -> list[torch.Tensor]:
    found = [*module.parameters(), *module.buffers()]
    return [tensor for tensor in found if not nn.parameter.is_lazy(tensor)]


def _averaging(trainer: L.Trainer) -> list[AveragingHook]:
    callbacks: list[Any] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in callbacks if isinstance(callback, AveragingHook)]


def _averages(trainer: L.Trainer) -> list[tuple[AveragingHook, dict[str, torch.Tensor]]]:
    """Return the live tensors of the averages that have begun, by the module's keys."""
    found = []
    for hook in _averaging(trainer):
        # it says that there is none yet, or warns that it has left bad steps out
        with contextlib.suppress(RuntimeError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = hook.ema_state_dict()
            found.append((hook, {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}))
    return found


def _cloned(value: Any) -> Any:
    """Return nested dicts and lists with copies of their tensors."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _cloned(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_cloned(one) for one in value)
    return value
