"""What it costs to log: five scalars a step, and all eight backends at once.

All cases run in one process, in turns, and are compared with the loop of the same round that
does not log, but returns the same. The peer is Lightning's ``self.log`` with its ``CSVLogger``.
What five scalars cost is the processor time of the thread that trains. Of eight backends three
times are shown: on the clock, which is what the user sees, and the processor time of the thread
that trains and of all threads, which depend less on what else the machine does. The interval of
``backends`` and ``dead`` is 10, the loggers' default; ``every`` logs each step.

On two cores with nothing else to do, ``backends`` was 1.02 on the clock and 1.035 of all threads,
``dead`` 1.01 and 1.02, when records gathered for one second; once, after ``every`` in the same
process, ``backends`` was 1.06 and 1.075, and ``every`` itself 1.19 and 1.21. Where it went, in ms
of a step of 20: 0.2 to 0.3 in the training thread, half of that for the averages, which each
logger computes anew; 0.6 in the senders' threads, 0.23 of it MLflow's, 0.08 each DVCLive's and
Neptune's. They hold the interpreter's lock meanwhile, so the sum bounds what a step can lose.
Now records gather for five seconds: a batch costs MLflow little more than one record. On a busy
machine the senders took 0.82 with one second, 0.51 with three and 0.35 with six.

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
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader

from benchmarks.measure import Bench, has, in_turns, quiet_trainer
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
from lightning_hooks.writers.tracker import TrackerHook

INTERVAL, KEYS = 50, 5
Times = tuple[float, ...]


class Module(L.LightningModule):
    """One linear layer; ``how`` says who logs its numbers, ``work`` how much else a step does."""

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
    """Notes the time on the clock, of this thread, and of all: of ``steps`` steps."""

    reads_step = False
    priority = "LOWEST"

    def __init__(self, trackers: list[TrackerHook], steps: int) -> None:
        self.trackers, self.steps = trackers, steps
        self.times: list[tuple[float, float, float]] = []

    def after_train_iter(self, runner: Any) -> None:
        if not self.times and (runner.iter < 50 or not self.all_have_started()):
            return
        self.times.append((time.perf_counter(), time.thread_time(), time.process_time()))
        runner.should_stop = len(self.times) > self.steps

    def all_have_started(self) -> bool:
        """Whether each backend has taken something, or has failed to."""
        states = [tracker.status() for tracker in self.trackers]
        return all(state["sent"] or state["error"] for state in states)

    @property
    def means(self) -> Times:
        """Seconds per step."""
        spans = zip(self.times[0], self.times[-1], strict=True)
        return tuple((last - first) / self.steps for first, last in spans)


def fit(steps: int, how: str, hooks: list[Any], logger: bool = False, work: int = 0) -> Times:
    """Train; return the seconds per step of :class:`Clock`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        clock = Clock([hook for hook in hooks if isinstance(hook, TrackerHook)], steps)
        trainer = quiet_trainer(
            folder,
            HookAdapter([*hooks, clock], work_dir=folder),
            logger=CSVLogger(folder) if logger else False,
            log_every_n_steps=INTERVAL,
        )
        loader = DataLoader(torch.rand(2 * (5001 + steps), 8), batch_size=2)
        trainer.fit(Module(how, work), loader)
    return clock.means


def scalars(rounds: int) -> Bench:
    """Five scalars a step, an average of 50 steps each logged once."""
    text = [IterTimerHook, functools.partial(TextLoggerHook, interval=INTERVAL)]
    board = [IterTimerHook, functools.partial(TensorboardLoggerHook, interval=INTERVAL)]
    kinds: dict[str, tuple[str, list[Any]]] = {
        "returned, not logged": ("log_vars", []),
        "not logged": ("", []),
        "self.log": ("self.log", []),
        "TextLoggerHook": ("log_vars", text),
    }
    if has("tensorboard"):
        kinds["TensorboardLoggerHook"] = ("log_vars", board)

    def steps(how: str, hooks: list[Any]) -> float:
        return fit(600, how, [make() for make in hooks], logger=True)[1] * 1e6

    cases = {case: functools.partial(steps, *kind) for case, kind in kinds.items()}
    bench = Bench("Five scalars", "us per step", in_turns(cases, rounds))
    theirs = bench.over("self.log", "not logged")
    for case in kinds:
        if "LoggerHook" in case:
            extra = bench.over(case, "returned, not logged")
            goal = 0.05 if case == "TextLoggerHook" else None
            bench.compare(f"5 scalars, {case}", extra, "self.log", theirs, goal)
    return bench


def backends(rounds: int, dead: bool = False, interval: int = 10) -> Iterator[Bench]:
    """A step of 20 ms with all eight backends: goal less than 5 % slower."""
    steps_ = 300
    if dead:
        os.environ["MLFLOW_TRACKING_URI"] = "http://127.0.0.1:9"

    def all_eight() -> list[Any]:
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

    matrix = torch.rand(256, 256)
    start = time.thread_time()
    for _ in range(400):
        matrix @ matrix
    work = max(int(400 * 0.02 / (time.thread_time() - start)), 1)

    def steps(hooks: Callable[[], list[Any]], clock: int) -> float:
        return fit(steps_, "log_vars", hooks(), work=work)[clock] * 1e3

    kinds = {"no hooks": list, "all eight": all_eight}
    title = f"Eight backends, interval {interval}" + (", MLflow's server dead" if dead else "")
    for clock, what in ((0, "ms per step"), (2, "ms of processors per step")):
        cases = {name: functools.partial(steps, make, clock) for name, make in kinds.items()}
        bench = Bench(title, what, in_turns(cases, rounds))
        bench.compare_cases("all eight", "no hooks", 1.05 if clock == 0 and not dead else None)
        yield bench


BACKENDS = ("wandb", "mlflow", "neptune", "tensorboard", "dvclive", "visdom", "clearml")


def run(rounds: int = 7) -> Iterator[Bench]:
    """Measure in turns."""
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", NEPTUNE_MODE="offline")
    os.environ.update(MLFLOW_DISABLE_TELEMETRY="true", DVC_NO_ANALYTICS="1")
    torch.set_num_threads(1)
    yield scalars(rounds)
    if has(*BACKENDS):
        for options in ({}, {"interval": 1}, {"dead": True}):
            yield from backends(min(rounds, 3), **options)
