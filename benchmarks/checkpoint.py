"""What it costs to save a checkpoint, and how long the training waits for it.

About 293 MiB in 800 tensors, as ResNet-50 with Adam. All cases run in one process, in turns, each
round into an empty directory; a ratio is the median of the ratios of the same round. The peers
are mmcv's way (``torch.save`` into memory, then one write, nothing synced) and one plain copy.

    python -m benchmarks.checkpoint [--directory DIR] [--rounds 7] [--threads 1]
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from lightning_hooks.background import BackgroundSaver
from lightning_hooks.hooks.checkpoint_writing import Target, write_note
from lightning_hooks.hooks.kept_files import keep_last

TENSORS, MIB = 800, 293
STEPS = 40


def make_checkpoint(device: str) -> dict[str, Any]:
    """Make what is saved."""
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


def plain(checkpoint: dict[str, Any], directory: Path) -> None:
    """``torch.save`` by name, and nothing else: the floor."""
    torch.save(checkpoint, directory / "epoch_1.pth")


def ours(checkpoint: dict[str, Any], directory: Path) -> None:
    """Everything that CheckpointHook does: checksum, fsync, manifest, rename, old files."""
    target = Target(str(directory), "epoch_1.pth", "run", "epoch_{}.pth")
    write_note(checkpoint, target=target, resumable=True, done=lambda: None)
    keep_last(str(directory), "run", "epoch_{}.pth", 1)


class Peak:
    """The most resident memory above that at the start, sampled by a thread."""

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
    """Return the bytes of this process that are in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def timed(call: Callable[[], Any], device: str) -> float:
    """Return the milliseconds that a call takes."""
    if device != "cpu":
        torch.cuda.synchronize()
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


def main() -> None:
    """Measure all cases in turns and print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1, help="of torch; the writer has one more")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    directory = Path(tempfile.mkdtemp(dir=arguments.directory))
    device = arguments.device
    checkpoint = make_checkpoint(device)
    kept = [torch.empty_like(x, device="cpu") for x in checkpoint["state_dict"].values()]
    if device != "cpu":
        kept = [x.pin_memory() for x in kept]
    saver = BackgroundSaver()

    def copy() -> None:
        torch._foreach_copy_(kept, list(checkpoint["state_dict"].values()))
        if device != "cpu":
            torch.cuda.synchronize()

    saves: dict[str, Callable[[], None]] = {
        "mmcv's way": lambda: mmcv_way(checkpoint, directory),
        "torch.save by name": lambda: plain(checkpoint, directory),
        "CheckpointHook": lambda: ours(checkpoint, directory),
        "one copy": copy,
        "CheckpointHook(background=True)": lambda: saver.save(
            checkpoint, lambda found: ours(found, directory), "a file"
        ),
    }
    stall: dict[str, list[float]] = {case: [] for case in saves}
    done: dict[str, list[float]] = {case: [] for case in saves}
    memory: dict[str, list[float]] = {case: [] for case in saves}
    in_loop: dict[str, list[float]] = {case: [] for case in saves}
    gc.disable()
    try:
        for round_ in range(arguments.rounds + 1):  # the first one warms up
            bare = timed(lambda: loop(lambda: None), device)
            for case, save in saves.items():
                for call in (functools.partial(loop, save), None):
                    shutil.rmtree(directory)
                    directory.mkdir()
                    if call is not None:
                        extra = timed(call, device) - bare
                        saver.wait()
                        if round_:
                            in_loop[case].append(extra)
                start = time.perf_counter()
                with Peak() as peak:
                    waited = timed(save, device)
                    saver.wait()
                if round_:
                    stall[case].append(waited)
                    done[case].append((time.perf_counter() - start) * 1e3)
                    memory[case].append(peak.mib)
            gc.collect()
    finally:
        shutil.rmtree(directory)
    titles = (
        "waits ms",
        "on disk ms",
        "x mmcv",
        "x copy",
        "in a loop ms",
        "memory MiB",
        "kept MiB",
    )
    table = Table("case", *titles)
    for case in saves:
        ratios = [
            statistics.median(a / b for a, b in zip(stall[case], stall[peer], strict=True))
            for peer in ("mmcv's way", "one copy")
        ]
        keeps = saver._snapshot.nbytes / 2**20 if "background" in case else 0
        table.add_row(
            case,
            f"{statistics.median(stall[case]):.0f} ({min(stall[case]):.0f})",
            f"{statistics.median(done[case]):.0f}",
            *[f"{ratio:.2f}" for ratio in ratios],
            f"{statistics.median(in_loop[case]):.0f}",
            f"{statistics.median(memory[case]):.0f}",
            f"{keeps:.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
