"""Hooks and callbacks that record calls, weights and data, or save at an event."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import Dataset

from lightning_hooks import Hook
from lightning_hooks.engine.points import STAGES
from support.training import TinyModule


class Recorder(Hook):
    """Records ``(point, epoch, iter, inner_iter, mode)`` of every call in ``calls``."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, int, int, str | None]] = []

    @property
    def points(self) -> list[str]:
        """The points called, in order."""
        return [call[0] for call in self.calls]

    def _record(self, point: str, runner: Any) -> None:
        self.calls.append((point, runner.epoch, runner.iter, runner.inner_iter, runner.mode))


def _recording(point: str) -> Any:
    def record(self: Recorder, runner: Any) -> None:
        self._record(point, runner)

    record.__name__ = point
    return record


for _point in STAGES:
    setattr(Recorder, _point, _recording(_point))


SHORT = {
    "before_run": "(",
    "before_train_epoch": "[",
    "before_train_iter": "t",
    "after_train_iter": "T",
    "after_train_epoch": "]",
    "before_val_epoch": "{",
    "before_val_iter": "v",
    "after_val_iter": "V",
    "after_val_epoch": "}",
    "after_run": ")",
}


def line(recorder: Recorder) -> str:
    """Return the calls as one line, such as ``([tTtT]{vV})``."""
    return "".join(SHORT[point] for point in recorder.points)


class SaveAt(Hook):
    """Saves a checkpoint at the ``nth`` occurrence of a Lightning event."""

    def __init__(self, event: str, path: Path, nth: int = 1) -> None:
        self.event, self.path, self.left = event, path, nth

    def _save(self, event: str, trainer: Any) -> None:
        if event == self.event and not trainer.sanity_checking:
            self.left -= 1
            if self.left == 0:
                trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._save("on_train_epoch_end", trainer)

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        self._save("on_train_batch_end", trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self._save("on_validation_end", trainer)


class Numbers(Dataset[Any]):
    """A dataset of consecutive numbers; ``start`` may change while workers run."""

    def __init__(self, start: float = 0.0, size: int = 4) -> None:
        self.start, self.size = start, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), self.start + index), torch.zeros(2)


class Seen(TinyModule):
    """Records the numbers of every batch."""

    def __init__(self) -> None:
        super().__init__(lr=1e-6)
        self.epochs: list[list[float]] = []

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if not self.epochs:
            self.epochs.append([])
        self.epochs[-1] += batch[0][:, 0].tolist()
        return super().training_step(batch, batch_idx)


def weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.detach().clone() for k, v in module.state_dict().items()}


def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)


def averages_in(checkpoint: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the averages in a checkpoint, in the order of the hooks."""
    entries = checkpoint["lightning_hooks"]["averages"]
    own = (one["state_dict"] for one in entries)
    return [checkpoint["state_dict"] if state is None else state for state in own]


class Raw(Callback):
    """Records the raw weights after each batch."""

    weights: dict[str, Any]

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.weights = weights(pl_module)


class Probe(Callback):
    """Records the weights at each training batch and validation batch."""

    def __init__(self) -> None:
        self.train: list[Any] = []
        self.val: list[Any] = []

    def on_train_batch_start(self, trainer, module, *args: Any) -> None:
        self.train.append(weights(module))

    def on_validation_batch_end(self, trainer, module, *args: Any) -> None:
        if not trainer.sanity_checking:
            self.val.append(weights(module))
