"""The cost of logging: five scalars a step, and all eight backends at once.

All cases run in one process, in turns, and are compared with a loop of the same round without
logging. The peer is Lightning's ``self.log`` with ``CSVLogger``; the peers of the hooks for MLflow
and W&B are Lightning's loggers for the same trackers.

The cost of five scalars is processor time of the training thread. Eight backends have three times:
the wall-clock time, as users see it; the processor time of all threads, with less influence of the
machine's load; and the processor time of the other threads while the clients start, once per run.
Python's garbage collection is on for the eight backends. The interval is 10, the loggers' default,
or 1.

    python -m benchmarks logging
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger, MLFlowLogger, WandbLogger

from benchmarks.measure import Bench, has, in_turns, make_loader, quiet_trainer
from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    TextLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.trackers.base import TrackerHook

INTERVAL, KEYS = 50, 5
Times = tuple[float, ...]


class Module(L.LightningModule):
    """One linear layer; ``how`` selects the logger, ``work`` the other work of a step."""

    def __init__(self, how: str, work: int = 0) -> None:
        super().__init__()
        self.net = torch.nn.Linear(8, 2)
        self.how, self.work = how, work
        self.matrix = torch.rand(256, 256)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        loss = self.net(batch).square().mean()
        for _ in range(self.work):  # as a model does: mostly without the interpreter's lock
            self.matrix @ self.matrix
        values = {f"loss_{i}": loss.detach() for i in range(KEYS)}
        if self.how == "self.log":
            for name, value in values.items():
                self.log(name, value)
        return {"loss": loss, "log_vars": values} if self.how == "log_vars" else loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Clock(Hook):
    """Notes the wall-clock and processor times of ``steps`` steps, of this and of all threads."""

    _reads_step = False
    priority = "LOWEST"

    def __init__(self, have_started: Callable[[], bool], steps: int) -> None:
        # a hook that a callback holds keeps all its events, so the clock holds no tracker
        self.have_started, self.steps = have_started, steps
        self.times: list[tuple[float, float, float]] = []
        self.first = 0.0

    def before_train_epoch(self, runner: Any) -> None:
        self.first = time.process_time() - time.thread_time()

    def after_train_iter(self, runner: Any) -> None:
        if not self.times and (runner.iter < 50 or not self.have_started()):
            return
        self.times.append((time.perf_counter(), time.thread_time(), time.process_time()))
        runner.should_stop = len(self.times) > self.steps

    @property
    def means(self) -> Times:
        """Seconds per step, and the seconds of other threads before the first timed step."""
        spans = zip(self.times[0], self.times[-1], strict=True)
        _, ours, all_ = self.times[0]
        means = [(last - first) / self.steps for first, last in spans]
        return *means, all_ - ours - self.first


def have_started(trackers: list[TrackerHook]) -> bool:
    """Return whether each backend has received a record, or has failed."""
    states = [tracker.status() for tracker in trackers]
    return all(state["sent"] or state["error"] for state in states)


def mlflow_logger(folder: str) -> MLFlowLogger:
    """Make Lightning's logger for a database in a folder."""
    return MLFlowLogger(tracking_uri=f"sqlite:///{folder}/mlflow.db")


def wandb_logger(folder: str) -> WandbLogger:
    """Make Lightning's logger for an offline run in a folder."""
    return WandbLogger(save_dir=folder, offline=True)


