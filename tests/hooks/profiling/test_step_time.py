"""StepTimeHook attributes sleeps of known length to the right phases."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import job
import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import IterableDataset

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    EvalHook,
    GradientCumulativeOptimizerHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    OptimizerHook,
    StepTimeHook,
    TextLoggerHook,
    TrainStepModule,
)
from lightning_hooks.hooks.profiling.step_time_probes import GpuClock, Stopwatch
from support.probes import Recorder
from support.processes import read_ranks, run_job
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class SlowData(IterableDataset):  # type: ignore[type-arg]
    """Ten batches, 4 ms each."""

    def __iter__(self) -> Iterator[Any]:
        for _ in range(10):
            time.sleep(0.004)
            yield torch.ones(2, 4), torch.zeros(2, 2)

    def __len__(self) -> int:
        return 10


class SlowBackward(torch.autograd.Function):
    """The identity with a backward pass of 6 ms."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        time.sleep(0.006)
        return grads[0]


class SlowSGD(torch.optim.SGD):
    """A step takes 3 ms."""

    def step(self, closure: Any = None) -> Any:  # type: ignore[override]
        result = super().step(closure)
        time.sleep(0.003)
        return result


class SlowModule(TinyModule):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.005)
        return SlowBackward.apply(self.loss(batch))

    def validation_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.02)
        return super().validation_step(batch, batch_idx)

    def configure_optimizers(self) -> Any:
        return SlowSGD(self.parameters(), lr=0.01)


class Slow(Hook):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def after_train_iter(self, runner: Any) -> None:
        time.sleep(self.seconds)


class SlowLogger(CSVLogger):
    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        time.sleep(0.01)


class SlowCallback(Callback):
    def on_train_batch_end(self, *args: Any) -> None:
        time.sleep(0.002)


def check(found: float, slept: float) -> None:
    """Assert that a measured time covers the sleep.

    A shorter time would be charged to another phase. A busy machine prolongs sleeps.
    """
    assert slept * 0.98 <= found <= slept * 4 + 0.5


def test_sleeps_are_found_where_they_were_slept(tmp_path: Path, capsys: Any) -> None:
    hook = StepTimeHook(warmup_iters=5)
    callbacks = [Slow(0.007), hook, Slow(0.002), SlowCallback()]
    options = {"logger": SlowLogger(tmp_path), "log_every_n_steps": 5, "max_epochs": 3}
    trainer = make_trainer(tmp_path, *callbacks, **options)
    trainer.fit(SlowModule(), SlowData(), make_loader(2))
    found = hook.summary()
    assert found["iterations"] == 25
    phases = {name: row["total"] for name, row in found["phases"].items()}
    check(phases["data"], 25 * 0.004)
    check(phases["forward"], 25 * 0.005)
    check(phases["backward"], 25 * 0.006)
    check(phases["optimizer"], 25 * 0.003)
    check(phases["hooks"], 25 * 0.009)
    check(phases["evaluation"], 3 * 2 * 0.02)
    check(phases["other"], 25 * 0.002)
    check(phases["logging"], 3 * 0.01)  # of the validations
    assert list(phases) == [
        *("data", "forward", "backward", "optimizer", "hooks", "logging", "evaluation", "other")
    ]
    check(found["hooks"]["Slow"]["total"], 25 * 0.007)
    check(found["hooks"]["Slow (2)"]["total"], 25 * 0.002)
    assert found["hooks"]["Slow"]["calls"] == 25
    assert sum(phases.values()) == pytest.approx(found["seconds"])
    assert sum(row["share"] for row in found["phases"].values()) == pytest.approx(1)
    assert found["phases"]["data"]["per_iter"] == pytest.approx(phases["data"] / 25)
    shown = capsys.readouterr().out
    assert "25 iterations in" in shown
    assert "Slow (2)" in shown
    assert "max s" not in shown  # a single rank


