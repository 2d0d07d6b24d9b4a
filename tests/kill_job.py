"""A server that forks training processes to be killed: they need not import everything anew.

Each line of the input is a JSON object of arguments for :func:`train`. The answers are the
process's id and, when it has ended, its status.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
from helpers import TinyNormModule, make_loader, make_trainer

from lightning_hooks import CheckpointHook, CosineAnnealingLrUpdaterHook, EMAHook, newest_valid

EPOCHS, KEPT = 12, 2


class Module(TinyNormModule):
    """With dropout, so that the random state matters, and large enough to be seen being written."""

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(super().make_net(), torch.nn.Dropout(0.2))

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("big", torch.zeros(3_000_000))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.big += 1
        return self.loss(batch)


def train(directory: str, background: bool, by_epoch: bool) -> None:
    """Train to the end, from the newest valid file on."""
    hook = CheckpointHook(
        interval=1 if by_epoch else 4,  # epochs are 4: within one Lightning draws the data anew
        by_epoch=by_epoch,
        max_keep_ckpts=KEPT,
        background=background,
    )
    others = EMAHook(momentum=0.1), CosineAnnealingLrUpdaterHook(min_lr=0.0)
    trainer = make_trainer(
        *(Path(directory), *others, hook),
        max_epochs=EPOCHS,
        enable_checkpointing=True,
    )
    torch.manual_seed(0)
    resumes = newest_valid(directory) is not None
    trainer.fit(Module(), make_loader(4, shuffle=True), ckpt_path="last" if resumes else None)


def main() -> None:
    """Serve until the input ends."""
    warnings.simplefilter("ignore")  # of files that the kill has left
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            arguments = json.loads(line)
            code = 1
            os.dup2(2, 1)  # the answers' pipe is not for the log
            try:
                train(**arguments)
                code = 0
            except BaseException:
                (Path(arguments["directory"]) / "error.txt").write_text(traceback.format_exc())
            finally:
                os._exit(code)
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    main()
