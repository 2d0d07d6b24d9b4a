"""The cost of saving a checkpoint, and the time that the training waits for it.

A checkpoint has about 293 MiB in 800 tensors, like ResNet-50 with Adam; each save writes into an
empty directory below ``TMPDIR``. The peers are mmcv's way (``torch.save`` into memory, then one
write, without an fsync and with our fsync), Lightning's two writers and one plain copy.

    python -m benchmarks checkpoint
"""

from __future__ import annotations

import functools
import io
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.plugins.io import AsyncCheckpointIO, TorchCheckpointIO

from benchmarks.measure import Bench, Figures, in_turns
from lightning_hooks.storage import checkpoints, files
from lightning_hooks.storage.background_save import BackgroundSaver

TENSORS, MIB = 800, 293
STEPS = 60


def make_checkpoint(device: str) -> dict[str, Any]:
    """Make a checkpoint to save."""
    n = MIB * 2**20 // 4 // TENSORS
    return {
        "state_dict": {f"layer.{i}": torch.randn(n, device=device) for i in range(TENSORS)},
        "meta": {"epoch": 1, "iter": 100},
    }


def mmcv_way(checkpoint: dict[str, Any], directory: Path) -> None:
    """Write as mmcv's ``save_checkpoint`` with its disk backend."""
    with io.BytesIO() as buffer:
        torch.save(checkpoint, buffer)
        (directory / "epoch_1.pth").write_bytes(buffer.getvalue())


def mmcv_way_synced(checkpoint: dict[str, Any], directory: Path) -> None:
    """Write as :func:`mmcv_way`, and wait until the file is on the disk, as ours does."""
    mmcv_way(checkpoint, directory)
    files.sync(str(directory / "epoch_1.pth"))


def plain(checkpoint: dict[str, Any], directory: Path) -> None:
    """Call ``torch.save`` with a file name and do nothing else: the floor."""
    torch.save(checkpoint, directory / "epoch_1.pth")


def ours(checkpoint: dict[str, Any], directory: Path) -> None:
    """Save as CheckpointHook does: checksum, fsync, manifest, rename, old files."""
    keep_one = functools.partial(checkpoints.superseded, limit=1)
    target = checkpoints.Target(
        str(directory), "epoch_1.pth", "run", "epoch_{}.pth", choose_old=keep_one
    )
    checkpoints.save(checkpoint, target)


class Peak:
    """Measures the peak of resident memory above that at the start, with a thread."""

    def __enter__(self) -> Peak:
        self.start, self.most, self._stop = resident(), 0, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            self.most = max(self.most, resident())

    def __exit__(self, *args: Any) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def mib(self) -> float:
        return max(self.most - self.start, 0) / 2**20


