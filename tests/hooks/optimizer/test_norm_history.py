"""grad_clip of type "auto" and "zclip": the papers' limits, on the device and on resume."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks import CheckpointHook, OptimizerHook, TextLoggerHook
from lightning_hooks.hooks.optimizer.clipping import by_history
from lightning_hooks.hooks.optimizer.norm_history import Percentile, ZScore
from support.device_reads import NoReads
from support.training import NoValidation, make_loader, make_trainer

NORMS = [3.0, 1.0, 4.0, 1.5, 9.0, 2.6, 5.3, 5.8, 30.0, 2.4, 3.1, 80.0, 2.9, 3.3]


def limits(history: Any, norms: list[float]) -> list[float]:
    return [history.limit(torch.tensor(norm)).item() for norm in norms]


@pytest.mark.parametrize("window", [4, 1000])
def test_auto_is_numpys_percentile_of_the_last_norms(window: int) -> None:
    expected = [np.percentile(NORMS[: n + 1][-window:], 30) for n in range(len(NORMS))]
    assert limits(Percentile(30, window), NORMS) == pytest.approx(expected, rel=1e-6)


def zclip(norms: list[float], z_thresh: float, alpha: float, warmup: int) -> list[float]:
    """Return the limits by plain arithmetic, as in the paper's code."""
    found: list[float] = []
    mean = variance = 0.0
    for step, norm in enumerate(norms):
        limit = math.inf
        if step >= warmup:
            score = (norm - mean) / (variance**0.5 + 1e-6)
            if score > z_thresh:
                limit = mean + (z_thresh * variance**0.5) / (score / z_thresh)
            taken = min(norm, limit)
            mean = alpha * mean + (1 - alpha) * taken
            variance = alpha * variance + (1 - alpha) * (taken - mean) ** 2
        elif step + 1 == warmup:
            mean = float(np.mean(norms[:warmup]))
            variance = float(np.var(norms[:warmup]))
        found.append(limit)
    return found


def test_zclip_is_the_papers_arithmetic() -> None:
    found = limits(ZScore(1.5, alpha=0.9, warmup_steps=5), NORMS)
    assert found == pytest.approx(zclip(NORMS, 1.5, 0.9, 5), rel=1e-4)
    assert sum(map(math.isfinite, found)) >= 2
    first = limits(ZScore(max_norm=2.0, warmup_steps=3), NORMS[:4])
    assert first == [2.0, 2.0, 2.0, math.inf]


@pytest.mark.parametrize("make", [Percentile, lambda: ZScore(warmup_steps=3)])
def test_nan_and_infinite_norms_leave_no_trace(make: Any) -> None:
    plain, other = make(), make()
    limits(plain, NORMS)
    limits(other, [math.nan, *NORMS[:5], math.inf, *NORMS[5:]])
    assert limits(other, [50.0]) == pytest.approx(limits(plain, [50.0]))


@pytest.mark.parametrize("make", [lambda: Percentile(20, 6), lambda: ZScore(warmup_steps=5)])
@pytest.mark.parametrize("done", [0, 3, 6, 8, 13])
def test_a_history_goes_on_from_its_state(make: Any, done: int) -> None:
    whole, cut, resumed = make(), make(), make()
    expected = limits(whole, NORMS)[done:]
    limits(cut, NORMS[:done])
    resumed.load_state_dict(cut.state_dict())
    assert limits(resumed, NORMS[done:]) == pytest.approx(expected)


KINDS: dict[str, dict[str, Any]] = {
    "auto": {"type": "auto", "percentile": 40, "window": 3},
    "zclip": {"type": "zclip", "warmup_steps": 3, "z_thresh": 0.5},
}
kinds = pytest.mark.parametrize("kind", KINDS)


def train(folder: Path, kind: str, epochs: int, ckpt_path: Any = None) -> dict[int, Any]:
    """Train, and return the lines by iteration."""
    log = TextLoggerHook(interval=1, by_epoch=False)
    hooks = [OptimizerHook(KINDS[kind]), log, CheckpointHook(interval=1)]
    trainer = make_trainer(folder, *hooks, max_epochs=epochs, enable_checkpointing=True)
    trainer.fit(NoValidation(lr=0.5), make_loader(4), ckpt_path=ckpt_path)
    texts = [file.read_text() for file in folder.glob("*.log.json")]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    return {row["iter"]: row for row in rows if "loss" in row}


@kinds
def test_a_resumed_run_clips_as_if_never_cut(kind: str, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", kind, 3)
    assert {row["clip_fraction"] for row in whole.values()} == {0.0, 1.0}
    train(tmp_path / "cut", kind, 1)
    resumed = train(tmp_path / "cut", kind, 3, tmp_path / "cut" / "epoch_1.pth")
    for iteration in range(5, 13):
        for key in ("loss", "grad_norm", "clip_fraction"):
            assert resumed[iteration][key] == whole[iteration][key]


@pytest.mark.parametrize("make", [lambda: Percentile(20, 6), lambda: ZScore(warmup_steps=3)])
def test_a_step_reads_no_number_of_the_device(make: Any) -> None:
    weight, history = torch.nn.Parameter(torch.ones(3)), make()
    norms = torch.tensor(NORMS)
    with NoReads():
        for norm in norms:
            weight.grad = norm.expand(3).clone()
            by_history([weight], history)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ({"type": "auto", "percentile": 100}, r"grad_clip\['percentile'\] must be below 100"),
        ({"type": "auto", "window": 0}, r"grad_clip\['window'\] must be an int of at least 1"),
        ({"type": "auto", "percent": 5}, "unknown keys .'percent'.; known: "),
        ({"type": "zclip", "alpha": 1.0}, r"grad_clip\['alpha'\] must be below 1"),
        ({"type": "zlip"}, "did you mean 'zclip'"),
        ([{"type": "auto"}, None], "clips all gradients of an optimizer's step together"),
    ],
)
def test_bad_recipes(recipe: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        OptimizerHook(recipe)
