"""ProfilerHook: the recorded steps and the written files."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch.profilers import PyTorchProfiler

from lightning_hooks import Hook, HookAdapter
from lightning_hooks.hooks.profiling.profiler import ProfilerHook
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step`"),
    pytest.mark.filterwarnings("ignore:.*Profiler clears events at the end of each cycle"),
]


fit = partial(training.fit, batches=2)


def traces() -> tuple[list[int], Any]:
    """Return a list of event counts and a trace handler that appends a count for each trace."""
    counts: list[int] = []

    def count(running: Any) -> None:
        rows = {row.key: row.count for row in running.key_averages()}
        counts.append(rows.get("Optimizer.step#SGD.step", 0))

    return counts, count


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        ({}, [3]),
        ({"profile_iters": 2}, [6]),
        ({"by_epoch": False, "profile_iters": 4}, [4]),
        ({"schedule": dict(wait=1, warmup=1, active=1)}, [1]),
        ({"profile_iters": 3, "schedule": dict(wait=1, warmup=1, active=2, repeat=2)}, [2, 2]),
    ],
)
def test_profiles_as_long_as_asked(arguments: Any, steps: list[int], tmp_path: Path) -> None:
    counts, count = traces()
    hook = ProfilerHook(on_trace_ready=count, **arguments)
    fit(tmp_path, hook, batches=3, max_epochs=3)
    assert counts == steps


def test_profiles_the_start_of_a_resumed_run(tmp_path: Path) -> None:
    """mmcv waits for a past epoch after a resume, so its profiler never stops recording."""
    trainer = fit(tmp_path, batches=3, max_epochs=2)
    trainer.save_checkpoint(tmp_path / "two.ckpt")
    counts, count = traces()
    trainer = make_trainer(tmp_path, ProfilerHook(on_trace_ready=count), max_epochs=4)
    trainer.fit(TinyModule(), make_loader(3), ckpt_path=tmp_path / "two.ckpt")
    assert counts == [3]


def test_departure_ends_with_training_and_with_an_error(tmp_path: Path) -> None:
    class Stop(Hook):
        def __init__(self, raises: bool) -> None:
            self.raises = raises

        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = True
            if self.raises:
                raise OSError

    counts, count = traces()
    options = {"max_epochs": 4, "min_epochs": 0}
    fit(tmp_path, ProfilerHook(profile_iters=3, on_trace_ready=count), Stop(False), **options)
    assert counts == [1]
    for schedule in (None, dict(wait=0, warmup=3, active=1), dict(wait=3, warmup=1, active=1)):
        with pytest.raises(OSError):  # noqa: PT011
            fit(tmp_path, ProfilerHook(schedule=schedule), Stop(True), **options)
        assert not torch.autograd._profiler_enabled()
    fit(tmp_path, ProfilerHook(on_trace_ready=count))
    assert counts == [1, 2]


def test_an_error_of_the_handler_ends_the_run(tmp_path: Path) -> None:
    def broken(running: Any) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fit(tmp_path, ProfilerHook(on_trace_ready=broken))
    schedule = dict(wait=0, warmup=1, active=1)
    with pytest.raises(OSError, match="disk full"):
        fit(tmp_path, ProfilerHook(on_trace_ready=broken, schedule=schedule))


def test_prints_a_table(tmp_path: Path, capsys: Any) -> None:
    config = dict(type="log_trace", sort_by="self_cpu_time_total", row_limit=3)
    fit(tmp_path, ProfilerHook(on_trace_ready=config))
    assert "Self CPU time total" in capsys.readouterr().out
    assert config["type"] == "log_trace"


def test_writes_for_tensorboard_into_the_work_directory(tmp_path: Path) -> None:
    fit(tmp_path, ProfilerHook(on_trace_ready=dict(type="tb_trace")))
    fit(tmp_path, ProfilerHook(on_trace_ready=dict(type="tb_trace", dir_name="mine")))
    for name in ("tf_tracing_logs", "mine"):
        (file,) = (tmp_path / name).iterdir()
        assert json.loads(file.read_text())["traceEvents"]


def test_departure_the_json_trace_beside_a_schedule_is_the_last_piece_recorded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "trace.json"
    schedule = dict(wait=0, warmup=1, active=1)
    fit(tmp_path, ProfilerHook(json_trace_path=str(path), record_shapes=True, schedule=schedule))
    assert any("aten::" in e.get("name", "") for e in json.loads(path.read_text())["traceEvents"])


def test_a_schedule_that_never_records_writes_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    schedule = dict(wait=9, warmup=1, active=1)
    fit(tmp_path, ProfilerHook(json_trace_path=str(path), schedule=schedule))
    assert not path.exists()


def test_departure_two_profilers_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="another of torch's profilers is running"):
        fit(tmp_path, ProfilerHook(), ProfilerHook())
    assert not torch.autograd._profiler_enabled()


def test_lightnings_profiler_beside_it_is_refused() -> None:
    trainer = SimpleNamespace(profiler=PyTorchProfiler())
    runner = SimpleNamespace(max_epochs=1, counts_epochs=True, rank=0, trainer=trainer)
    with pytest.raises(RuntimeError, match="another of torch's profilers is running"):
        ProfilerHook().before_run(runner)


def test_longer_than_the_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="profile_iters=2, but the run has 1 epochs"):
        fit(tmp_path, ProfilerHook(profile_iters=2))
    with pytest.raises(ValueError, match="profile_iters=3, but the run has 2 iterations"):
        fit(tmp_path, ProfilerHook(by_epoch=False, profile_iters=3))
    with pytest.raises(ValueError, match="by_epoch=False"):
        fit(tmp_path, HookAdapter(ProfilerHook(), by_epoch=False), max_steps=2)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ({"by_epoch": 1}, TypeError, "by_epoch must be a bool, got 1"),
        ({"profile_iters": 0}, ValueError, "profile_iters must be an int of at least 1, got 0"),
        ({"activities": "cpu"}, TypeError, "activities must be a list"),
        ({"activities": ["gpu"]}, ValueError, "activities must be some of"),
        ({"schedule": dict(wait=1)}, TypeError, "warmup"),
        ({"on_trace_ready": 3}, TypeError, "on_trace_ready must be a function, a dict or None"),
        ({"on_trace_ready": {}}, ValueError, "type must be one of"),
        ({"on_trace_ready": dict(type="log_trace", rows=3)}, TypeError, "rows"),
        (
            {"on_trace_ready": dict(type="tb_trace"), "json_trace_path": "a.json"},
            ValueError,
            "give one of them",
        ),
    ],
)
def test_departure_profiler_refuses_bad_arguments_at_construction(
    bad: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        ProfilerHook(**bad)
