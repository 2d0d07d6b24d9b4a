"""One adapter in several runs: a run gets nothing of an earlier run but what a file says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import detectron2 as d2
from support.training import TinyModule, make_loader, make_trainer


class Counts(d2.HookBase):
    """Counts the steps, and goes on counting in a resumed run."""

    steps = 0

    def after_step(self) -> None:
        """Count."""
        self.steps += 1
        self.trainer.storage.put_scalar("steps", self.steps, smoothing_hint=False)

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"steps": self.steps}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the count."""
        self.steps = state_dict["steps"]


class FailsBeforeTheRun(Callback):
    """Raises as a data set does that is not found."""

    def on_sanity_check_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise."""
        raise FileNotFoundError("no such image")


def train(folder: Path, adapter: HookAdapter, **options: Any) -> L.Trainer:
    """Train for an epoch of three batches."""
    trainer = make_trainer(folder, adapter, **options)
    trainer.fit(TinyModule(), make_loader(3), make_loader(1))
    return trainer


def test_a_resume_that_fails_leaves_no_state_to_the_next_run(tmp_path: Path) -> None:
    train(tmp_path, HookAdapter([Counts()])).save_checkpoint(tmp_path / "a.ckpt")
    hook = Counts()
    adapter = HookAdapter([hook])
    trainer = make_trainer(tmp_path, adapter, FailsBeforeTheRun(), max_epochs=2)
    with pytest.raises(FileNotFoundError):
        trainer.fit(TinyModule(), make_loader(3), make_loader(1), ckpt_path=tmp_path / "a.ckpt")
    train(tmp_path, adapter)
    assert hook.steps == 3


def test_an_evaluated_file_changes_no_state_of_the_next_run(tmp_path: Path) -> None:
    hook = Counts()
    trainer = train(tmp_path, HookAdapter([hook]))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    hook.steps = 10
    trainer.validate(TinyModule(), make_loader(1), ckpt_path=tmp_path / "a.ckpt")
    trainer.fit_loop.max_epochs = 2
    trainer.fit(TinyModule(), make_loader(3), make_loader(1))
    assert hook.steps == 13


class Saver:
    """Notes the iterations of its files."""

    def __init__(self) -> None:
        self.iterations: list[int] = []

    def save(self, name: str, iteration: int) -> None:
        """Note."""
        self.iterations.append(iteration)


def test_the_best_value_of_a_run_is_of_the_run(tmp_path: Path) -> None:
    class Scores(d2.HookBase):
        first = 10

        def after_step(self) -> None:
            score = self.first + self.trainer.iter
            self.trainer.storage.put_scalar("score", score, smoothing_hint=False)

    scores, saver = Scores(), Saver()
    adapter = HookAdapter([scores, d2.BestCheckpointer(1, saver, "score")])
    train(tmp_path, adapter)
    scores.first = 0
    train(tmp_path, adapter)
    assert saver.iterations == [0, 1, 2, 0, 1, 2]


def test_a_writer_writes_all_lines_of_each_run(tmp_path: Path) -> None:
    writer = d2.JSONWriter(str(tmp_path / "metrics.json"))
    adapter = HookAdapter([Counts(), d2.PeriodicWriter([writer], period=1)])
    train(tmp_path, adapter)
    train(tmp_path, adapter)
    lines = map(json.loads, (tmp_path / "metrics.json").read_text().splitlines())
    steps = [(line["iteration"], line["steps"]) for line in lines if "steps" in line]
    assert steps == [(0, 1), (1, 2), (2, 3), (0, 4), (1, 5), (2, 6)]


def test_no_remaining_time_is_counted_from_an_earlier_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    printer = d2.CommonMetricPrinter(max_iter=6)
    adapter = HookAdapter([d2.PeriodicWriter([printer], period=1)])
    with caplog.at_level("INFO"):
        train(tmp_path, adapter)
        caplog.clear()
        train(tmp_path, adapter)
    lines = [message for message in caplog.messages if "iter: " in message]
    assert ["eta: " in line for line in lines] == [False, True, True, True]


def test_the_memory_is_logged_in_each_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = HookAdapter([d2.TorchMemoryStats(period=1, max_runs=1)])
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda: "all of it")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    for name in ("max_memory_reserved", "memory_reserved", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    with caplog.at_level("INFO"):
        for _ in range(2):
            train(tmp_path, adapter)
    assert sum("reserved_mem" in message for message in caplog.messages) == 2
