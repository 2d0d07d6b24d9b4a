"""Log on two ranks, with and without ``sync``, for test_sync.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
import torchmetrics
from lightning.pytorch.callbacks import EarlyStopping

from lightning_hooks import CheckpointHook, DistEvalHook, LoggerHook
from support.processes import write_rank
from support.training import NoValidation, fit, make_loader, two_ranks

RANK = int(os.environ.get("LOCAL_RANK", "0"))


class Notes(LoggerHook):
    """Records the values of each line."""

    def __init__(self, **options: Any) -> None:
        super().__init__(interval=2, **options)
        self.found: list[dict[str, float]] = []

    def log(self, runner: Any) -> None:
        self.found.append(self.get_loggable_tags(runner, add_mode=False))


class OfRank(NoValidation):
    """A module with a loss and logged values of 1 on rank 0 and 3 on rank 1."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        value = 1.0 + 2 * RANK
        self.log("own", value)
        self.log("reduced", value, sync_dist=True)
        self.log("of_epoch", value, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx) * 0 + value


def main(out: Path) -> None:
    torch.set_num_threads(1)
    loggers = {"rank 0": Notes(), "sync": Notes(sync=True)}
    gather, calls = torch.distributed.all_gather_object, []

    def counted(*args: Any) -> None:
        calls.extend(one for one in args[1:] if isinstance(one, dict))
        gather(*args)

    torch.distributed.all_gather_object = counted
    for ckpt_path in (None, out / "iter_3.pth"):
        resumed = Notes(sync=True)
        hooks = CheckpointHook(3, by_epoch=False), resumed
        fit(out, *hooks, module=OfRank, batches=8, ckpt_path=ckpt_path, **two_ranks())
    calls.clear()
    metric = torchmetrics.MeanSquaredError()

    def pairs(model: torch.nn.Module, loader: Any, **_: Any) -> Any:
        return [(model(x), y) for x, y in loader]

    score = DistEvalHook(make_loader(2), test_fn=pairs, metric=metric)
    stop = EarlyStopping("MeanSquaredError", stopping_threshold=1e9)
    options: dict[str, Any] = {"callbacks": [stop], "max_epochs": 3, **two_ranks()}
    trainer = fit(out, *loggers.values(), score, module=OfRank, batches=8, **options)
    metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
    lines = {name: logger.found for name, logger in loggers.items()}
    found = {"lines": lines, "calls": len(calls), "epochs": trainer.current_epoch}
    write_rank(out, {**found, "resumed": resumed.found, "score": metrics["MeanSquaredError"]})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