def test_what_hooks_own_is_split_too(tmp_path: Path) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 2)

        def train_step(self, data: Any, optimizer: Any = None) -> Any:
            time.sleep(0.005)
            loss = SlowBackward.apply(self.net(data[0]).sum())
            return {"loss": loss, "log_vars": {}, "num_samples": 2}

    model = Model()
    hook = StepTimeHook(warmup_iters=0, table=False)
    hooks = [OptimizerHook({"max_norm": 1.0}), hook, Slow(0.004), TextLoggerHook(interval=5)]
    module = TrainStepModule(model, SlowSGD(model.parameters(), lr=0.1))
    make_trainer(tmp_path, HookAdapter(hooks)).fit(module, make_loader(20))
    phases = {name: row["total"] for name, row in hook.summary()["phases"].items()}
    check(phases["forward"], 20 * 0.005)
    check(phases["backward"], 20 * 0.006)
    check(phases["optimizer"], 20 * 0.003)
    check(phases["hooks"], 20 * 0.004)
    found = hook.summary()["hooks"]
    assert {n: row["phase"] for n, row in found.items()} == {
        "OptimizerHook": "optimizer",
        "Slow": "hooks",
        "TextLoggerHook": "logging",
    }
    check(found["OptimizerHook"]["total"], 20 * 0.003)


def test_a_hooks_checkpoint_and_evaluation_are_theirs(tmp_path: Path) -> None:
    class SlowEval(EvalHook):
        def _do_evaluate(self, runner: Any) -> None:
            time.sleep(0.05)

    class SlowSave(TinyModule):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            time.sleep(0.04)

    hook = StepTimeHook(warmup_iters=1, table=False)
    hooks = [SlowEval(make_loader(1)), CheckpointHook(interval=1), hook]
    trainer = make_trainer(tmp_path, HookAdapter(hooks), max_epochs=3)
    trainer.fit(SlowSave(), make_loader(4))
    found = hook.summary()
    check(found["hooks"]["SlowEval"]["total"], 3 * 0.05)
    check(found["hooks"]["CheckpointHook"]["total"], 3 * 0.04)
    check(found["phases"]["evaluation"]["total"], 3 * 0.05)
    check(found["phases"]["checkpoint"]["total"], 3 * 0.04)


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
def test_the_rows_add_up(tmp_path: Path) -> None:
    class SlowSave(TinyModule):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            time.sleep(0.01)

    hook = StepTimeHook(warmup_iters=0, table=False)
    best, last = BestCheckpointHook("val_loss"), CheckpointHook(interval=2, by_epoch=False)
    theirs = ModelCheckpoint(tmp_path / "theirs", every_n_train_steps=3, save_top_k=-1)
    callbacks = [hook, Slow(0.001), best, last, theirs]
    options: dict[str, Any] = {"enable_checkpointing": True, "max_epochs": 2}
    make_trainer(tmp_path, *callbacks, **options).fit(SlowSave(), make_loader(6), make_loader(1))
    found = hook.summary()
    hooks: Counter[str] = Counter()
    for row in found["hooks"].values():
        hooks[row["phase"]] += row["total"]
    phases = {name: row["total"] for name, row in found["phases"].items()}
    assert sum(phases.values()) == pytest.approx(found["seconds"])
    for phase in ("hooks", "checkpoint"):
        assert hooks[phase] == pytest.approx(phases[phase])
    rows = {name for name, row in found["hooks"].items() if row["phase"] == "checkpoint"}
    assert rows == {"BestCheckpointHook: checkpoint", "CheckpointHook", "Trainer.save_checkpoint"}
    check(found["hooks"]["CheckpointHook"]["total"], 6 * 0.01)
    check(found["hooks"]["Trainer.save_checkpoint"]["total"], 4 * 0.01)