def resident() -> int:
    """Return this process's resident memory in bytes."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(call: Callable[[], Any]) -> float:
    """Return the milliseconds that a call takes."""
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1e3


def loop(save: Callable[[], None]) -> None:
    """Run steps that keep the processor as busy as training, and save in the middle."""
    x = torch.ones(600, 600)
    for step in range(STEPS):
        if step == STEPS // 3:
            save()
        for _ in range(5):
            x = (x @ x).clamp_(-1, 1)


MMCV, SYNCED, COPY = "mmcv's way", "mmcv's way, and fsync", "one copy"
OURS, BACKGROUND = "CheckpointHook", "CheckpointHook(background=True)"


class Saves:
    """Times each way to save in the current round."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.saver = BackgroundSaver()
        checkpoint = make_checkpoint("cpu")
        weights = list(checkpoint["state_dict"].values())
        kept = [torch.empty_like(weight) for weight in weights]
        file = str(directory / "epoch_1.ckpt")
        self.size = sum(weight.nbytes for weight in weights) / 2**20
        plain_io, self.async_io = TorchCheckpointIO(), AsyncCheckpointIO(TorchCheckpointIO())
        self.ways: dict[str, Callable[[], Any]] = {
            MMCV: lambda: mmcv_way(checkpoint, directory),
            SYNCED: lambda: mmcv_way_synced(checkpoint, directory),
            "torch.save by name": lambda: plain(checkpoint, directory),
            "Lightning's writer": lambda: plain_io.save_checkpoint(checkpoint, file),
            "Lightning AsyncCheckpointIO": (
                lambda: self.async_io.save_checkpoint(checkpoint, file)
            ),
            OURS: lambda: ours(checkpoint, directory),
            COPY: lambda: torch._foreach_copy_(kept, weights),
            BACKGROUND: lambda: self.saver.save(
                checkpoint, lambda found: ours(found, directory), "a file"
            ),
        }
        self.done: dict[str, Figures] = {case: [] for case in self.ways}
        self.memory: dict[str, Figures] = {case: [] for case in self.ways}

    def wait(self) -> None:
        """Wait until everything is written."""
        self.saver.wait()
        if self.async_io._executor is not None:
            self.async_io._executor.submit(lambda: None).result()

    def _tidy(self) -> None:
        """Remove all files, and wait until the disk is idle."""
        shutil.rmtree(self.directory)
        self.directory.mkdir()
        os.sync()

    def stall(self, case: str) -> float:
        """Save; return for how long the training waits."""
        self._tidy()
        start = time.perf_counter()
        with Peak() as peak:
            waited = timed(self.ways[case])
            self.wait()
        self.done[case].append((time.perf_counter() - start) * 1e3)
        self.memory[case].append(peak.mib)
        return waited

    def in_a_loop(self, case: str | None) -> float:
        """Return the time of a loop of work that saves once."""
        self._tidy()
        took = timed(functools.partial(loop, self.ways[case] if case else lambda: None))
        self.wait()
        return took


def run(rounds: int = 9) -> Iterator[Bench]:
    """Measure all cases in turns."""
    torch.set_num_threads(1)  # the writer has one more
    directory = Path(tempfile.mkdtemp())
    try:
        saves = Saves(directory)
        stalls = {case: functools.partial(saves.stall, case) for case in saves.ways}
        bench = Bench("Checkpoint: the training waits", "ms", in_turns(stalls, rounds))
        bench.compare_cases(BACKGROUND, COPY, 1.5)
        bench.compare_cases(BACKGROUND, MMCV, 0.12)
        bench.compare_cases(BACKGROUND, "Lightning AsyncCheckpointIO")
        bench.compare_cases(OURS, MMCV, 0.65)
        bench.compare_cases(OURS, SYNCED)
        yield bench
        yield Bench(
            "Checkpoint: it is on the disk",
            "ms",
            {case: figures[1:] for case, figures in saves.done.items()},
        )
        memory = {case: figures[1:] for case, figures in saves.memory.items()}
        # the copy's buffer is made before the first round that counts, and kept
        memory[BACKGROUND] = [
            peak + sum(kept.nbytes for kept in saves.saver._snapshot._kept) / 2**20
            for peak in memory[BACKGROUND]
        ]
        bench = Bench("Checkpoint: memory beyond the training's, kept included", "MiB", memory)
        what = "memory of " + BACKGROUND
        bench.compare(what, memory[BACKGROUND], "the checkpoint", [saves.size] * rounds, 1.02)
        bench.compare("memory of " + OURS, memory[OURS], MMCV, memory[MMCV], 0.02)
        yield bench
        loops: dict[str, Callable[[], float]] = {
            "without": functools.partial(saves.in_a_loop, None),
            **{
                case: functools.partial(saves.in_a_loop, case)
                for case in (MMCV, OURS, "Lightning AsyncCheckpointIO", BACKGROUND)
            },
        }
        bench = Bench("Checkpoint: a loop of work that saves once", "ms", in_turns(loops, rounds))
        extra, theirs = bench.over(BACKGROUND, "without"), bench.over(MMCV, "without")
        bench.compare(f"{BACKGROUND}, in a loop", extra, MMCV, theirs, 0.5)
        yield bench
    finally:
        shutil.rmtree(directory)
