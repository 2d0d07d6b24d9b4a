"""Trains an epoch, from the last directory on, for test_moved_directories.py.

python -m support.jobs.moved_directories DIRECTORY EPOCHS
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from lightning_hooks import CheckpointHook, EMAHook, StochasticWeightAverageHook
from support.fsdp_on_cpu import FSDPOnCPU
from support.training import TinyModule, make_loader, make_trainer

STRATEGIES = ("fsdp2", "fsdp2 in bfloat16", "fsdp")


class Module(TinyModule):
    """A module with seven unevenly sharded rows; each rank trains on a share of the batch."""

    dtype_of_net = torch.float32

    def make_net(self) -> nn.Module:
        net = nn.Sequential(nn.Linear(4, 7), nn.BatchNorm1d(7), nn.Linear(7, 2))
        return net.to(self.dtype_of_net)

    def configure_model(self) -> None:
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            mesh: Any = self.device_mesh
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def loss(self, batch: Any) -> torch.Tensor:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        self.net[1].eval()  # the statistics of a batch are each rank's own
        x, y = (part[rank::ranks].to(self.dtype_of_net) for part in batch)
        return nn.functional.mse_loss(self(x), y)

    def validation_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self.log("val_loss", self.loss(batch), batch_size=1, sync_dist=True)


class LowModule(Module):
    """A module in bfloat16, whose averages have a higher precision."""

    dtype_of_net = torch.bfloat16


def train(
    out: Path,
    strategy: Any,
    epochs: int,
    module: Any = Module,
    ckpt_path: Any = "last",
    **options: Any,
) -> Any:
    """Train; return the averages, whole, on all ranks."""
    hooks: Any = [
        EMAHook(0.1, warm_up=0, buffers="copy"),
        StochasticWeightAverageHook(),
        CheckpointHook(interval=1, max_keep_ckpts=1, out_dir=str(out)),
    ]
    trainer = make_trainer(
        *(out, *hooks),
        strategy=strategy,
        max_epochs=epochs,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
        enable_checkpointing=True,
        **options,
    )
    loaders = make_loader(3, 4), make_loader(1, 4, seed=1)
    given = ckpt_path if epochs > 1 else None
    trainer.fit(module(lr=0.05, seed=epochs), *loaders, ckpt_path=given)
    return read(hooks[:2], module)


def read(hooks: Any, module: Any) -> dict[str, Any]:
    """Return the averages of hooks as state dicts, and the counts of steps and updates."""
    averages = []
    for hook in hooks:
        plain = module()
        hook.apply_to(plain)
        averages.append(plain.state_dict())
    counts = [(hook.steps, hook.updates) for hook in hooks]
    return {"averages": averages, "counts": counts}


def strategy_of(name: str, ranks: int) -> Any:
    if name == "fsdp":
        policy = ModuleWrapPolicy([nn.Linear])
        return FSDPOnCPU(state_dict_type="sharded", auto_wrap_policy=policy)
    return ModelParallelStrategy(ranks, 1, process_group_backend="gloo")


def main(out: Path, epochs: int, ranks: int) -> None:
    warnings.simplefilter("ignore")
    found = {}
    for name in STRATEGIES:
        module = LowModule if "bfloat16" in name else Module
        strategy = strategy_of(name, ranks)
        found[name] = train(out / name, strategy, epochs, module, devices=ranks)
    torch.save(found, out / f"found{torch.distributed.get_rank()}.pt")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
