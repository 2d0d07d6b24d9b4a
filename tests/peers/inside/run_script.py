"""Run a script of docs/guides/inside_libraries.md next to an independent computation.

``python run_script.py darts out.json`` runs the script below the heading ``## darts``. A callback
after the usual hooks records the rates of all steps, an average of the weights and the scores, and
writes the expected next to the actual results.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from PIL import Image

from lightning_hooks import BestCheckpointHook, CheckpointHook

PAGE = Path(__file__).parents[3] / "docs" / "guides" / "inside_libraries.md"

OURS = (CheckpointHook, BestCheckpointHook)


class Probe(L.Callback):
    """Computes cosine, average and best score independently of the hooks.

    Args:
        out: The JSON file of the results.
        score: The score of the best checkpoint.
        rule: Which scores are better, ``"less"`` or ``"greater"``.
    """

    def __init__(self, out: str, score: str, rule: str = "less") -> None:
        self.out, self.score, self.sign = out, score, {"less": 1, "greater": -1}[rule]
        self.batches = -1
        self.rates: list[tuple[int, float]] = []
        self.scores: list[tuple[float, int]] = []

    def __getstate__(self) -> dict[str, Any]:
        """Exclude the averages from checkpoints, because neuralforecast saves its callbacks."""
        left_out = ("average", "averages", "module")
        return {name: value for name, value in vars(self).items() if name not in left_out}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the average with the first weights."""
        self.module = pl_module
        trained = {n: p for n, p in pl_module.named_parameters() if p.requires_grad}
        self.average = {name: value.detach().double() for name, value in trained.items()}
        self.averages: dict[int, dict[str, torch.Tensor]] = {}

    def on_train_batch_start(self, *arguments: Any) -> None:
        """Count the batches."""
        self.batches += 1

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any
    ) -> None:
        """Record the rate of the step."""
        self.rates.append((self.batches, optimizer.param_groups[0]["lr"]))

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *arguments: Any
    ) -> None:
        """Update the average by the formula of the docs page on averages."""
        step = self.batches
        weight = min(0.1, (1 + step) / (100 + step))
        self.average = {
            name: self.average[name] + weight * (value.detach().double() - self.average[name])
            for name, value in pl_module.named_parameters()
            if name in self.average
        }
        self.averages[trainer.global_step] = self.average

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Record the score."""
        if not trainer.sanity_checking:
            score = float(trainer.callback_metrics[self.score])
            self.scores.append((self.sign * score, trainer.global_step))

    def error_of_average(self, step: int, state: dict[str, torch.Tensor]) -> float:
        """Return the largest difference between weights and the average of a step."""
        average = self.averages[step].items()
        return max(float((state[name] - value).abs().max()) for name, value in average)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Write the results."""
        if stage != "fit":
            return
        save, best = (one for one in trainer.checkpoint_callbacks if isinstance(one, OURS))
        files = {"last": save.last_model_path, "best": best.best_model_path}
        saved = {name: torch.load(path, weights_only=False) for name, path in files.items()}
        total, first = self.batches + 1, self.rates[0][1]
        (log,) = Path(save.last_model_path).parent.glob("*.log.json")
        found = {
            "rates": self.rates,
            "cosine": [first * (1 + math.cos(math.pi * i / total)) / 2 for i in range(total)],
            "errors of averages": [
                self.error_of_average(one["global_step"], one["state_dict"])
                for one in saved.values()
            ],
            **{name: one["global_step"] for name, one in saved.items()},
            "best by hand": min(self.scores, key=lambda one: one[0])[1],
            "steps": trainer.global_step,
            "log": log.read_text(),
            "has a scheduler": bool(trainer.lr_scheduler_configs),
            "saves classes": has_classes(save.last_model_path),
        }
        Path(self.out).write_text(json.dumps(found))


def has_classes(path: str) -> bool:
    """Return whether torch refuses to load a file with ``weights_only=True``."""
    try:
        torch.load(path, weights_only=True)
    except pickle.UnpicklingError:
        return True
    return False


def save_images() -> None:
    """Save the images of the reader of the section on anomalib: noise, and brighter noise."""
    for number in range(24):
        folder = Path("screws", "bad" if number % 3 == 0 else "good")
        folder.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 120, (64, 64, 3), dtype="uint8")
        Image.fromarray(pixels + 100 * (number % 3 == 0)).save(folder / f"{number}.png")


def main(heading: str, out: str) -> None:
    """Run the script of a heading."""
    if heading == "anomalib":
        save_images()
    text = PAGE.read_text(encoding="utf-8")
    common, *_ = re.findall(r"^```python\n(.*?)^```$", text, re.M | re.DOTALL)
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.DOTALL)
    (script,) = re.findall(r"^```python\n(.*?)^```$", section[1], re.M | re.DOTALL)
    names: dict[str, Any] = globals()
    exec(compile(common, "common", "exec"), names)
    usual, probes = names["usual_hooks"], []

    def hooks(*arguments: Any, **keywords: Any) -> list[L.Callback]:
        probes.append(Probe(out, *arguments))
        return [*usual(*arguments, **keywords), probes[-1]]

    names["usual_hooks"] = hooks
    exec(compile(script, heading, "exec"), names)
    for probe in probes[-1:]:  # Ray's are in another process
        if hasattr(probe, "module"):  # not so where a copy has trained
            found = json.loads(Path(out).read_text())
            weights = dict(probe.module.named_parameters())
            found["errors after the fit"] = {
                step: probe.error_of_average(found[step], weights) for step in ("best", "last")
            }
            Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2]).resolve()))
