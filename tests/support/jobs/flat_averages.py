"""Averages FSDP's flat parameters in two processes, for test_flat_averages.py.

python -m support.jobs.flat_averages DIRECTORY
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from lightning_hooks import CheckInvalidLossHook, EMAHook, StochasticWeightAverageHook
from lightning_hooks.utils.fsdp import flat_parameters, local_slice
from support.fsdp_on_cpu import FSDPOnCPU
from support.training import TinyModule, make_loader, make_trainer

SHARDINGS = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD")
KINDS: dict[str, dict[str, Any]] = {
    "file": {"use_orig_params": True},
    "directory": {"use_orig_params": True, "state_dict_type": "sharded"},
    "flat": {"use_orig_params": False},
    "flat_directory": {"use_orig_params": False, "state_dict_type": "sharded"},
}
"""Arguments of each strategy; a single file has no optimizer state of a flat parameter."""


class Module(TinyModule):
    """A module whose flat shards end within layers; each rank trains on a share of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.full((1,), 2.0))

    bad_step = 0
    steps = 0

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))

    def loss(self, batch: Any) -> torch.Tensor:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        return super().loss([part[rank::ranks] for part in batch])

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.steps += 1
        return self.loss(batch) * (torch.nan if self.steps == self.bad_step else 1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch), batch_size=1, sync_dist=True)

    def configure_optimizers(self) -> Any:
        model: Any = self.trainer.model or self  # a flat parameter may be the wrapper's
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


class Losses(Callback):
    """Keeps the losses of the validations, and of the steps."""

    def __init__(self) -> None:
        self.val: list[float] = []
        self.train: list[float] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.train.append(outputs["loss"].item())

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        self._note(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._note(trainer)

    def _note(self, trainer: Any) -> None:
        metrics = trainer.callback_metrics
        if "val_loss" in metrics:
            self.val += [float(metrics["val_loss"]), float(metrics["raw/val_loss"])]


class Saves(Callback):
    """Saves while the average is in place, and after the first epoch."""

    def __init__(self, out: Path) -> None:
        self.out = out

    def on_validation_batch_end(self, trainer: Any, *_: Any) -> None:
        if trainer.global_step == 4:
            trainer.save_checkpoint(self.out / "swapped.ckpt")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.out / "half.ckpt")


class Poison(Callback):
    """Sets a NaN on the last rank after the third step, until the averages are updated."""

    good: Any = None

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        held = _memory(trainer.model)
        if trainer.global_step == 3 and trainer.global_rank == trainer.world_size - 1:
            self.good = held.clone()
            held.view(-1)[0] = torch.nan

    def on_train_batch_start(self, trainer: Any, *_: Any) -> None:
        if self.good is not None:
            _memory(trainer.model).copy_(self.good)
            self.good = None


def _memory(model: Any) -> torch.Tensor:
    flat = flat_parameters(model)
    memory: torch.Tensor = local_slice(flat[-1]) if flat else next(model.parameters())
    return memory.detach()


def run(out: Path, strategy: Any, *callbacks: Any, ckpt: Any = None, **options: Any) -> Any:
    """Train with two averages; return the values to compare."""
    losses, module = Losses(), Module()
    module.bad_step = options.pop("bad_step", 0)
    hooks: list[Any] = [EMAHook(0.1, warm_up=0, validate="both"), StochasticWeightAverageHook()]
    trainer = make_trainer(
        *(out, *callbacks, *hooks, losses),
        **{"strategy": strategy, "max_epochs": 2, "val_check_interval": 2, **options},
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    with mock.patch.object(
        torch.distributed, "all_reduce", wraps=torch.distributed.all_reduce
    ) as calls:
        trainer.fit(module, make_loader(4, 4), make_loader(2, 4, seed=1), ckpt_path=ckpt)
    votes = [c for c in calls.mock_calls if c.kwargs.get("op") == torch.distributed.ReduceOp.MAX]
    averages = []
    for hook in hooks:
        plain = Module()
        hook.apply_to(plain)
        averages.append(plain.state_dict())
    hooks[0].export(str(out / "exported.pth"))
    exported = torch.load(out / "exported.pth", weights_only=True)
    assert exported.keys() == averages[0].keys()
    if callbacks and isinstance(callbacks[0], Saves):
        trainer.save_checkpoint(out / "after.ckpt")
    seen = {"val": losses.val, "train": losses.train, "votes": len(votes)}
    return {**seen, "averages": averages}


def main(out: Path) -> None:
    """Train with each way of sharding."""
    warnings.simplefilter("ignore")
    rank, found = os.environ["LOCAL_RANK"], {}
    for sharding in SHARDINGS:
        for kind, given in KINDS.items():
            here = out / f"{sharding}_{kind}"
            here.mkdir(exist_ok=True)

            def strategy(sharding: str = sharding, given: Any = given) -> Any:
                policy = ModuleWrapPolicy([nn.Linear])
                return FSDPOnCPU(auto_wrap_policy=policy, sharding_strategy=sharding, **given)

            saves = [Saves(here)] if kind != "flat" else []
            found[here.name] = run(here, strategy(), *saves, devices=2)
            if saves:
                on = run(here, strategy(), devices=2, ckpt=here / "half.ckpt")
                found[f"{here.name} resumed"] = on
            if kind.endswith("directory"):
                continue
            options = {"bad_step": 4, "devices": 2}
            check = CheckInvalidLossHook(interval=1, action="restore")
            found[f"{here.name} restored"] = run(out, strategy(), check, **options)
            found[f"{here.name} poisoned"] = run(out, strategy(), Poison(), devices=2)
    torch.save(found, out / f"found{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
