"""Write checkpoint directories in the background, for test_background_directories.py.

python -m support.jobs.background_shards DIRECTORY STRATEGY WHAT ...
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Callback
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter

from lightning_hooks import BestCheckpointHook, CheckpointHook, EMAHook
from lightning_hooks.storage import manifest
from support.jobs.moved_directories import Module, strategy_of
from support.processes import write_rank
from support.training import make_loader, make_trainer

WAIT = 60
"""Timeout in seconds of a write waiting for the training."""


class Batches(Callback):
    """Signals a batch after the first epoch to a writing thread."""

    def __init__(self) -> None:
        self.of_second_epoch = threading.Event()

    def on_train_batch_start(self, trainer: Trainer, *args: Any) -> None:
        if trainer.current_epoch:
            self.of_second_epoch.set()


def train(out: Path, strategy: str, epochs: int, *callbacks: Any, **options: Any) -> dict[str, Any]:
    """Train with an average, the last and the best files; return the average and the files."""
    ema = EMAHook(0.1, warm_up=0)
    background, rank = options.pop("background"), int(os.environ["LOCAL_RANK"])
    own = out if rank == 0 else out / "of rank 1"  # a different folder, as with a time in its name
    save = CheckpointHook(1, max_keep_ckpts=2, background=background)
    best = BestCheckpointHook("val_loss", background=background)
    trainer = make_trainer(
        *(own, ema, save, best, *callbacks),
        strategy=strategy_of(strategy, 2),
        devices=2,
        max_epochs=epochs,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=True,
    )
    torch.manual_seed(len(options) + 10 * rank)
    loaders = make_loader(3, 4, shuffle=True), make_loader(1, 4, seed=1)
    trainer.fit(Module(lr=0.05, seed=len(options)), *loaders, **options)
    plain = Module()
    ema.apply_to(plain)
    whole = {key: value.tolist() for key, value in plain.state_dict().items()}
    names = [Path(path).name for path in (str(save.last_checkpoint), best.best_model_path)]
    return {"average": whole, "last and best": names}


def trains(out: Path, strategy: str) -> dict[str, Any]:
    """Train once with blocking and once with background saves, delayed until the next batch."""
    batches, write = Batches(), FileSystemWriter.write_data
    waits: list[dict[str, bool]] = []

    def write_later(writer: Any, *args: Any) -> Any:
        path = Path(str(writer.path))
        if path.name == "epoch_1.pth":
            goes_on = batches.of_second_epoch.wait(WAIT)
            listed = [entry.name for entry in manifest.read(str(path.parent))]
            waits.append({"training goes on": goes_on, "is listed": path.name in listed})
        return write(writer, *args)

    blocking = train(out / "blocking", strategy, 4, background=False)
    with mock.patch.object(FileSystemWriter, "write_data", write_later):
        train(out / "background", strategy, 2, batches, background=True)
    resumed = resumes(out / "background", strategy)
    return {"blocking": blocking, "resumed": resumed, "during a write": waits}


def resumes(out: Path, strategy: str) -> dict[str, Any]:
    """Go on from the last directory to the end of the run; note the random states read."""
    states: list[str] = []
    read = FileSystemReader.read_data

    def noting(reader: Any, plan: Any, planner: Any) -> Any:
        names = [item.storage_index.fqn for item in plan.items]
        states.extend(name for name in names if ".ranks." in name)
        return read(reader, plan, planner)

    with mock.patch.object(FileSystemReader, "read_data", noting):
        run = train(out, strategy, 4, background=True, ckpt_path="last")
    return {"run": run, "states": states}


def breaks(out: Path, strategy: str, rank: str, place: str, how: str) -> dict[str, Any]:
    """Train until the write of the second epoch fails on a rank."""
    method = getattr(FileSystemWriter, place)

    def fail(writer: Any, *args: Any, **kwargs: Any) -> Any:
        if Path(str(writer.path)).name == "epoch_2.pth":
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError(28, "No space left on device")
        return method(writer, *args, **kwargs)

    if os.environ["LOCAL_RANK"] == rank:
        mock.patch.object(FileSystemWriter, place, fail).start()
    try:
        train(out, strategy, 4, background=True)
    except Exception as error:
        return {"error": str(error), "notes": error.__notes__}
    return {}


def main(out: Path, strategy: str, what: str, *how: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    run = {"trains": trains, "resumes": resumes, "breaks": breaks}[what]
    write_rank(out, run(out, strategy, *how))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