def test_the_phases_of_an_interval_add_up_to_its_time(tmp_path: Path) -> None:
    class Clock(Hook):
        priority = "LOWEST"

        def __init__(self) -> None:
            self.ends: list[float] = []

        def after_train_iter(self, runner: Any) -> None:
            if self.every_n_iters(runner, 4):
                self.ends.append(time.perf_counter())

    clock, save = Clock(), CheckpointHook(interval=4, by_epoch=False)
    hooks = [StepTimeHook(interval=4, warmup_iters=0, log=True, table=False), save, clock]
    trainer = make_trainer(tmp_path, *hooks, TextLoggerHook(interval=4), enable_checkpointing=True)
    trainer.fit(SlowModule(), make_loader(16))
    (file,) = tmp_path.glob("*.log.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    shown = [sum(v for k, v in line.items() if k.startswith("step_time/")) for line in lines]
    measured = [(end - start) / 4 for start, end in itertools.pairwise(clock.ends)]
    assert shown[1:] == pytest.approx(measured, rel=0.2)


def test_the_log_has_the_phases_and_mmcvs_keys_are_as_they_were(tmp_path: Path) -> None:
    class Look(Hook):
        priority = "LOWEST"

        def __init__(self) -> None:
            self.seen: dict[str, Any] = {}

        def after_train_iter(self, runner: Any) -> None:
            self.seen = {k: list(v) for k, v in runner.log_buffer.val_history.items()}

    look, hook = Look(), StepTimeHook(interval=5, warmup_iters=2, log=True, table=False)
    trainer = make_trainer(tmp_path, look, hook, Slow(0.004), IterTimerHook())
    trainer.fit(SlowModule(), SlowData())
    assert len(look.seen["time"]) == len(look.seen["data_time"]) == 10
    assert sum(look.seen["time"][2:]) / 8 > 0.022
    assert sum(look.seen["data_time"][2:]) / 8 > 0.004
    for phase, seconds in {"data": 0.004, "forward": 0.005, "hooks": 0.004}.items():
        values = look.seen[f"step_time/{phase}"]
        assert len(values) == 2
        check(values[-1], seconds)


# -- the GPU's clock ---------------------------------------------------------------------------


class Stream:
    """A fake CUDA stream that runs queued work in order; ``now`` is the simulated time."""

    def __init__(self) -> None:
        self.now = self.free_at = 0.0
        self.synchronized = 0

    def queue(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.now) + seconds

    def event(self) -> Any:
        stream = self

        class Event:
            def record(self) -> None:
                self.at = max(stream.free_at, stream.now)

            def query(self) -> bool:
                return self.at <= stream.now

            def elapsed_time(self, other: Any) -> float:
                assert self.query()
                assert other.query()
                return 1e3 * float(other.at - self.at)

            def synchronize(self) -> None:
                stream.synchronized += 1
                stream.now = max(stream.now, self.at)

        return Event()


def test_the_gpus_time_is_that_of_the_work_queued_and_nothing_waits() -> None:
    stream = Stream()
    gpu = GpuClock(stream.event)
    watch = Stopwatch(("data", ""), gpu, clock=lambda: stream.now)
    for _ in range(3):
        stream.now += 1.0  # the host waits for data longer than the GPU works
        watch.enter(("forward", ""))
        stream.queue(5.0)
        stream.now += 0.1
        watch.leave()
        watch.enter(("backward", ""))
        stream.queue(10.0)
        watch.leave()
        gpu.collect()
        assert stream.synchronized == 0
    gpu.collect(wait=True)
    # the GPU waited only in the first wait; its queue hid the others
    assert gpu.seconds == pytest.approx({"data": 1.0, "forward": 15.0, "backward": 30.0})
    assert watch.seconds[("forward", "")] == pytest.approx(0.3)
    assert stream.synchronized == 1
    stream.now = 100.0
    gpu.collect()
    assert len(gpu._spare) >= 5  # events are used again


def test_a_stopwatch_survives_what_an_error_left_open() -> None:
    now = iter(range(10))
    watch = Stopwatch(("data", ""), clock=lambda: float(next(now)))
    watch.enter(("forward", ""))
    watch.switch(("data", ""))
    watch.leave()
    assert watch.read() == {("data", ""): 2.0, ("forward", ""): 1.0}


# -- as a hook ---------------------------------------------------------------------------------


def test_nothing_of_it_stays(tmp_path: Path) -> None:
    def attributes(*hooks: Any) -> list[set[str]]:
        module, logger = TinyModule(), CSVLogger(tmp_path)
        trainer = make_trainer(tmp_path, *hooks, Slow(0.0), logger=logger)
        trainer.fit(module, make_loader(4), make_loader(1))
        val_loop = trainer.fit_loop.epoch_loop.val_loop
        return [set(vars(o)) for o in (trainer, trainer.strategy, val_loop, module, logger)]

    assert attributes(StepTimeHook(table=False)) == attributes()

    class Fails(Hook):
        def after_train_iter(self, runner: Any) -> None:
            raise RuntimeError("no")

    hook, module = StepTimeHook(warmup_iters=0), TinyModule()
    trainer = make_trainer(tmp_path, hook, Fails())
    with pytest.raises(RuntimeError, match="no"):
        trainer.fit(module, make_loader(4))
    assert "backward" not in vars(trainer.strategy)
    assert hook.summary()["hooks"]["Fails"]["calls"] == 1


def test_two_of_them_agree_and_change_no_call(tmp_path: Path) -> None:
    alone, beside = Recorder(), Recorder()
    make_trainer(tmp_path, alone, max_epochs=2).fit(TinyModule(), make_loader(4), make_loader(1))
    one, two = StepTimeHook(warmup_iters=0, table=False), StepTimeHook(warmup_iters=0, table=False)
    trainer = make_trainer(tmp_path, one, HookAdapter([beside, Slow(0.01), two]), max_epochs=2)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    assert beside.calls == alone.calls
    for hook in (one, two):
        check(hook.summary()["hooks"]["Slow"]["total"], 8 * 0.01)


def test_accumulated_and_manual_steps(tmp_path: Path) -> None:
    hook = StepTimeHook(warmup_iters=0, table=False)
    make_trainer(tmp_path, hook, accumulate_grad_batches=5).fit(SlowModule(), SlowData())
    phases = {name: row["total"] for name, row in hook.summary()["phases"].items()}
    check(phases["backward"], 10 * 0.006)
    check(phases["optimizer"], 2 * 0.003)

    class Manual(SlowModule):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer: Any = self.optimizers()
            for _ in range(2):
                optimizer.zero_grad()
                self.manual_backward(super().training_step(batch, batch_idx))
                optimizer.step()

    make_trainer(tmp_path, hook).fit(Manual(), SlowData())
    phases = {name: row["total"] for name, row in hook.summary()["phases"].items()}
    check(phases["forward"], 20 * 0.005)
    check(phases["backward"], 20 * 0.006)
    check(phases["optimizer"], 20 * 0.003)


def test_a_run_counted_in_iterations_and_hooks_that_accumulate(tmp_path: Path) -> None:
    hook = StepTimeHook(interval=2, warmup_iters=2, log=True, table=False)
    hooks = [GradientCumulativeOptimizerHook(2), hook]
    trainer = make_trainer(tmp_path, HookAdapter(hooks, by_epoch=False), max_steps=4)
    model = job.make_model()
    module = TrainStepModule(model, job.make_optimizer(model))
    trainer.fit(module, job.make_data()[0])
    assert hook.summary()["iterations"] == trainer.fit_loop.epoch_loop.total_batch_idx + 1 - 2


def test_a_run_shorter_than_the_warm_up(tmp_path: Path, capsys: Any) -> None:
    hook = StepTimeHook(warmup_iters=9, log=True, interval=1)
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(2))
    assert hook.summary()["iterations"] == 0
    assert "0 iterations" in capsys.readouterr().out


