"""Average sharded parameters in two processes, for test_sharded_averages.py.

python -m support.jobs.sharded_averages DIRECTORY KIND, with the KIND of checkpoint: directory or
file; or whole, for a single process.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest import mock

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    HookAdapter,
    OptimizerHook,
    StochasticWeightAverageHook,
)
from support.collectives import Collectives
from support.training import TinyModule, make_loader, make_trainer


class Scale(nn.Module):
    """A layer with a single number, so the shard of the second rank is empty."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.full((1,), 1.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


class Module(TinyModule):
    """A module with seven unevenly sharded features; each rank trains on a share of the batch."""

    poison: int | None = None

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 7), nn.Tanh(), Scale(), nn.Linear(7, 2)).double()

    def configure_model(self) -> None:
        if not isinstance(self.trainer.strategy, ModelParallelStrategy):
            return  # the reference run in a single process
        mesh: Any = self.device_mesh
        for layer in (self.net[0], self.net[2], self.net):
            if not hasattr(layer, "reshard"):  # a second fit
                fully_shard(layer, mesh=mesh["data_parallel"])

    def loss(self, batch: Any) -> torch.Tensor:
        rank, ranks = self.trainer.global_rank, self.trainer.world_size
        return super().loss([part[rank::ranks].double() for part in batch])

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("val_loss", loss, batch_size=len(batch[0]), sync_dist=True)
        return loss


class Watch(Callback):
    """Records the unsharded weights of training and validation, and the losses."""

    def __init__(self) -> None:
        self.train: list[Any] = []
        self.val: list[Any] = []
        self.losses: list[float] = []

    def on_train_batch_start(self, trainer: Any, module: Any, *args: Any) -> None:
        self.train.append(whole(module))

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, *args: Any) -> None:
        self.losses.append(outputs["loss"].item())

    def on_validation_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        if not trainer.sanity_checking:
            self.val.append(whole(module))


