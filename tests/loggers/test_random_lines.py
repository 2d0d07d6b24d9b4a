"""Lines of random runs equal a plain recomputation from the recorded values."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import nn

from lightning_hooks import HookAdapter
from lightning_hooks.loggers.base import LoggerHook
from support.training import make_loader


class Recorded(L.LightningModule):
    """A module that logs random values and records each iteration's values and learning rate."""

    def __init__(self, rng: random.Random, skips: float, schedule: str | None) -> None:
        super().__init__()
        self.net = nn.Linear(4, 1)
        self.rng, self.skips, self.schedule = rng, skips, schedule
        self.values: list[dict[str, float]] = []
        self.rates: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        found = {
            name: float(self.rng.randrange(100))
            for name, often in (("always", 1.0), ("often", 0.7), ("rare", 0.1))
            if self.rng.random() < often
        }
        self.log_dict(found)
        self.values.append(found)
        self.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        if self.rng.random() < self.skips:
            return None
        loss = self.net.weight.sum() * 0 + self.rng.randrange(100)
        found["loss"] = loss.item()
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("at", float(len(self.values)))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        if self.schedule is None:
            return optimizer
        halve = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        return [optimizer], [{"scheduler": halve, "interval": self.schedule}]


class Lines(LoggerHook):
    """Keeps mode, iteration and values of each line."""

    def log(self, runner: Any) -> None:
        lines: list[Any] = vars(self).setdefault("lines", [])
        tags = self.get_loggable_tags(runner, add_mode=False)
        lines.append((self.get_mode(runner), self.get_iter(runner), tags))


def expected(log: Lines, module: Recorded, batches: int, epochs: int) -> dict[int, dict[str, Any]]:
    """Return the expected training lines by iteration."""
    total, n = batches * epochs, log.interval
    ends: dict[int, int] = {}  # the length of each window by last iteration
    for t in range(1, total + 1):
        done = (t - 1) % batches + 1 if log.by_epoch else t
        last = done == batches if log.by_epoch else t == total
        if done % n == 0:
            ends[t] = n
        elif (last and done < n) or (not log.ignore_last and t % batches == 0):
            ends[t] = done % n
    lines = {}
    for t, length in ends.items():
        window = module.values[t - length : t]
        means = {}
        for name in ("always", "often", "rare", "loss"):
            values = [found[name] for found in window if name in found]
            if values:
                means[name] = sum(values) / len(values)
        lines[t] = {**means, "learning_rate": module.rates[t - 1], "momentum": 0}
    return lines


def check(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    batches, epochs = rng.randint(3, 25), rng.randint(1, 3)
    hosted = rng.random() < 0.5
    run_by_epoch = not hosted or rng.random() < 0.5
    logs = [
        Lines(
            rng.choice([1, 2, 3, 5, 7, 10, 30]),
            rng.random() < 0.7,
            by_epoch=run_by_epoch and rng.random() < 0.6,
        )
        for _ in range(rng.randint(1, 3))
    ]
    accumulate = rng.choice([1, 1, 2, 5])
    every = rng.choice([1.0, rng.randint(1, batches)])
    module = Recorded(rng, rng.choice([0.0, 0.0, 0.3]), rng.choice([None, None, "step", "epoch"]))
    trainer = L.Trainer(
        callbacks=[HookAdapter(logs, by_epoch=run_by_epoch)] if hosted else logs,  # type: ignore[arg-type]
        max_epochs=epochs,
        accumulate_grad_batches=accumulate,
        val_check_interval=every,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, make_loader(batches), make_loader(2))
    for log in logs:
        found = [(t, tags) for mode, t, tags in getattr(log, "lines", []) if mode == "train"]
        wanted = expected(log, module, batches, epochs)
        assert [t for t, _ in found] == [*wanted]
        for t, tags in found:
            assert tags.keys() == wanted[t].keys(), (t, tags, wanted[t])
            for name, value in tags.items():
                assert math.isclose(value, wanted[t][name], rel_tol=1e-6), (t, name)
        for mode, t, tags in getattr(log, "lines", []):
            if mode == "val" and ((type(every) is int and every < batches) or not log.by_epoch):
                assert tags["at"] == t


@pytest.mark.filterwarnings("ignore:.*training_step. returned .None")
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.. before")
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(i, marks=pytest.mark.slow) for i in range(4, 200))]
)
def test_each_line_is_the_plain_average_of_its_iterations(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path)
