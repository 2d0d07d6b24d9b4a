"""Train BatchNorm layers in two processes, for test_batch_norm_ddp.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_hooks import EMAHook, FreezeHook, Hook
from lightning_hooks.hooks.batch_norm.population_stats import update_bn_stats
from lightning_hooks.hooks.batch_norm.precise_bn import PreciseBNHook
from lightning_hooks.hooks.sampler_seed import DistSamplerSeedHook
from lightning_hooks.hooks.sync_buffers import SyncBuffersHook, sync_buffers
from support.processes import write_rank
from support.training import TinyNormModule, fit, make_loader, two_ranks

SIZES = ((5, 3), (4, 2, 6))


def data(rank: int) -> list[torch.Tensor]:
    """Return batches whose sizes, number and distribution differ between ranks."""
    generator = torch.Generator().manual_seed(rank)
    return [
        torch.randn(n, 3, generator=generator, dtype=torch.float64) * (n + rank) + rank
        for n in SIZES[rank]
    ]


class Module(TinyNormModule):
    validation_step = None  # type: ignore[assignment]


class Look(Hook):
    """Records the state of the rank."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}

    def after_run(self, runner: Any) -> None:
        state = runner.module.state_dict()
        self.found["state"] = {name: value.tolist() for name, value in state.items()}
        self.found["pure"] = pure(runner.rank)
        self.found["synced"] = synced(runner.rank)


def pure(rank: int) -> dict[str, Any]:
    """Call the function on unequal parts, on an empty part, and without any data."""
    found = {}
    for name, batches in {
        "unequal": data(rank),
        "empty on 1": data(0) if rank == 0 else [],
        "no data": [],
    }.items():
        layer = nn.BatchNorm1d(3).double()
        update_bn_stats(layer, batches)
        found[name] = [layer.running_mean.tolist(), layer.running_var.tolist()]
    return found


def synced(rank: int) -> list[Any]:
    """Buffers of several types and shapes."""
    layer = nn.BatchNorm1d(2)
    layer.running_mean.fill_(rank)
    layer.running_var[rank] = 3.0
    layer.num_batches_tracked.fill_(7 + rank)
    layer.register_buffer("mask", torch.tensor([rank == 0, rank == 1]))
    layer.register_buffer("low", torch.full((1, 2), rank + 1.0, dtype=torch.bfloat16))
    sync_buffers(layer)
    return [buffer.tolist() for buffer in layer.buffers()]


def seen_by(out: Path, *hooks: Any, epochs: int = 1) -> dict[str, Any]:
    """Train; return the results of the rank."""
    look = Look()
    options = {"batches": make_loader(3, 4), "max_epochs": epochs, **two_ranks()}
    fit(out, *hooks, look, module=Module, **options)
    return look.found


def main(out: Path) -> None:
    torch.set_num_threads(1)
    average = EMAHook(0.1, precise_bn=12)
    seen_by(out, average, epochs=2)
    frozen = Module()
    first = frozen.net[0].weight.clone()
    unused = two_ranks(find_unused_parameters=True)
    fit(out, FreezeHook("net.0", until_iter=1), module=frozen, max_epochs=1, **unused)
    trained = frozen.net[0].weight.detach()
    try:
        fit(out, FreezeHook("net.0", until_iter=1), module=Module, **two_ranks())
    except ValueError as error:
        refused = str(error)
    found = {
        "frozen": [refused, bool(trained.equal(first)), trained.tolist()],
        "average": {key: value.tolist() for key, value in average.ema_state_dict().items()},
        "precise": seen_by(out, PreciseBNHook(num_samples=12), DistSamplerSeedHook(), epochs=2),
        "synced": seen_by(out, SyncBuffersHook()),
        "plain": seen_by(out),
    }
    write_rank(out, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
