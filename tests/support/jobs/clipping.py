"""Clip sharded gradients in two processes, for test_clipping.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from lightning_hooks import Hook, OptimizerHook
from lightning_hooks.hooks.optimizer.clipping import KINDS
from support.fsdp_on_cpu import FSDPOnCPU
from support.processes import write_rank
from support.training import TinyModule, fit

RECIPES: dict[str, Any] = {
    "mmcv": {"max_norm": 0.1},
    "norm": {"type": "norm", "max_norm": 0.1},
    "value": {"type": "value", "clip_value": 0.05},
    "adaptive": {"type": "adaptive", "clip_factor": 0.1},
    "groups": [{"max_norm": 0.1}, {"type": "adaptive", "clip_factor": 0.2}],
}


class Plain(TinyModule):
    """A module with an uneven shard of three features, and a layer missing on the second rank."""

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1), nn.Linear(1, 2))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": self.net[0].parameters()}, {"params": self.net[2:].parameters()}]
        return torch.optim.SGD(groups, lr=self.lr, momentum=self.momentum)


class Module(Plain):
    validation_step = None  # type: ignore[assignment]

    def configure_model(self) -> None:
        mesh: Any = self.device_mesh
        fully_shard(self.net, mesh=mesh["data_parallel"])


class Flat(Plain):
    validation_step = None  # type: ignore[assignment]


class Look(Hook):
    """Records the logged norms and the batches of the rank."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.seen: dict[str, list[float]] = {"grad_norm": [], "clip_fraction": []}
        self.batches: list[Any] = []
        self.kinds: set[str] = set()

    def after_train_iter(self, runner: Any) -> None:
        self.batches.append([part.tolist() for part in runner.data_batch])
        for name, seen in self.seen.items():
            if name in runner.log_buffer.val_history:
                value = runner.log_buffer.val_history[name][-1]
                self.kinds.add(type(value).__name__)
                seen.append(float(value))


def train(out: Path, grad_clip: Any, flattened: bool = False) -> dict[str, Any]:
    """Train with clipping of sharded gradients; return the results of the rank."""
    look, module = Look(), Flat() if flattened else Module()
    strategy: Any = ModelParallelStrategy(
        data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo"
    )
    if flattened:
        strategy = FSDPOnCPU()
    trainer = fit(out, OptimizerHook(grad_clip), look, module=module, devices=2, strategy=strategy)
    weights: list[Any]
    if flattened:
        with FullyShardedDataParallel.summon_full_params(trainer.model):  # type: ignore[arg-type]
            weights = [p.detach().clone() for p in module.parameters()]
    else:
        weights = [p.full_tensor() for p in module.parameters()]  # type: ignore[attr-defined]
    return {
        **look.seen,
        "kinds": sorted(look.kinds),
        "batches": look.batches,
        "weights": [weight.tolist() for weight in weights],
    }


def mixed(kind: str) -> dict[str, Any]:
    """Clip sharded and replicated gradients together."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    parameters = []
    for value in (1.0, 2.0, 3.0):
        whole = torch.full((3, 2), value)
        spread = whole if value == 2 else distribute_tensor(whole, mesh, [Shard(0)])
        parameter = nn.Parameter(spread)
        parameter.grad = (spread * value).detach()
        parameters.append(parameter)
    recipe = {key: value for key, value in RECIPES[kind].items() if key != "type"}
    found = KINDS[kind](parameters, **recipe)
    gradients: list[Any] = [parameter.grad for parameter in parameters]
    whole_ones = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in gradients]
    return {
        "norm": float(found.norm),
        "exceeded": float(found.exceeded()),
        "gradients": [gradient.tolist() for gradient in whole_ones],
    }


def main(out: Path) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {name: train(out, recipe) for name, recipe in RECIPES.items()}
    for name in ("norm", "value"):
        found[f"flattened {name}"] = train(out, RECIPES[name], flattened=True)
    try:
        train(out, RECIPES["groups"], flattened=True)
    except ValueError as error:
        found["refused"] = str(error)
    found["mixed"] = {kind: mixed(kind) for kind in ("norm", "value", "adaptive")}
    write_rank(out, found)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
