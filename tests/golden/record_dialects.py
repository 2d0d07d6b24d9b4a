"""Record what detectron2, fvcore and mmengine do with a job that the tests give to our dialects.

    python tests/golden/record_dialects.py DETECTRON2_SOURCE

with mmengine 0.10.7, fvcore 0.1.5.post20221221 and their own requirements importable, and the
unpacked source of detectron2 (detectron2-cdo 0.5 of PyPI): of it only plain Python files are
imported, nothing is built.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import torch
from torch import nn

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from dialect_hooks.portable import StepTrace, Trace, scripted_values  # noqa: E402
from helpers import TinyModule, make_loader  # noqa: E402

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
    times = ("time", "data_time", "eta_seconds")
    return {name: value for name, value in row.items() if name not in times}


def detectron2(source: Path) -> dict[str, Any]:
    for name in ("detectron2", "detectron2.engine", "detectron2.evaluation", "detectron2.solver"):
        package = types.ModuleType(name)  # in place of an __init__ that wants all of it
        package.__path__ = [str(source.joinpath(*name.split(".")))]
        sys.modules[name] = package
    from detectron2.solver.lr_scheduler import LRMultiplier

    sys.modules["detectron2.solver"].LRMultiplier = LRMultiplier  # type: ignore[attr-defined]
    from detectron2.engine import hooks
    from detectron2.engine.train_loop import HookBase, SimpleTrainer
    from detectron2.utils.events import JSONWriter

    class OwnTrace(StepTrace, HookBase):
        pass

    torch.manual_seed(0)
    model = Net()
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(sgd, 2, gamma=0.5)
    loader = make_loader(3)
    trainer = SimpleTrainer(model, [*loader, *loader], sgd)
    trace = OwnTrace()
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "metrics.json")
        writer = hooks.PeriodicWriter([JSONWriter(path, window_size=4)], period=2)
        trainer.register_hooks(
            [
                hooks.IterationTimer(warmup_iter=3),
                trace,
                hooks.LRScheduler(sgd, scheduler),
                hooks.EvalHook(4, lambda: {"bbox": {"AP": VALIDATED}}),
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


def history() -> dict[str, float]:
    from fvcore.common.history_buffer import HistoryBuffer

    buffer = HistoryBuffer(max_length=40)
    for value in scripted_values():
        buffer.update(value)
    return {
        "median": buffer.median(7),
        "avg": buffer.avg(13),
        "global_avg": buffer.global_avg(),
        "latest": buffer.latest(),
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


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    found = {
        "detectron2": detectron2(Path(sys.argv[1])),
        "history": history(),
        "mmengine": {"epochs": mmengine(True), "iters": mmengine(False)},
    }
    target = Path(__file__).with_name("dialects.json")
    target.write_text(json.dumps(found, indent=1) + "\n")
