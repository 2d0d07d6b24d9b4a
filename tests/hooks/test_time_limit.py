"""``TimeLimitHook``: each job uses its whole time limit, and the next job resumes exactly."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, ClosureHook, Hook, TimeLimitHook, TimeLimitReached
from lightning_hooks.hooks import time_limit
from support.training import NoValidation, fit, make_loader


class Clock:
    """A job's clock: a batch takes ten seconds."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


class TenSeconds(Hook):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock

    def before_train_iter(self, runner: Any) -> None:
        self.clock.now += 10


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time_limit, "time", clock)
    monkeypatch.setattr(time_limit, "process_age", clock.monotonic)
    return clock


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("by_epoch", [True, False])
def test_jobs_with_a_limit_do_what_one_without_does(
    tmp_path: Path, clock: Clock, by_epoch: bool, accumulate: int
) -> None:
    def job(folder: Path, *hooks: Any, ckpt_path: Any = None) -> Any:
        torch.manual_seed(0 if ckpt_path is None else 5)
        clock.now, module = 0.0, NoValidation()
        every = CheckpointHook(interval=1 if by_epoch else 50, by_epoch=by_epoch)
        arguments = {"max_epochs": 4, "accumulate_grad_batches": accumulate}
        data = make_loader(7, shuffle=True)
        try:
            fit(
                folder,
                TenSeconds(clock),
                every,
                *hooks,
                module=module,
                batches=data,
                ckpt_path=ckpt_path,
                **arguments,
            )
            return module, 0
        except TimeLimitReached as end:
            return module, end.code

    whole, _ = job(tmp_path / "whole")
    losses: list[float] = []
    ends: list[float] = []
    code: Any = 85
    while code == 85:
        limit = TimeLimitHook(minutes=2)
        module, code = job(tmp_path / "jobs", limit, ckpt_path="last" if ends else None)
        ends.append(clock.now)
        losses += module.losses
    assert losses == whole.losses
    assert all(map(torch.equal, module.parameters(), whole.parameters()))
    # of 120 seconds; the batch after the file has begun
    assert set(ends[:-1]) <= ({110.0} if accumulate == 1 else {90.0, 100.0, 110.0})


def test_a_limit_of_slurm_is_the_end_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    with pytest.raises(ValueError, match="needs a Slurm job's SLURM_JOB_END_TIME"):
        TimeLimitHook(hours="slurm")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 3600))
    assert TimeLimitHook(hours="slurm").seconds > 3598


def test_a_limit_without_a_checkpoint_hook_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning_hooks"), "propagate", True)
    fit(tmp_path, TimeLimitHook(hours=1), module=NoValidation)
    assert "ends the run without a file" in caplog.text


def test_a_limit_that_is_over_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, clock: Clock, monkeypatch: Any
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning_hooks"), "propagate", True)
    clock.now = 4000.0
    with pytest.raises(TimeLimitReached):
        fit(tmp_path, TimeLimitHook(hours=1), CheckpointHook(), module=NoValidation)
    assert "1.00 hours of the job are over: the run ends after" in caplog.text


@pytest.mark.parametrize("given", [{}, {"hours": 1, "minutes": 1}, {"hours": 0}, {"hours": "pbs"}])
def test_a_wrong_limit_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="hours"):
        TimeLimitHook(**given)


@pytest.mark.filterwarnings("ignore:Trainer already configured", "ignore:.*no last checkpoint")
def test_with_lightnings_max_time_a_second_job_makes_no_step(tmp_path: Path) -> None:
    """The docs state this limit of ``max_time`` and recommend TimeLimitHook."""
    modules = [NoValidation(), NoValidation()]
    for module in modules:
        slow = ClosureHook("before_train_iter", lambda _: time.sleep(0.05))
        hooks = [slow, CheckpointHook(interval=1)]
        limit = {"max_time": {"seconds": 0.5}, "max_epochs": 1000}
        fit(tmp_path, *hooks, module=module, batches=2, ckpt_path="last", **limit)
    steps = [len(module.losses) for module in modules]
    assert steps[0] > 0
    assert steps[1] == 0