def test_a_copy_has_the_numbers_and_can_be_used_again(tmp_path: Path) -> None:
    hook = StepTimeHook(table=False)
    with pytest.raises(RuntimeError, match="measured nothing yet"):
        hook.summary()
    make_trainer(tmp_path, hook).fit(TinyModule(), make_loader(5))
    for other in (copy.deepcopy(hook), pickle.loads(pickle.dumps(hook))):
        assert other.summary() == hook.summary()
        make_trainer(tmp_path, other).fit(TinyModule(), make_loader(6))
        assert other.summary()["iterations"] == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"interval": 0}, "interval must be at least 1, got 0"),
        ({"warmup_iters": 1.5}, "warmup_iters must be an int"),
        ({"log": 1}, "log must be a bool, got 1"),
        ({"table": None}, "table must be a bool"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        StepTimeHook(**arguments)


def test_maximum_and_mean_over_two_real_processes(tmp_path: Path) -> None:
    pytest.importorskip("rich")
    printed = run_job("step_time", tmp_path)
    ranks = read_ranks(tmp_path)
    data = [rank["phases"]["data"] for rank in ranks]
    assert ranks[0]["ranks"] == 2
    assert data[0]["max"] == data[1]["max"] == data[1]["total"]
    assert data[0]["mean"] == pytest.approx((data[0]["total"] + data[1]["total"]) / 2)
    check(data[1]["total"], 6 * 0.04)
    assert data[0]["total"] < data[1]["total"]
    # the first rank waits for the second one's gradients
    assert ranks[0]["phases"]["backward"]["total"] > 0.1
    hook = ranks[0]["hooks"]["OnRank0"]
    check(hook["max"], 6 * 0.01)
    assert hook["mean"] < 0.9 * hook["max"]
    assert printed.count("6 iterations in") == 1
    assert "mean s" in printed
