"""Write, load and resume mmcv's checkpoints, for the stand-in's runners."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from typing import Any

import torch

from lightning_hooks.engine.runner.mmcv_checkpoint import file_name
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.standin.runner.checkpoint import load_checkpoint, save_checkpoint
from lightning_hooks.storage import checkpoints, files

__all__ = ["RunnerCheckpoints"]


class RunnerCheckpoints(Runner):
    """The part of mmcv's runners that writes and reads checkpoints."""

    def save_checkpoint(
        self,
        out_dir: str | os.PathLike[str],
        filename_tmpl: str | None = None,
        save_optimizer: bool = True,
        meta: dict[str, Any] | None = None,
        create_symlink: bool = True,
    ) -> None:
        """Write a checkpoint in mmcv's layout and link ``latest.pth`` to it.

        Args:
            out_dir: The directory.
            filename_tmpl: The file name, with ``{}`` for the number of completed epochs or
                iterations; ``epoch_{}.pth`` or ``iter_{}.pth`` by default.
            save_optimizer: Whether the optimizer's state is saved.
            meta: Metadata besides ``runner.meta``.
            create_symlink: Whether ``latest.pth`` is updated.
        """
        if not (meta is None or isinstance(meta, dict)):
            raise TypeError(f"meta should be a dict or None, but got {type(meta)}")
        meta = {**(meta or {}), **(self.meta or {}), "epoch": self.epoch + 1, "iter": self.iter}
        out_dir = os.fspath(out_dir)
        filename = file_name(filename_tmpl or self.filename_tmpl, self._file_number)
        optimizer = self.optimizer if save_optimizer else None
        save_checkpoint(self.model, files.join(out_dir, filename), optimizer, meta)
        if create_symlink and files.is_local(out_dir):
            checkpoints.link_latest(os.path.abspath(out_dir), filename)

    def load_checkpoint(
        self,
        filename: str,
        map_location: Any = "cpu",
        strict: bool = False,
        revise_keys: list[tuple[str, str]] | None = None,
    ) -> Any:
        """Load the weights of a file into the model; return the whole checkpoint."""
        args = (self.model, filename, map_location, strict, self.logger, revise_keys)
        return load_checkpoint(*args)

    def _load_for_resume(self, checkpoint: str, map_location: Any) -> dict[str, Any]:
        if map_location == "default":
            cuda = torch.cuda.is_available()
            map_location = f"cuda:{torch.cuda.current_device()}" if cuda else "cpu"
        found: dict[str, Any] = self.load_checkpoint(checkpoint, map_location)
        if "meta" not in found:
            raise ValueError(
                f"{checkpoint} has no 'meta': it is a file of weights; use load_checkpoint()"
            )
        self._epoch = found["meta"]["epoch"]
        self._iter = found["meta"]["iter"]
        return found

    def _resume_optimizers(self, checkpoint: Mapping[str, Any]) -> None:
        if "optimizer" not in checkpoint:
            return
        optimizer, states = self.optimizer, checkpoint["optimizer"]
        if isinstance(optimizer, dict):
            for name, one in optimizer.items():
                one.load_state_dict(states[name])
        elif isinstance(optimizer, torch.optim.Optimizer):
            optimizer.load_state_dict(states)
        else:
            raise TypeError(
                f"Optimizer should be dict or torch.optim.Optimizer but got {type(optimizer)}"
            )

    def resume(
        self, checkpoint: str, resume_optimizer: bool = True, map_location: Any = "default"
    ) -> None:
        """Resume from a checkpoint: weights, counters, meta and optimizers."""
        found = self._load_for_resume(checkpoint, map_location)
        self.meta = copy.copy(found["meta"])
        if resume_optimizer:
            self._resume_optimizers(found)
        self.logger.info("resumed epoch %d, iter %d", self.epoch, self.iter)
