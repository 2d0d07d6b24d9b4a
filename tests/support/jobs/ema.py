"""Trains until a signal comes; test_ema_interrupts.py reads the files.

python -m support.jobs.ema DIRECTORY SIGNAL PLACE
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback, OnExceptionCheckpoint

from lightning_hooks import EMAHook
from support.probes import weights
from support.training import TinyNormModule, make_loader, make_trainer


class Module(TinyNormModule):
    """Sends the signal to the process in the second epoch, while the average is in the model."""

    def __init__(self, out: Path, number: int, place: str) -> None:
        super().__init__()
        self.out, self.number, self.place = out, number, place
        self.raw: dict[str, Any] = {}

    def maybe(self, place: str) -> None:
        if (
            place == self.place
            and self.trainer.current_epoch == 1
            and not self.trainer.sanity_checking
        ):
            assert not torch.equal(self.net[0].weight, self.raw["net.0.weight"])
            for only in (False, True):
                name = "weights.ckpt" if only else "full.ckpt"
                self.trainer.save_checkpoint(self.out / name, weights_only=only)
            os.kill(os.getpid(), self.number)

    def on_train_batch_end(self, *args: Any) -> None:
        self.raw = weights(self)

    def on_validation_start(self) -> None:
        self.maybe("on_validation_start")

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.maybe("validation_step")
        return super().validation_step(batch, batch_idx)


class Look(Callback):
    """Saves a checkpoint in ``on_exception``."""

    def __init__(self, name: str, weights_only: bool) -> None:
        self.name, self.weights_only = name, weights_only

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        path = pl_module.out / f"{self.name}.ckpt"
        trainer.save_checkpoint(path, weights_only=self.weights_only)


def main(out: Path, number: int, place: str) -> None:
    ema, module = EMAHook(momentum=0.1, buffers="average"), Module(out, number, place)
    broken = OnExceptionCheckpoint(str(out), filename="broken")
    looks = [Look("before", False), ema, Look("after", True), Look("last", False), broken]
    trainer = make_trainer(out, *looks, max_epochs=3, enable_checkpointing=True)
    try:
        trainer.fit(module, make_loader(), make_loader(2))
    finally:
        found = {"raw": module.raw, "after": weights(module), "epoch": trainer.current_epoch}
        torch.save({**found, "ema": ema.ema_state_dict()}, out / "found.pt")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # disabled by a shell
    main(Path(sys.argv[1]), getattr(signal, sys.argv[2]), sys.argv[3])
