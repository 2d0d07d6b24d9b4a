"""The scripted job of text_log.json, in plain torch: imports neither mmcv nor us."""

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

DATA_SECONDS = 0.0625  # sums of powers of two: the clock's differences are exact


def draw_script(rng: random.Random, rows: int) -> list[dict[str, Any]]:
    """Draw the outputs of each step: a tiny value, an occasional key, one NaN, a gradient."""
    script = []
    for row in range(rows):
        log_vars = {"loss": rng.uniform(0, 3), "tiny": 1e-7}
        if row % 2:
            log_vars["sometimes"] = rng.uniform(0, 1)
        if row == 4:
            log_vars["loss"] = float("nan")
        script.append(
            {
                "log_vars": log_vars,
                "num_samples": rng.randint(1, 8),
                "grad": rng.randint(1, 64) / 16,
                "seconds": rng.randint(1, 8) / 16,
            }
        )
    return script


class Clock:
    """A clock advanced by the data and the model, in place of the time module in IterTimerHook."""

    def __init__(self) -> None:
        self.now = 0.0

    def time(self) -> float:
        """Return the time."""
        return self.now


class SlowData(Dataset[int]):
    """A dataset whose loading advances the clock."""

    def __init__(self, length: int, clock: Clock) -> None:
        self.length, self.clock = length, clock

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        self.clock.now += DATA_SECONDS
        return index


class ScriptedModel(nn.Module):
    """Returns a row of the script in each step, repeating the script."""

    def __init__(self, script: dict[str, list[dict[str, Any]]], clock: Clock) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.script, self.clock = script, clock
        self.played = {"train": 0, "val": 0}

    def play(self, mode: str) -> dict[str, Any]:
        """Return the next row as a step's outputs, with a loss of the scripted gradient norm."""
        row = self.script[mode][self.played[mode] % len(self.script[mode])]
        self.played[mode] += 1
        self.clock.now += row["seconds"]
        loss: Tensor = (self.weight * row["grad"]).sum()
        return {"loss": loss, "log_vars": row["log_vars"], "num_samples": row["num_samples"]}

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Play a training row."""
        return self.play("train")

    def val_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Play a validation row."""
        return self.play("val")
