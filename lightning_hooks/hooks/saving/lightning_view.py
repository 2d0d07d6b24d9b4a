"""What Lightning, its loggers and other callbacks read from a ``ModelCheckpoint``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_info

from lightning_hooks.engine.lightning_api import entry_point
from lightning_hooks.hooks.saving.directory import newest_of
from lightning_hooks.hooks.saving.store import CheckpointStore
from lightning_hooks.storage import files, verification
from lightning_hooks.utils import ranks
from lightning_hooks.utils.attributes import weak_property

__all__ = ["BestFields", "LightningView", "load", "shown", "verify"]


class BestFields(NamedTuple):
    """The attributes of a ``ModelCheckpoint`` for the best files.

    With several keys, the attributes show the first key.

    ======================  ====================================================================
    attribute               value
    ======================  ====================================================================
    monitor                 the key; None without a comparison
    mode                    "max" or "min"
    save_top_k              the number of files to keep; -1 for all
    current_score           the latest score among the best, as a tensor; None before
    best_model_score        the best score, as a tensor; None before
    best_model_path         the path of the best file; an empty string before
    best_k_models           the scores of the best files by path
    ======================  ====================================================================
    """

    monitor: str | None = None
    mode: str = "min"
    save_top_k: int = -1
    current_score: torch.Tensor | None = None
    best_k_models: Mapping[str, torch.Tensor] = {}

    @property
    def best_model_path(self) -> str:
        """The path of the best file."""
        return next(iter(self.best_k_models), "")

    @property
    def best_model_score(self) -> torch.Tensor | None:
        """The best score."""
        return self.best_k_models.get(self.best_model_path)


@dataclasses.dataclass(frozen=True)
class LightningView:
    """A ``ModelCheckpoint``'s attributes of the files of a hook."""

    store: CheckpointStore
    dirpath: str
    """The directory of the files."""
    messages: Mapping[str, Any]
    """``runner.meta["hook_msgs"]``."""
    best: BestFields

    @property
    def last_checkpoint(self) -> str:
        """The newest intact file, or an empty string.

        Before the first fit, the current directory is searched as the work directory.
        """
        return newest_of([(self.store.template, self.dirpath)]) or ""

    @property
    def last_model_path(self) -> str:
        """The path of the last file."""
        return self.messages.get("last_ckpt") or self.messages.get("best_ckpt") or ""

    @property
    def best_model_path(self) -> str:
        """The path of the best file by the first key, else of the last file."""
        return self.best.best_model_path or self.messages.get("best_ckpt") or self.last_model_path

    @property
    def save_weights_only(self) -> bool:
        """Whether the files are for loading weights only."""
        return not self.store.save_optimizer

    @property
    def file_system(self) -> Any:
        """The file system of ``ModelCheckpoint.to_yaml()``."""
        return files.filesystem(self.dirpath)[0]


def shown(name: str) -> Any:
    """Return a descriptor for an attribute of a saving hook's view, or of the best fields."""

    def read(hook: Any) -> Any:
        view = hook._view()
        return getattr(view.best if hasattr(BestFields, name) else view, name)

    return weak_property(read)


# -- what Lightning reads ----------------------------------------------------------------------


def load(trainer: L.Trainer, path: str) -> None:
    """Load the file for ``ckpt_path="last"`` in ``setup``.

    Raises:
        ValueError: if the file cannot be loaded so late.
    """
    restores_later = trainer.strategy.restore_checkpoint_after_setup
    if restores_later or not entry_point.load_checkpoint(trainer, path):
        name = type(trainer.strategy).__name__ if restores_later else "this Lightning"
        raise ValueError(
            f'ckpt_path="last" finds no hook of a HookAdapter with {name}: write ckpt_path="{path}"'
        )
    rank_zero_info(f'ckpt_path="last" is {path}')


def verify(trainer: L.Trainer, path: Any, weights_only: bool | None = None) -> None:
    """Verify a checkpoint on rank 0 before all ranks read the file; raise errors on all ranks."""
    for_fit = trainer.state.fn == TrainerFn.FITTING
    check = partial(verification.verify, os.fspath(path), for_fit, weights_only is not False)
    ranks.from_rank_0(check, trainer.world_size)
