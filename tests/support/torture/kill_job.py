"""Train in a process to be killed. The argument is a JSON object of the arguments of ``train``."""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    IterTimerHook,
    TextLoggerHook,
    newest_valid,
)
from support.training import TinyNormModule, make_loader, make_trainer

EPOCHS, BATCHES, KEPT = 12, 4, 2
INTERRUPTED = 3
"""The exit status after Lightning's SystemExit for SIGTERM or Ctrl-C."""


class Module(TinyNormModule):
    """A module with dropout, which depends on the random state, and with a slow-to-write buffer."""

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(super().make_net(), torch.nn.Dropout(0.2))

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("big", torch.zeros(3_000_000))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.big += 1
        return super().training_step(batch, batch_idx)

    def parameters_now(self) -> list[torch.Tensor]:
        return [value.detach().clone() for value in self.parameters()]


class Witness(Callback):
    """Records the weights after each iteration."""

    def __init__(self, module: Module) -> None:
        self.seen = [module.parameters_now()]
        self.started = False

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self.started = True

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        self.seen.append(pl_module.parameters_now())


class Interrupts(Callback):
    """Sends a signal to the process before the first epoch, in a save, or in a validation.

    In a validation the model has the average; in a save the file is partially written.
    """

    def __init__(self, place: str, number: int) -> None:
        self.place, self.number = place, number

    def __reduce__(self) -> Any:  # called while the checkpoint with this object is written
        os.kill(os.getpid(), self.number)
        return OrderedDict, ()

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self.place == "fit start":
            os.kill(os.getpid(), self.number)

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: Any) -> None:
        if self.place == "save" and trainer.current_epoch >= 3:
            checkpoint["interrupts"] = self

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *args: Any) -> None:
        begin = {"validation": 5, "last validation": EPOCHS - 1}.get(self.place, EPOCHS)
        if trainer.current_epoch >= begin:
            ema = next(one for one in trainer.callbacks if isinstance(one, EMAHook))
            average = ema.ema_state_dict()["net.0.0.weight"]
            assert torch.equal(pl_module.net[0][0].weight, average)
            os.kill(os.getpid(), self.number)


def train(
    directory: str, background: bool, by_epoch: bool, place: str = "", number: int = 0
) -> None:
    """Train to the end, from the newest valid file on, or until a signal at a place."""
    hook = CheckpointHook(
        interval=1 if by_epoch else 3,
        by_epoch=by_epoch,
        max_keep_ckpts=KEPT,
        background=background,
    )
    others = EMAHook(momentum=0.1), CosineAnnealingLrUpdaterHook(min_lr=0.0)
    logs = IterTimerHook(), TextLoggerHook(interval=3)
    module = Module()
    witness = Witness(module)
    trainer = make_trainer(
        *(Path(directory), *others, *logs, hook, witness, Interrupts(place, number)),
        max_epochs=EPOCHS,
        enable_checkpointing=True,
    )
    torch.manual_seed(0)
    resumes = newest_valid(directory) is not None
    loaders = make_loader(BATCHES, shuffle=True), make_loader(2)
    try:
        trainer.fit(module, *loaders, ckpt_path="last" if resumes else None)
    finally:  # not reached after a SIGKILL
        ignore_signals()  # a signal now is too late: the notes must be complete
        weights = {
            "now": module.parameters_now(),
            "iter": int(module.big[0]),
            "started": witness.started,
        }
        torch.save(weights, Path(directory) / "weights.new")
        os.replace(Path(directory) / "weights.new", Path(directory) / "weights.pt")
        if not resumes:
            torch.save(witness.seen, Path(directory) / "witness.pt")


def ignore_signals() -> None:
    """Ignore signals, so the process can end normally."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def work(jobs: Mapping[str, Callable[..., None]], job: str = "train", **arguments: Any) -> None:
    """Run a job and exit as a separate process does, after all threads."""
    # a shell's background job ignores Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)
    code = 1
    try:
        jobs[job](**arguments)
        code = 0
    except SystemExit:
        code = INTERRUPTED
    except BaseException:
        ignore_signals()
        (Path(arguments["directory"]) / "error.txt").write_text(traceback.format_exc())
    ignore_signals()
    sys.exit(code)


if __name__ == "__main__":
    work({"train": train}, **json.loads(sys.argv[1]))
