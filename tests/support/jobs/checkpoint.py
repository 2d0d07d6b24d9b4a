"""Save and resume in two processes, for test_several_ranks.py."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import lightning as L
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.layout import DamagedCheckpointError
from support.processes import write_rank
from support.training import NoValidation, TinyModule, fit, make_loader, two_ranks


class Module(TinyModule):
    """A module with a different validation score on each rank."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        score = [0.1, 0.9, 0.2, 0.95, 0.3][self.trainer.current_epoch]
        self.log("acc", score + 0.01 * self.global_rank * (-1) ** self.trainer.current_epoch)


def train(directory: Path, epochs: int, *, background: bool, **kwargs: Any) -> L.Trainer:
    """Train and keep the last two checkpoints and the best."""
    hooks = [
        CheckpointHook(interval=1, max_keep_ckpts=2, background=background),
        BestCheckpointHook("acc", background=background),
    ]
    rank = int(os.environ.get("LOCAL_RANK", 0))
    torch.manual_seed(1 + rank)
    options = {"max_epochs": epochs, "num_sanity_val_steps": 0, **two_ranks(), **kwargs}
    return fit(
        directory, *hooks, module=Module, batches=make_loader(8, shuffle=True), val=2, **options
    )


class Differs(TinyModule):
    """A module with different buffers on each rank."""

    validation_step = None  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("count", torch.tensor(0))

    def on_train_batch_end(self, *args: Any) -> None:
        self.mean.fill_(self.global_rank)
        self.count.fill_(7 + self.global_rank)


def synced(directory: Path) -> list[float]:
    """Return the rank's buffers after a run with ``sync_buffer``."""
    module = Differs()
    fit(directory, CheckpointHook(interval=1, sync_buffer=True), module=module, **two_ranks())
    return [module.mean.item(), module.count.item()]


@contextlib.contextmanager
def checksums(found: list[str]) -> Iterator[None]:
    """Record the files whose checksum the rank verifies."""
    flaw = Entry.flaw

    def note(entry: Entry, directory: str, **kwargs: Any) -> str:
        found.append(entry.name)
        return flaw(entry, directory, **kwargs)

    with mock.patch.object(Entry, "flaw", note):
        yield


def damaged(directory: Path) -> list[str]:
    """Resume from a damaged file and from "last"; return the resumed file or the error of each."""
    trainer = fit(
        directory, CheckpointHook(interval=1), module=NoValidation, max_epochs=3, **two_ranks()
    )
    trainer.strategy.barrier()
    if trainer.is_global_zero:
        with (directory / "epoch_3.pth").open("r+b") as file:
            file.seek(-200, os.SEEK_END)
            file.write(b"damaged")
    trainer.strategy.barrier()
    said = []
    for path in (str(directory / "epoch_3.pth"), "last"):
        hook = CheckpointHook(interval=1)
        options = {"max_epochs": 4, "ckpt_path": path, **two_ranks()}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # rank 0 tells of the damaged file
                trainer = fit(directory, hook, module=NoValidation, **options)
            said.append(Path(str(trainer.ckpt_path)).name)
        except DamagedCheckpointError as error:
            said.append(type(error).__name__)
    return said


def main(out: Path) -> None:
    whole = train(out / "whole", 5, background=False)
    train(out / "parts", 3, background=True)
    compared: list[str] = []
    with checksums(compared):
        parts = train(out / "parts", 5, background=True, ckpt_path="last")
    write_rank(out, compared, "compared")
    write_rank(out, damaged(out / "damaged"), "damaged")
    weights = [t.lightning_module.net.weight.tolist() for t in (whole, parts)]
    best = [t.checkpoint_callbacks[1].best_model_path for t in (whole, parts)]
    found = {"weights": weights, "best": best, "last": parts.checkpoint_callback.last_checkpoint}
    write_rank(out, synced(out / "synced"), "synced")
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
