"""The epoch of a file that is evaluated outside of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.lightning_api.method_patch import MethodPatch

__all__ = ["EvaluatedFile"]


class EvaluatedFile:
    """Notes the epoch of the checkpoint that ``validate`` or ``test`` loads.

    Lightning's own count stays: 0 in a new process, and the last fit's after one.
    """

    epoch: int | None = None
    """The number of the epoch, from 1; None in a fit, without a file, and if it does not say."""
    _patch: MethodPatch | None = None

    def watch(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        """Look at what is loaded into the module, unless for a fit.

        Args:
            trainer: The Trainer, in ``setup``.
            module: The module.
        """
        self.forget()  # an error may have ended the last evaluation
        if trainer.state.fn != TrainerFn.FITTING:
            self._patch = MethodPatch(module, "on_load_checkpoint", self._load)

    def _load(self, checkpoint: Mapping[str, Any]) -> None:
        """Take mmcv's count, which is in the files of every Trainer with hooks."""
        epoch = (checkpoint.get("meta") or {}).get("epoch")
        self.epoch = epoch if isinstance(epoch, int) else None

    def forget(self) -> None:
        """Restore the module: the evaluation is over."""
        if self._patch is not None:
            self._patch.remove()
        self._patch = self.epoch = None