def forget_trackers() -> None:
    """End the W&B run and MLflow's store that Lightning's loggers leave open."""
    if has("wandb"):
        import wandb

        wandb.finish()
    if has("mlflow"):
        import mlflow

        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def fit(
    steps: int,
    how: str,
    hooks: list[Any],
    logger: Callable[[str], Any] | None = None,
    work: int = 0,
) -> Times:
    """Train; return the seconds per step of :class:`Clock`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        trackers = [hook for hook in hooks if isinstance(hook, TrackerHook)]
        clock = Clock(functools.partial(have_started, trackers), steps)
        trainer = quiet_trainer(
            folder,
            HookAdapter([*hooks, clock], work_dir=folder),
            logger=False if logger is None else logger(folder),
            log_every_n_steps=INTERVAL,
        )
        loader = make_loader(torch.rand(2 * (5001 + steps), 8), batch_size=2)
        trainer.fit(Module(how, work), loader)
    return clock.means


def scalars(rounds: int) -> Bench:
    """Five scalars a step, an average of 50 steps each logged once."""
    text = [IterTimerHook, functools.partial(TextLoggerHook, interval=INTERVAL)]
    board = [IterTimerHook, functools.partial(TensorboardLoggerHook, interval=INTERVAL)]
    kinds: dict[str, tuple[str, list[Any], Callable[[str], Any]]] = {
        "returned, not logged": ("log_vars", [], CSVLogger),
        "not logged": ("", [], CSVLogger),
        "self.log": ("self.log", [], CSVLogger),
        "TextLoggerHook": ("log_vars", text, CSVLogger),
    }
    if has("tensorboard"):
        kinds["TensorboardLoggerHook"] = ("log_vars", board, CSVLogger)
    peers = {}
    if has("mlflow"):
        mlflow_hook = functools.partial(MlflowLoggerHook, interval=INTERVAL, log_model=False)
        kinds["MLFlowLogger"] = ("self.log", [], mlflow_logger)
        kinds["MlflowLoggerHook"] = ("log_vars", [IterTimerHook, mlflow_hook], CSVLogger)
        peers["MlflowLoggerHook"] = "MLFlowLogger"
    if has("wandb"):
        wandb_hook = functools.partial(WandbLoggerHook, interval=INTERVAL, log_artifact=False)
        kinds["WandbLogger"] = ("self.log", [], wandb_logger)
        kinds["WandbLoggerHook"] = ("log_vars", [IterTimerHook, wandb_hook], CSVLogger)
        peers["WandbLoggerHook"] = "WandbLogger"

    def steps(how: str, hooks: list[Any], logger: Callable[[str], Any]) -> float:
        try:
            return fit(600, how, [make() for make in hooks], logger)[1] * 1e6
        finally:
            forget_trackers()

    cases = {case: functools.partial(steps, *kind) for case, kind in kinds.items()}
    bench = Bench("Five scalars", "us per step", in_turns(cases, rounds))
    goals = {"TextLoggerHook": 0.05, **dict.fromkeys(peers, 1.0)}
    for case in kinds:
        if "LoggerHook" in case:
            extra, peer = bench.over(case, "returned, not logged"), peers.get(case, "self.log")
            theirs = bench.over(peer, "not logged")
            bench.compare(f"5 scalars, {case}", extra, peer, theirs, goals.get(case))
    return bench


def all_eight(interval: int = 10, dead: bool = False) -> list[Any]:
    """Make the hooks; with ``dead`` MLflow's server does not answer."""
    return [
        IterTimerHook(),
        TextLoggerHook(interval=interval),
        TensorboardLoggerHook(interval=interval),
        WandbLoggerHook(interval=interval, log_artifact=False),
        MlflowLoggerHook(interval=interval, log_model=False, timeout=1.0 if dead else 60.0),
        NeptuneLoggerHook(interval=interval),
        DvcliveLoggerHook(interval=interval, by_epoch=False),
        VisdomLoggerHook(interval=interval),
        ClearMLLoggerHook(interval=interval),
    ]


def backends(rounds: int) -> Iterator[Bench]:
    """A step of 20 ms with all eight backends: goal less than 5 % slower."""
    matrix = torch.rand(256, 256)
    start = time.thread_time()
    for _ in range(400):
        matrix @ matrix
    work = max(int(400 * 0.02 / (time.thread_time() - start)), 1)

    def times(options: dict[str, Any] | None) -> Times:
        if options and "dead" in options:
            os.environ["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:9"
        try:
            return fit(300, "log_vars", [] if options is None else all_eight(**options), work=work)
        finally:
            os.environ.pop("MLFLOW_TRACKING_URI", None)

    kinds: dict[str, dict[str, Any] | None] = {
        "no hooks": None,
        "eight backends": {},
        "eight backends, MLflow's server dead": {"dead": True},
        "eight backends, interval 1": {"interval": 1},
    }
    cases = {name: functools.partial(times, options) for name, options in kinds.items()}
    # as users have it; the first round has the imports, and the median leaves it out
    found = in_turns(cases, rounds, warm_up=0, collecting=True)
    for clock, what in ((0, "ms per step"), (2, "ms of processors per step")):
        figures = {name: [each[clock] * 1e3 for each in rows] for name, rows in found.items()}
        bench = Bench("Eight backends", what, figures)
        for name in list(kinds)[1:]:
            goal = 1.05 if clock == 0 and "interval" not in name else None
            bench.compare_cases(name, "no hooks", goal)
        yield bench
    starts = {name: [each[3] * 1e3 for each in rows] for name, rows in found.items()}
    yield Bench("Eight clients start, once, beside the first steps", "ms of other threads", starts)


BACKENDS = ("wandb", "mlflow", "neptune", "tensorboard", "dvclive", "visdom", "clearml")


def run(rounds: int = 5) -> Iterator[Bench]:
    """Measure in turns."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", NEPTUNE_MODE="offline")
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DVC_NO_ANALYTICS="1")
    torch.set_num_threads(1)
    yield scalars(rounds)
    if has(*BACKENDS):
        yield from backends((rounds + 1) // 2)  # a round takes a minute
