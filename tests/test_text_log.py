"""The text log: line by line as mmcv's, and where it departs from it."""

from __future__ import annotations

import json
import logging
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import TinyModule, make_loader, make_trainer
from scripted import Clock, ScriptedModel, SlowData
from torch.utils.data import DataLoader

from lightning_hooks import Hook, HookAdapter, IterTimerHook, TrainStepModule
from lightning_hooks.hooks import iter_timer
from lightning_hooks.hooks.logger import LoggerHook
from lightning_hooks.writers.text import TextLoggerHook
from lightning_hooks.writers.text_line import console_line, json_line

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")
GOLDEN = json.loads((Path(__file__).parent / "golden" / "text_log.json").read_text())
# mmcv counts iterations in phases of a workflow there, and calls the end of a phase that of an
# epoch; Lightning has no phases
PHASES = {"iter_keep_last"}


class Console(logging.Handler):
    """Keeps the lines of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line; the table of hooks is no line of the text log."""
        if not record.getMessage().startswith("Hooks will be"):
            self.lines.append(record.getMessage())


def make_logger() -> tuple[logging.Logger, Console]:
    logger, console = logging.Logger("test"), Console()
    logger.addHandler(console)
    return logger, console


class Sent(LoggerHook):
    """Notes what trackers would send."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sent: list[dict[str, Any]] = []

    def log(self, runner: Any) -> None:
        step, epoch = self.get_iter(runner), self.get_epoch(runner)
        self.sent.append({"step": step, "epoch": epoch, "tags": self.get_loggable_tags(runner)})


class GradNorm(Hook):
    """What OptimizerHook(grad_clip=...) would put into the buffer."""

    def __init__(self, model: ScriptedModel) -> None:
        self.model = model

    def after_train_iter(self, runner: Any) -> None:
        rows = self.model.script["train"]
        row = rows[(self.model.played["train"] - 1) % len(rows)]
        runner.log_buffer.update({"grad_norm": row["grad"]}, row["num_samples"])


class Evaluation(Hook):
    """Reports results at the end of each epoch as an EvalHook does."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results

    def after_train_epoch(self, runner: Any) -> None:
        runner.log_buffer.output.update(self.results, eval_iter_num=5)
        runner.log_buffer.ready = True


def replay(
    case: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Run a recorded case under Lightning; return console lines, JSON lines and tags."""
    clock = Clock()
    monkeypatch.setattr(iter_timer, "time", SimpleNamespace(perf_counter=clock.time))
    model = ScriptedModel(GOLDEN["script"], clock)
    made = {k: torch.optim.SGD(model.parameters(), lr=v, momentum=0.9) for k, v in case["lr"].items()}
    logger, console = make_logger()
    common = {k: v for k, v in case["logger"].items() if k != "interval_exp_name"}
    sent = Sent(**common)
    hooks: list[Any] = [IterTimerHook(), TextLoggerHook(**case["logger"]), sent]
    if case["max_norm"]:
        hooks.append((GradNorm(model), "ABOVE_NORMAL"))
    if case["evaluation"]:
        hooks.append((Evaluation(case["evaluation"]), "LOW"))
    by_epoch = case["runner"] == "EpochBasedRunner"
    adapter = HookAdapter(
        hooks,
        by_epoch=by_epoch,
        meta=case["meta"],
        attributes={"logger": logger},
        work_dir=str(tmp_path / "work"),
        # several optimizers are stepped by nobody here; the iterations are then counted by ours
        owns_backward="" not in case["lr"],
    )
    limit = {"num_sanity_val_steps": 0, "max_epochs": case["limit"]} if by_epoch else {"num_sanity_val_steps": 0, "max_steps": case["limit"]}
    loaders = [DataLoader(SlowData(length, clock)) for length in case["loaders"]]
    make_trainer(tmp_path, adapter, **limit).fit(TrainStepModule(model, made.get("", made)), *loaders)
    (file,) = (tmp_path / "work").glob("*.log.json")
    return console.lines, file.read_text().splitlines(), sent.sent


def as_mmcv(line: str) -> str:
    """Undo the two departures of a JSON line of ours."""
    def old(value: Any) -> Any:
        return math.nan if value is None else round(value, 5) if isinstance(value, float) else value

    return json.dumps({key: old(value) for key, value in strictly(line).items()})


def strictly(line: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(line, parse_constant=refuse)


@pytest.mark.parametrize("name", GOLDEN["cases"].keys() - PHASES)
def test_lines_and_tags_equal_those_of_mmcv(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = GOLDEN["cases"][name]
    console, lines, sent = replay(case, tmp_path, monkeypatch)
    assert console == case["console"]
    assert [as_mmcv(line) for line in lines] == case["json"]
    assert repr(sent) == repr(case["sent"])
