"""Counts the collectives of hooks in two processes; test_collectives.py reads the counts."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    SyncBuffersHook,
    TextLoggerHook,
)
from support.collectives import Collectives
from support.processes import write_rank
from support.training import TinyNormModule, make_loader, make_trainer, two_ranks

Hooks = Callable[[], list[Any]]


class Module(TinyNormModule):
    """A module without validation, with buffers of two dtypes, optionally sharded."""

    validation_step = None  # type: ignore[assignment]

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            mesh: Any = self.device_mesh
            fully_shard(self.net, mesh=mesh["data_parallel"])


def count(
    out: Path, hooks: Hooks, steps: int = 4, epochs: int = 1, is_sharded: bool = False
) -> Counter[str]:
    """Return the additional collectives and bytes of a run with hooks."""
    found = []
    for callbacks in ([], [HookAdapter(hooks())]):
        options = {"max_epochs": epochs, **two_ranks(broadcast_buffers=False)}
        if is_sharded:
            options["strategy"] = ModelParallelStrategy(2, 1, process_group_backend="gloo")
        trainer = make_trainer(out, *callbacks, **options)
        with Collectives() as collectives:
            trainer.fit(Module(), make_loader(2 * steps))
        found.append(collectives.found + Counter(bytes=collectives.bytes))
    return found[1] - found[0]


def each(more: Counter[str], less: Counter[str], times: int = 1) -> dict[str, float]:
    """Return the additional collectives of a run, divided by the number of events."""
    names = sorted({*more, *less})
    return {name: (more[name] - less[name]) / times for name in names if more[name] != less[name]}


def quiet() -> list[Any]:
    """Return hooks with work in each step."""
    return [
        *(CosineAnnealingLrUpdaterHook(min_lr=0), OptimizerHook(grad_clip={"max_norm": 1.0})),
        *(EMAHook(), CheckInvalidLossHook(interval=100), IterTimerHook()),
        *(TextLoggerHook(interval=100), CheckpointHook(interval=100, save_last=False)),
    ]


def between(
    out: Path, less: Hooks, more: Hooks, times: int = 1, is_sharded: bool = False
) -> dict[str, float]:
    """Return the additional collectives of one set of hooks over another in four steps."""
    runs = (count(out / n, h, is_sharded=is_sharded) for n, h in (("more", more), ("less", less)))
    return each(*runs, times)


def save(*intervals: int, **options: Any) -> list[Hooks]:
    """Return functions that create a checkpoint hook with the given interval, one by interval."""
    options = {"by_epoch": False, "save_last": False, "max_keep_ckpts": 1, **options}
    return [lambda i=i: [CheckpointHook(interval=i, **options)] for i in intervals]  # type: ignore[misc]


def counts(out: Path) -> dict[str, dict[str, float]]:
    """Return the rank's collectives and bytes by event."""

    def line(interval: int, **options: Any) -> Hooks:
        return lambda: [TextLoggerHook(interval=interval, **options)]

    def timer() -> list[Any]:
        return [IterTimerHook()]

    def sync() -> list[Any]:
        return [IterTimerHook(), SyncBuffersHook()]

    def steps(is_sharded: bool) -> dict[str, float]:
        runs = (count(out, quiet, steps=n, is_sharded=is_sharded) for n in (12, 4))
        return each(*runs, 8)

    check = [lambda i=i: [CheckInvalidLossHook(interval=i)] for i in (4, 1)]
    return {
        "step": steps(is_sharded=False),
        "step, sharded parameters": steps(is_sharded=True),
        "line": between(out, line(4), line(1), 3),
        "line, sync=True": between(out, line(4, sync=True), line(1, sync=True), 3),
        "look for a bad loss": between(out, *check, 3),
        "save": between(out, *save(4, 2)),
        "save, sync_buffer=True": between(out, *save(4, 2, sync_buffer=True)),
        # elsewhere: each rank of Lightning's would remove the file in a directory's place
        "save of a directory": between(out / "parts", *save(4, 2), is_sharded=True),
        "save of a directory, background=True": between(
            out / "parts", *save(4, 2, background=True), is_sharded=True
        ),
        "epoch": each(count(out, timer, epochs=3), count(out, timer, epochs=1), 2),
        "epoch, SyncBuffersHook": each(count(out, sync, epochs=3), count(out, sync, epochs=1), 2),
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    write_rank(out, counts(out))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
