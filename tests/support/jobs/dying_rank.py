"""Kill rank 1 while rank 0 writes a checkpoint, for test_several_ranks.py."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

from lightning_hooks import CheckpointHook
from lightning_hooks.storage import checkpoints
from support.processes import write_rank
from support.training import NoValidation, fit, two_ranks

EPOCHS, TIMEOUT = 4, 60


def dies_when(path: Path) -> None:
    """Kill the process once a file exists."""

    def wait() -> None:
        while not path.exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def main(out: Path, background: bool) -> None:
    """Train on both ranks; rank 0 writes the second file slowly, until rank 1 is dead."""
    saving, save = out / "saving", checkpoints.save

    def slow(checkpoint: dict[str, Any], target: checkpoints.Target) -> Any:
        if target.name == "epoch_2.pth":
            saving.touch()
            time.sleep(1)
        return save(checkpoint, target)

    checkpoints.save = slow
    if os.environ["LOCAL_RANK"] == "1":
        dies_when(saving)
    torch.set_num_threads(1)
    hook = CheckpointHook(interval=1, max_keep_ckpts=2, background=background)
    ranks = two_ranks(timeout=timedelta(seconds=TIMEOUT))
    start = time.monotonic()
    try:
        fit(out / "work", hook, module=NoValidation, max_epochs=EPOCHS, **ranks)
    except BaseException as error:
        found = {"error": f"{type(error).__name__}: {error}", "seconds": time.monotonic() - start}
        write_rank(out, found)
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "True")
