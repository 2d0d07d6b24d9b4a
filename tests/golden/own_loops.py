"""Runners with custom loops, as in old projects, on real mmcv or the stand-in."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from mmcv.parallel import MMDistributedDataParallel
from mmcv.runner import EpochBasedRunner, Hook, IterBasedRunner
from torch import distributed
from torch.utils.data import DataLoader, DistributedSampler

__all__ = ["CASES", "RANKS", "Model", "given", "left", "register", "run", "run_on_rank", "weights"]

RANKS = 2

POINTS = (
    *("before_run", "before_epoch", "before_train_epoch", "before_train_iter"),
    *("after_train_iter", "after_train_epoch", "before_val_epoch", "before_val_iter"),
    *("after_val_iter", "after_val_epoch", "after_epoch", "after_run"),
)


class Model(torch.nn.Module):
    """A linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Linear(2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.net(x)

    def train_step(self, data: torch.Tensor, optimizer: Any, **kwargs: Any) -> dict[str, Any]:
        loss = self(data).square().mean()
        return {"loss": loss, "log_vars": {"loss": loss.item()}, "num_samples": len(data)}

    def val_step(self, data: torch.Tensor, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return self.train_step(data, None)


class TwoStepsABatch(EpochBasedRunner):
    """Trains twice on every second batch, the second time with a doubled batch."""

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        self.model.train()
        self.mode = "train"
        self.data_loader = data_loader
        self._max_iters = self._max_epochs * len(data_loader)
        self.call_hook("before_train_epoch")
        for i, batch in enumerate(data_loader):
            self._inner_iter = i
            for part in (batch, 2 * batch)[: 1 + i % 2]:
                self.call_hook("before_train_iter")
                self.run_iter(part, train_mode=True, **kwargs)
                self.call_hook("after_train_iter")
            self._iter += 1
        self.call_hook("after_train_epoch")
        self._epoch += 1


class LoopInRun(TwoStepsABatch):
    """Overrides ``run`` with a custom workflow."""

    def run(self, data_loaders: Any, workflow: Any, max_epochs: Any = None, **kwargs: Any) -> None:
        self._max_iters = self._max_epochs * len(data_loaders[0])
        self.call_hook("before_run")
        while self.epoch < self._max_epochs:
            self.train(data_loaders[0], **kwargs)
        self.call_hook("after_run")


class LoopInMethods(TwoStepsABatch):
    """Overrides ``run`` with a loop whose first and last calls of the hooks have own methods."""

    def begin(self, data_loader: Any) -> None:
        self._max_iters = self._max_epochs * len(data_loader)
        self.call_hook("before_run")

    def end(self) -> None:
        self.call_hook("after_run")

    def run(self, data_loaders: Any, workflow: Any, max_epochs: Any = None, **kwargs: Any) -> None:
        self.begin(data_loaders[0])
        while self.epoch < self._max_epochs:
            self.train(data_loaders[0], **kwargs)
        self.end()


class OwnRunIter(LoopInRun):
    """Overrides ``run_iter`` and renames the logged values."""

    def run_iter(self, data_batch: Any, train_mode: bool, **kwargs: Any) -> None:
        outputs = self.model.train_step(data_batch, self.optimizer, **kwargs)
        log_vars = {f"{name}/aux": value for name, value in outputs["log_vars"].items()}
        self.log_buffer.update(log_vars, outputs["num_samples"])
        self.outputs = outputs


class OwnValidation(EpochBasedRunner):
    """Calls the hooks once more before each validation."""

    def val(self, data_loader: Any, **kwargs: Any) -> None:
        self.call_hook("before_epoch")
        super().val(data_loader, **kwargs)


class OwnIteration(IterBasedRunner):
    """Counts the calls of ``train``, as runners with several loaders do."""

    calls = 0

    def train(self, data_loader: Any, **kwargs: Any) -> None:
        self.calls += 1
        super().train(data_loader, **kwargs)


BOTH = [("train", 1), ("val", 1)]
CASES: dict[str, tuple[type, dict[str, int], list[tuple[str, int]]]] = {
    "two_steps_a_batch": (TwoStepsABatch, {"max_epochs": 2}, [("train", 1)]),
    "loop_in_run": (LoopInRun, {"max_epochs": 2}, [("train", 1)]),
    "loop_in_methods": (LoopInMethods, {"max_epochs": 2}, [("train", 1)]),
    "own_run_iter": (OwnRunIter, {"max_epochs": 2}, [("train", 1)]),
    "own_validation": (OwnValidation, {"max_epochs": 2}, BOTH),
    "own_iteration": (OwnIteration, {"max_iters": 7}, [("train", 2), ("val", 1)]),
}


def run(case: str, folder: Path) -> dict[str, Any]:
    """Train, alone or as a rank; return the calls, the weights, the files and the log's rows."""
    kind, limit, workflow = CASES[case]
    torch.manual_seed(0)
    model, by_epoch = Model(), "max_epochs" in limit
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    is_rank = distributed.is_initialized()
    trained = MMDistributedDataParallel(model) if is_rank else model
    runner = kind(trained, optimizer=optimizer, **given(folder), **limit)
    calls = register(runner, {"policy": "step", "step": [1], "by_epoch": by_epoch}, by_epoch)
    generator = torch.Generator().manual_seed(1)
    sets: list[Any] = [torch.rand(8, 2, generator=generator) for _ in workflow]
    loaders = [
        DataLoader(x, batch_size=2, sampler=DistributedSampler(x) if is_rank else None)
        for x in sets
    ]
    with mock.patch.object(time, "sleep"):
        runner.run(loaders, workflow)
    found = {"calls": calls, "weights": weights(model)}
    if is_rank and distributed.get_rank() != 0:
        return found
    return {**found, **left(folder)}


def given(folder: Path) -> dict[str, Any]:
    """Return the constructor arguments of each runner."""
    logger = logging.getLogger("own_loops")
    logger.propagate = False
    return {"work_dir": str(folder), "logger": logger, "meta": {"seed": 0}}


def register(runner: Any, lr_config: Any, by_epoch: bool, steps: bool = True) -> list[list[Any]]:
    """Register the hooks, with an optimizer hook if ``steps``; return the list of calls."""
    runner.timestamp = "now"
    runner.register_training_hooks(
        lr_config,
        {"grad_clip": {"max_norm": 0.5}} if steps else None,
        {"interval": 1 if by_epoch else 3},
        {"interval": 1, "hooks": [{"type": "TextLoggerHook"}]},
    )
    calls: list[list[Any]] = []

    def method(point: str) -> Any:
        def note(self: Any, runner: Any) -> None:
            rates = runner.current_lr()
            counters = runner.epoch, runner.iter, runner.inner_iter, runner.mode
            calls.append([point, *counters, rates if isinstance(rates, dict) else rates[0]])

        return note

    runner.register_hook(type("Notes", (Hook,), {point: method(point) for point in POINTS})())
    return calls


def weights(model: torch.nn.Module) -> list[Any]:
    """Return the weights of a small model."""
    return [parameter.tolist() for parameter in model.parameters()]


def left(folder: Path) -> dict[str, Any]:
    """Return the names of the checkpoints in a folder and the rows of the log."""
    lines = (folder / "now.log.json").read_text().splitlines()
    times = "time", "data_time"
    return {
        "files": sorted(path.name for path in folder.glob("*.pth")),
        "rows": [{k: v for k, v in json.loads(one).items() if k not in times} for one in lines],
    }


def run_on_rank(rank: int, folder: Path) -> None:
    """Run all cases as one of two ranks; write the results to ``{rank}.json``."""
    method = f"file://{folder}/store"
    distributed.init_process_group("gloo", init_method=method, rank=rank, world_size=RANKS)
    found = {case: run(case, folder / case) for case in CASES}
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    distributed.destroy_process_group()
