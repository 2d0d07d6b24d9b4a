"""Run hooks without a base class under the libraries; the tests run the same hooks with ours."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from run_detectron2 import TIMES, detectron2_names
from torch import nn

from support.dialect_hooks.portable import StepTrace, Trace
from support.training import TinyModule, make_loader

VALIDATED = 4.0
"""The evaluation's result."""


class Net(nn.Module):
    """TinyModule's net, as a model of detectron2's protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TinyModule().net

    def forward(self, batch: Any) -> dict[str, torch.Tensor]:
        x, y = batch
        return {"total_loss": nn.functional.mse_loss(self.net(x), y)}


def without_times(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in TIMES}


def detectron2() -> dict[str, Any]:
    d2 = detectron2_names()

    class OwnTrace(StepTrace, d2.HookBase):  # type: ignore[misc, name-defined]
        pass

    torch.manual_seed(0)
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd, 2, gamma=0.5)
    loader = make_loader(3)
    trainer = d2.SimpleTrainer(model, [*loader, *loader], sgd)
    trace = OwnTrace()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "metrics.json")
        writer = d2.PeriodicWriter([d2.JSONWriter(path, window_size=4)], period=2)
        trainer.register_hooks(
            [
                d2.IterationTimer(warmup_iter=3),
                trace,
                d2.LRScheduler(sgd, scheduler),
                d2.EvalHook(4, lambda: {"bbox": {"AP": VALIDATED}}),
                writer,
            ]
        )
        trainer.train(0, 6)
        lines = Path(path).read_text().splitlines()
    timed = ["time" in json.loads(line) for line in lines]
    rows = [without_times(json.loads(line)) for line in lines]
    return {
        "calls": trace.calls,
        "rows": rows,
        "timed": timed,
        "weight": model.net.weight.tolist(),
    }


def mmengine(by_epoch: bool) -> dict[str, Any]:
    from mmengine.evaluator import BaseMetric
    from mmengine.hooks import Hook
    from mmengine.model import BaseModel
    from mmengine.runner import Runner

    class Model(BaseModel):
        def __init__(self) -> None:
            super().__init__()
            self.net = TinyModule().net

        def forward(self, x: Any, y: Any, mode: str = "tensor") -> Any:
            loss = nn.functional.mse_loss(self.net(x), y)
            return {"loss": loss} if mode == "loss" else [{"loss": loss.item()}]

    class Mean(BaseMetric):
        def process(self, data_batch: Any, data_samples: Any) -> None:
            self.results.append(data_samples[0]["loss"])

        def compute_metrics(self, results: Any) -> dict[str, float]:
            return {"val_loss": sum(results) / len(results)}

    class OwnTrace(Trace, Hook):
        pass

    trace = OwnTrace()
    length = {"max_epochs": 2, "val_interval": 1} if by_epoch else {"max_iters": 4}
    none = ("timer", "logger", "param_scheduler", "checkpoint", "sampler_seed")
    val = {"val_dataloader": make_loader(2), "val_cfg": {}, "val_evaluator": [Mean()]}
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(
            model=Model(),
            work_dir=folder,
            train_dataloader=make_loader(3),
            train_cfg={"by_epoch": by_epoch, **length},
            optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1, "momentum": 0.9}},
            default_hooks=dict.fromkeys(none),
            custom_hooks=[trace],
            log_level="ERROR",
            experiment_name=f"by_epoch_{by_epoch}",
            **(val if by_epoch else {}),
        )
        runner.train()
    hub = runner.message_hub
    return {
        "calls": trace.calls,
        "weight": runner.model.net.weight.tolist(),
        "losses": [float(value) for value in hub.get_scalar("train/loss").data[0]],
        "mean": float(hub.get_scalar("train/loss").mean(3)),
        "rates": [float(value) for value in hub.get_scalar("train/lr").data[0]],
        "val": [float(v) for v in hub.get_scalar("val/val_loss").data[0]] if by_epoch else [],
    }


CASES = {
    "portable detectron2": detectron2,
    "portable mmengine, epochs": lambda: mmengine(True),
    "portable mmengine, iters": lambda: mmengine(False),
}


def under_library(name: str, case: Any, folder: str) -> Any:
    """Run a case without a folder."""
    return case()
