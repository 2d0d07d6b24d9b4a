"""Send SIGTERM to one of two ranks, or to both in different batches, for test_sigterm.py."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_hooks import CheckpointHook
from support.processes import write_rank
from support.training import NoValidation, fit, make_loader, two_ranks

RANK = int(os.environ.get("LOCAL_RANK", "0"))
STEPS = {"rank 0": {0: 2}, "rank 1": {1: 2}, "both": {0: 2, 1: 3}}
"""The step of the signal on each rank; an epoch has four steps."""


class Signals(Callback):
    """Sends SIGTERM to the process in the middle of a step."""

    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_before_optimizer_step(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


class Drops(NoValidation):
    """Has dropout, which differs between ranks; logs the epoch's loss."""

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Dropout(0.3))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.losses.append(loss.item())
        self.log("epoch_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss


def losses(out: Path, steps: dict[int, int], seed: int) -> dict[str, Any]:
    """Train, from the last file on; return this rank's losses and the epoch's of all ranks."""
    torch.manual_seed(seed + RANK)
    module, values = Drops(), {}
    hook = CheckpointHook(interval=10, save_last=False, on_exception=True)
    options = {"max_epochs": 2, "ckpt_path": "last" if seed else None, **two_ranks()}
    with contextlib.suppress(SIGTERMException):
        trainer = fit(
            *(out, hook, Signals(steps.get(RANK))),
            module=module,
            batches=make_loader(8),
            **options,
        )
        values = {key: value.item() for key, value in trainer.callback_metrics.items()}
    return {"steps": module.losses, "epoch": values}


def trained(out: Path, steps: dict[int, int]) -> dict[str, Any]:
    """Train until the signal ends the rank; return the iteration and the error."""
    module, handler = NoValidation(), signal.getsignal(signal.SIGTERM)
    hooks = [CheckpointHook(interval=10, save_last=False, on_exception=True)]
    options = {"max_epochs": 4, **two_ranks(timeout=timedelta(seconds=30))}
    error = ""
    try:
        fit(
            out,
            *hooks,
            module=module,
            batches=make_loader(8),
            callbacks=[Signals(steps.get(RANK))],
            **options,
        )
    except SIGTERMException as raised:
        error = type(raised).__name__
    return {
        "error": error,
        "steps": len(module.losses),
        "handler is back": signal.getsignal(signal.SIGTERM) == handler,
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {name: trained(out / name, steps) for name, steps in STEPS.items()}
    found["whole"] = losses(out / "whole", {}, 0)
    found["cut"] = losses(out / "cut", {0: 4}, 0)
    found["resumed"] = losses(out / "cut", {}, 5)
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