def whole(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of the unsharded weights."""
    state = module.state_dict()
    full = {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in state.items()}
    return {k: v.detach().clone() for k, v in full.items()}


def averages() -> list[Any]:
    return [EMAHook(momentum=0.1, warm_up=0, after_fit="raw"), StochasticWeightAverageHook()]


def trainer_of(out: Path, kind: str, *callbacks: Any, **kwargs: Any) -> L.Trainer:
    strategy: Any = "auto"
    if kind != "whole":
        strategy = ModelParallelStrategy(
            data_parallel_size=2,
            tensor_parallel_size=1,
            process_group_backend="gloo",
            save_distributed_checkpoint=kind == "directory",
        )
    return make_trainer(
        out,
        *callbacks,
        devices=1 if kind == "whole" else 2,
        strategy=strategy,
        num_sanity_val_steps=1,
        use_distributed_sampler=False,  # Module.loss takes the rank's share of a batch
        **{"max_epochs": 2, "val_check_interval": 1, **kwargs},
    )


def loaders() -> tuple[Any, Any]:
    return make_loader(3, 4), make_loader(2, 4, seed=1)


class Saves(Callback):
    """Writes checkpoints: while the average is in the model, and after the first epoch."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.validations = 0

    def on_validation_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        self.validations += 1
        if self.validations == 3:  # the last of the first epoch
            for only in (False, True):
                path = self.out / ("swapped_weights" if only else "swapped_full")
                trainer.save_checkpoint(path, weights_only=only)

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        if trainer.current_epoch == 0:
            trainer.save_checkpoint(self.out / "half", weights_only=False)


class Poison(Callback):
    """Sets a NaN on the last rank after the third step, until the average is updated.

    Without sharding, the single rank gets the NaN.
    """

    def __init__(self) -> None:
        self.good: Any = None

    def on_train_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        weight = module.net[3].weight
        held = getattr(weight, "_local_tensor", weight).detach()
        if trainer.global_step == 3 and trainer.global_rank == trainer.world_size - 1:
            self.good = held.clone()
            held[0, 0] = torch.nan

    def on_train_batch_start(self, trainer: Any, module: Any, *args: Any) -> None:
        if self.good is not None:
            weight = module.net[3].weight
            getattr(weight, "_local_tensor", weight).detach().copy_(self.good)
            self.good = None


class Breaks(Callback):
    """Ends the run with an error when the average is in the model."""

    def on_validation_batch_end(self, trainer: Any, module: Any, *args: Any) -> None:
        if not trainer.sanity_checking:
            raise RuntimeError("broken")


def train_whole(out: Path, kind: str, found: dict[str, Any]) -> None:
    """Train with a validation after each batch, checkpoints, and exports of the averages."""
    watch, (ema, swa) = Watch(), averages()
    module = Module(lr=0.05)
    trainer = trainer_of(out, kind, ema, HookAdapter([swa]), watch, Saves(out))
    trainer.fit(module, *loaders())
    found["fit"] = noted(watch, module, ema, swa)
    with Collectives() as collectives, mock.patch.object(DTensor, "full_tensor") as singly:
        ema.export(str(out / "ema.pth"))
    found["export"] = {**collectives.found, "full_tensor": singly.call_count}
    swa.export(str(out / "swa.pth"))
    found["applied"] = whole(applied(ema, module))
    trainer.save_checkpoint(out / "after_full", weights_only=False)
    trainer.save_checkpoint(out / "after_weights", weights_only=True)


def noted(watch: Watch, module: L.LightningModule, *hooks: Any) -> dict[str, Any]:
    """Return the results of a run as plain types."""
    found: dict[str, Any] = {name: getattr(watch, name) for name in ("train", "val", "losses")}
    found["val_loss"] = module.trainer.callback_metrics.get("val_loss")
    found["raw"] = whole(module)
    found["averages"] = [whole(applied(hook, Module(seed=3))) for hook in hooks]
    found["steps"] = [hook.steps for hook in hooks]
    return found


def applied(hook: Any, module: nn.Module) -> nn.Module:
    hook.apply_to(module)
    return module


def resume(out: Path, kind: str, found: dict[str, Any]) -> None:
    """The second half, from the checkpoint of the first epoch's end; and evaluations of files."""
    watch, (ema, swa) = Watch(), averages()
    module = Module(seed=5, lr=0.05)
    trainer = trainer_of(out, kind, ema, HookAdapter([swa]), watch)
    trainer.fit(module, *loaders(), ckpt_path=str(out / "half"))
    found["resume"] = noted(watch, module, ema, swa)
    for name in ("swapped_full", "swapped_weights", "after_full", "after_weights"):
        watch, module = Watch(), Module(seed=7)
        trainer = trainer_of(out, kind, EMAHook(momentum=0.1, warm_up=0), watch)
        trainer.validate(module, loaders()[1], ckpt_path=str(out / name), verbose=False)
        found[name] = noted(watch, module)


def broken(out: Path, kind: str, found: dict[str, Any]) -> None:
    """Run until an error in validation, then fit the same module again."""
    watch, ema, module = Watch(), averages()[0], Module(lr=0.05)
    trainer = trainer_of(out, kind, ema, watch, Breaks(), val_check_interval=2)
    with pytest.raises(RuntimeError, match="broken"):
        trainer.fit(module, *loaders())
    found["broken"] = noted(watch, module, ema)
    trainer.save_checkpoint(out / "broken_weights", weights_only=True)
    # no look at the weights, because a look would gather the shards
    trainer_of(out, kind, ema).fit(module, *loaders())
    found["mended"] = noted(Watch(), module, ema)


def poisoned(out: Path, kind: str, found: dict[str, Any]) -> None:
    """Train with a NaN on one rank after one of the steps."""
    (ema, swa), module = averages(), Module(lr=0.05)
    trainer = trainer_of(out, kind, Poison(), ema, swa)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer.fit(module, *loaders())
    found["poisoned"] = noted(Watch(), module, ema, swa)
    found["poisoned"]["warned"] = sum("left 1 updates out" in str(w.message) for w in caught)


class Loses(Module):
    """A module with a NaN as the loss of the fourth step."""

    steps = 0

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.steps += 1
        return self.loss(batch) * (torch.nan if self.steps == 4 else 1)


def restored(out: Path, kind: str, found: dict[str, Any]) -> None:
    """Train with a restore of the last good state, including the average."""
    ema, module = averages()[0], Loses(lr=0.05)
    trainer_of(out, kind, CheckInvalidLossHook(interval=1, action="restore"), ema).fit(
        module, *loaders()
    )
    found["restored"] = noted(Watch(), module, ema)


def kept(out: Path, kind: str, found: dict[str, Any]) -> None:
    """Run with checkpoint and clipping hooks, then resume."""
    out = out / "kept"
    norms = []
    for epochs in (2, 3):
        save = CheckpointHook(interval=1, max_keep_ckpts=1)
        clip, watch = OptimizerHook(grad_clip={"max_norm": 0.05}), Watch()
        module = Module(lr=0.05, seed=epochs)
        hooks = HookAdapter([save, clip], work_dir=str(out))
        last = hooks.last_checkpoint
        trainer = trainer_of(out, kind, hooks, watch, max_epochs=epochs)
        trainer.fit(module, *loaders(), ckpt_path=last)
        norms += [float(value) for value in watch.losses]
        if torch.distributed.is_initialized():
            torch.distributed.barrier()
    found["kept"] = {
        "losses": norms,
        "raw": whole(module),
        "files": sorted(path.name for path in out.glob("epoch_*")),
        "is directory": (out / "epoch_3.pth").is_dir(),
        "last": str(hooks.last_checkpoint),
    }


def main(out: Path, kind: str) -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    for part in (train_whole, resume, broken, poisoned, restored, kept):
        part(out, kind, found)
    torch.save(found, out / f"found{os.environ.get('LOCAL_RANK', 0)}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
