"""Two processes with sharded parameters: run as a script by test_clipping.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import lightning as L
import torch
from helpers import TinyModule, make_loader
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.distributed.fsdp import fully_shard

from lightning_hooks import Hook, OptimizerHook


class Module(TinyModule):
    validation_step = None  # type: ignore[assignment]

    def configure_model(self) -> None:
        mesh: Any = self.device_mesh
        fully_shard(self.net, mesh=mesh["data_parallel"])


class Look(Hook):
    """Writes down what this rank sees."""

    priority = "LOWEST"

    def __init__(self) -> None:
        self.norms: list[float] = []
        self.batches: list[Any] = []
        self.kinds: set[str] = set()

    def after_train_iter(self, runner: Any) -> None:
        norm = runner.log_buffer.val_history["grad_norm"][-1]
        self.batches.append([part.tolist() for part in runner.data_batch])
        self.kinds.add(type(norm).__name__)
        self.norms.append(float(norm))


def main(out: Path) -> None:
    torch.set_num_threads(1)
    look, module = Look(), Module()
    strategy = ModelParallelStrategy(
        data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo"
    )
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_epochs=1,
        callbacks=[OptimizerHook({"max_norm": 0.1}), look],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=out,
    )
    trainer.fit(module, make_loader(4))
    weight: Any = module.net.weight
    found: dict[str, Any] = {"norms": look.norms, "kinds": sorted(look.kinds)}
    found["batches"] = look.batches
    found["weight"] = weight.full_tensor().tolist()
    (out / f"rank{os.environ.get('LOCAL_RANK', 0)}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
