"""Record the lines of mmcv's TextLoggerHook for scripted numbers and a scripted clock."""

import logging
import random
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from oracle import Hook, LoggerHook, make_hook, make_runner, run, silent_logger
from scripted import DATA_SECONDS, Clock, ScriptedModel, SlowData, draw_script
from torch import nn
from torch.utils.data import DataLoader

EPOCH, ITER = "EpochBasedRunner", "IterBasedRunner"
TRAIN, TRAIN_VAL = [("train", 1)], [("train", 1), ("val", 1)]
TRAIN4_VAL2 = [("train", 4), ("val", 2)]
ONE, SMALL = {"": 0.055}, {"": 3e-6}
TWO = {"generator": 0.01, "discriminator": 3e-6}
META = {"exp_name": "digits", "seed": 7}
EVALUATION = {"mAP": 0.123456789, "classes": 3, "best": "cat", "recalls": [0.123456, 1.0]}


class Case(NamedTuple):
    """A logged run."""

    runner: str
    limit: int  # max_epochs or max_iters
    workflow: list[tuple[str, int]]
    loaders: list[int]  # batches in each
    logger: dict[str, Any]  # arguments of TextLoggerHook
    lr: dict[str, float] = ONE  # of each optimizer by name; "" for a single optimizer
    max_norm: float | None = None  # of OptimizerHook's grad_clip
    meta: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None  # reported at the end of each epoch


LAST, BY_ITER = {"interval": 3, "ignore_last": False}, {"interval": 3, "by_epoch": False}
CASES = {
    "epoch": Case(EPOCH, 2, TRAIN_VAL, [7, 2], LAST, max_norm=10, meta=META),
    "ignore_last": Case(EPOCH, 2, TRAIN, [7], {"interval": 3}, max_norm=10),
    "interval_fits": Case(EPOCH, 2, TRAIN_VAL, [6, 1], {"interval": 3}),
    "exp_name": Case(EPOCH, 2, TRAIN, [7], {"interval": 3, "interval_exp_name": 2}, meta=META),
    "small_lr": Case(EPOCH, 1, TRAIN, [7], LAST, lr=SMALL),
    "two_optimizers": Case(EPOCH, 1, TRAIN_VAL, [7, 2], LAST, lr=TWO),
    "evaluation": Case(EPOCH, 2, TRAIN, [6], LAST, evaluation=EVALUATION),
    "iter": Case(ITER, 10, TRAIN, [4], BY_ITER, max_norm=10, meta=META),
    "iter_by_5": Case(ITER, 10, [("train", 5)], [4], BY_ITER),
    "iter_keep_last": Case(ITER, 10, [("train", 5)], [4], {**BY_ITER, "ignore_last": False}),
    "iter_val": Case(ITER, 12, TRAIN4_VAL2, [4, 2], BY_ITER, max_norm=10, meta=META),
    "iter_two_optimizers": Case(ITER, 6, TRAIN, [4], BY_ITER, lr=TWO),
}


class Evaluation(Hook):
    """Report results at the end of each epoch as mmcv's EvalHook does."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.results = results

    def after_train_epoch(self, runner: Any) -> None:
        """Put the results into the log buffer."""
        runner.log_buffer.output.update(self.results, eval_iter_num=5)
        runner.log_buffer.ready = True


class TagRecorder(LoggerHook):
    """Records the tags and steps that mmcv's other loggers would send."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sent: list[dict[str, Any]] = []

    def log(self, runner: Any) -> None:
        """Record a set of tags."""
        step, epoch = self.get_iter(runner), self.get_epoch(runner)
        self.sent.append({"step": step, "epoch": epoch, "tags": self.get_loggable_tags(runner)})


class Console(logging.Handler):
    """Keep the messages of TextLoggerHook; others name the host and the folder."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Record messages from mmcv's text.py."""
        if record.filename == "text.py":
            self.lines.append(record.getMessage())


def make_optimizers(model: nn.Module, rates: dict[str, float]) -> Any:
    """Create one optimizer or a dict of optimizers by name."""
    made = {
        name: torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9) for name, lr in rates.items()
    }
    return made.get("", made)


def log_lines(case: Case, script: dict[str, Any]) -> dict[str, Any]:
    """Run a case; return its inputs and lines."""
    clock, console, logger = Clock(), Console(), silent_logger()
    logger.addHandler(console)
    model = ScriptedModel(script, clock)
    common = {name: case.logger[name] for name in case.logger if name != "interval_exp_name"}
    recorder = TagRecorder(**common)
    with tempfile.TemporaryDirectory() as folder:
        options = {"logger": logger, "meta": case.meta, "work_dir": folder}
        optimizer = make_optimizers(model, case.lr)
        runner = make_runner(case.runner, case.limit, model, optimizer=optimizer, **options)
        if case.max_norm:
            runner.register_optimizer_hook({"grad_clip": {"max_norm": case.max_norm}})
        if case.evaluation:
            runner.register_hook(Evaluation(case.evaluation), "LOW")
        runner.register_timer_hook({"type": "IterTimerHook"})
        runner.register_hook(make_hook({"type": "TextLoggerHook", **case.logger}), "VERY_LOW")
        runner.register_hook(recorder, "VERY_LOW")
        loaders = [DataLoader(SlowData(length, clock)) for length in case.loaders]
        with mock.patch("mmcv.runner.hooks.iter_timer.time", clock):
            run(runner, loaders, case.workflow)
        (json_file,) = Path(folder).glob("*.log.json")
        json_lines = json_file.read_text(encoding="utf-8").splitlines()
    return {**case._asdict(), "console": console.lines, "json": json_lines, "sent": recorder.sent}


def record() -> dict[str, Any]:
    """Record every case with the same script."""
    rng = random.Random(0)
    script = {"train": draw_script(rng, 14), "val": draw_script(rng, 3)}
    cases = {name: log_lines(case, script) for name, case in CASES.items()}
    return {"data_seconds": DATA_SECONDS, "script": script, "cases": cases}
