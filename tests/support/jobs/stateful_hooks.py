"""Train with stateful hooks, whole and resumed, for test_stateful_hooks.py.

python -m support.jobs.stateful_hooks DIRECTORY ROW RANKS, with a row of ROWS.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from lightning_hooks import (
    CheckInvalidLossHook,
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    CosineAnnealingMomentumUpdaterHook,
    EMAHook,
    FieldUpdaterHook,
    Hook,
    LinearMomentumEMAHook,
    OptimizerHook,
    StochasticWeightAverageHook,
    TextLoggerHook,
)
from support.fsdp_on_cpu import FSDPOnCPU
from support.jobs.fsdp import whole
from support.training import TinyModule, make_loader, make_trainer, two_ranks

ROWS = {
    "ddp, file": (2, 1),
    "fsdp, file": (2, 1),
    "fsdp, directory": (2, 1),
    "fsdp2, file": (2, 1),
    "fsdp2, directory": (2, 1),
    "tp, file": (1, 2),
    "tp, directory": (1, 2),
    "fsdp2 and tp, file": (2, 2),
    "fsdp2 and tp, directory": (2, 2),
}
"""Strategy and files: the number of ranks that share the data, and that share each layer."""


def type_of(row: str) -> torch.dtype:
    """Return the type of the parameters; FSDP knows no float64."""
    return torch.float32 if row.startswith(("fsdp,", "one in float32")) else torch.float64


class Module(TinyModule):
    """A module whose layers and batches are split over the ranks, with a NaN as the fifth loss."""

    def __init__(self, row: str, seed: int = 0) -> None:
        super().__init__(seed=seed)
        self.net.to(type_of(row))

    def make_net(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))

    def configure_model(self) -> None:
        if not isinstance(self.trainer.strategy, ModelParallelStrategy):
            return
        mesh: Any = self.device_mesh
        if mesh["tensor_parallel"].size() > 1:
            plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
            parallelize_module(self.net, mesh["tensor_parallel"], plan)  # type: ignore[arg-type]
        if mesh["data_parallel"].size() > 1:
            fully_shard(self.net, mesh=mesh["data_parallel"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)  # type: ignore[no-any-return]

    def loss(self, batch: Any) -> torch.Tensor:
        rank, shares = self.trainer.global_rank, self.trainer.world_size
        if isinstance(self.trainer.strategy, ModelParallelStrategy):
            mesh: Any = self.device_mesh
            rank, shares = mesh.get_local_rank("data_parallel"), mesh["data_parallel"].size()
        own_type = next(self.parameters()).dtype
        x, y = (part[rank::shares].to(own_type) for part in batch)
        return nn.functional.mse_loss(self(x), y)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        is_bad = self.trainer.current_epoch == 1 and batch_idx == 1
        return self.loss(batch) * (torch.nan if is_bad else 1)

    def validation_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        self.log("val_loss", self.loss(batch), batch_size=1, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02, weight_decay=0.1)


class Groups(Hook):
    """Records the options of the parameter group in each step; stops the run after an epoch."""

    priority = "LOWEST"

    def __init__(self, last_epoch: int | None) -> None:
        self.seen: list[list[float]] = []
        self.last_epoch = last_epoch

    def before_train_iter(self, runner: Any) -> None:
        (group,) = runner.trainer.optimizers[0].param_groups
        self.seen.append([group["lr"], *group["betas"], group["weight_decay"]])

    def after_train_epoch(self, runner: Any) -> None:
        runner.trainer.should_stop = runner.epoch + 1 == self.last_epoch


def strategy_of(row: str) -> Any:
    """Return the strategy of a row; any other row is a single process."""
    kind, _, written = row.partition(", ")
    in_parts = written == "directory"
    if kind == "fsdp":
        policy = ModuleWrapPolicy([nn.Linear])
        state = "sharded" if in_parts else "full"
        return FSDPOnCPU(state_dict_type=state, auto_wrap_policy=policy)
    if "fsdp2" in kind or "tp" in kind:
        return ModelParallelStrategy(
            *ROWS[row], process_group_backend="gloo", save_distributed_checkpoint=in_parts
        )
    return two_ranks()["strategy"] if kind == "ddp" else "auto"


def fit(
    out: Path, row: str, last_epoch: int | None = None, ckpt_path: str | None = None
) -> dict[str, Any]:
    """Train; return the results of the hooks, which are equal on all ranks."""
    averages: list[Any] = [
        EMAHook(momentum=0.1, warm_up=0),
        LinearMomentumEMAHook(momentum=0.3, interval=2, warm_up=2),
        StochasticWeightAverageHook(begin_iter=2),
    ]
    groups, log = Groups(last_epoch), TextLoggerHook(interval=2, sync=True)
    save = CheckpointHook(interval=1, max_keep_ckpts=1, save_best="val_loss", out_dir=str(out))
    hooks = [
        CosineAnnealingLrUpdaterHook(
            min_lr=0, by_epoch=False, by_step=True, warmup="linear", warmup_iters=4
        ),
        CosineAnnealingMomentumUpdaterHook(min_momentum=0.5, by_epoch=False),
        FieldUpdaterHook("weight_decay", "LinearAnnealing", end=0.3, by_epoch=False),
        OptimizerHook({"type": "auto", "percentile": 40}),
        CheckInvalidLossHook(interval=1, action="skip"),
        *(*averages, groups, log, save),
    ]
    data, shares = ROWS.get(row, (1, 1))
    trainer = make_trainer(
        *(out, *hooks),
        strategy=strategy_of(row),
        devices=data * shares,
        max_epochs=4,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,  # Module.loss takes the rank's share of a batch
        enable_checkpointing=True,
    )
    module = Module(row, seed=5 if ckpt_path else 0)
    trainer.fit(module, make_loader(3, 4), make_loader(2, 4, seed=1), ckpt_path=ckpt_path)
    found: dict[str, Any] = {"groups": groups.seen, "steps": trainer.global_step}
    found["averages"] = [noted(average, row) for average in averages]
    found["raw"] = raw_weights(trainer, module)
    found["best"] = Path(save.best_model_path).name
    if trainer.is_global_zero:
        found["log"] = rows_of_log(out)
    return found


def noted(average: Any, row: str) -> dict[str, Any]:
    """Return an unsharded average and the counts of steps and updates."""
    plain = Module(row, seed=9)
    average.apply_to(plain)
    return {"state": plain.state_dict(), "counts": [average.steps, average.updates]}


def raw_weights(trainer: L.Trainer, module: L.LightningModule) -> list[torch.Tensor]:
    """Return the module's unsharded weights after the fit, which are the validated average."""
    return whole(trainer) if torch.distributed.is_initialized() else [*module.parameters()]


def rows_of_log(out: Path) -> list[dict[str, Any]]:
    """Return the rows of the text logs, without times and memory."""
    rows = [json.loads(line) for path in sorted(out.glob("*.log.json")) for line in path.open()]
    names = ("mode", "epoch", "iter", "lr", "momentum", "loss", "grad_norm", "val_loss")
    return [{k: v for k, v in row.items() if k in names} for row in rows if "mode" in row]


def main(out: Path, row: str) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = {"whole": fit(out / "whole", row), "cut": fit(out / "cut", row, last_epoch=2)}
    found["resumed"] = fit(out / "cut", row, ckpt_path="last")
    torch.save(found, out / f"found{os.environ.get('LOCAL_RANK', 0)}.pt")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
