"""Statements of docstrings about mmcv at a class's departures, tested with real mmcv."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from mmcv import runner as mmcv
from mmcv.runner import hooks
from torch import nn


class Model(nn.Linear):
    """A model whose loss is its weight."""

    def __init__(self) -> None:
        super().__init__(1, 1)
        self.steps = 0

    def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
        self.steps += 1
        return {"loss": self.weight.sum(), "num_samples": 1}


def runner_of(folder: Path, make: Any = mmcv.EpochBasedRunner, **given: Any) -> Any:
    """Return a runner of two epochs, or of two iterations."""
    length = {"max_epochs": 2} if make is mmcv.EpochBasedRunner else {"max_iters": 2}
    logger = logging.getLogger("mmcv")
    return make(Model(), work_dir=str(folder), logger=logger, meta={}, **length, **given)


def trained(runner: Any, *registered: Any, batches: int = 3) -> Any:
    """Train by a runner, with hooks."""
    for hook in registered:
        runner.register_hook(hook)
    with mock.patch("time.sleep"):
        runner.run([[torch.zeros(1)] * batches], [("train", 1)])
    return runner


def test_stopped(tmp_path: Path) -> None:
    """`should_stop = True` ends training after the iteration (mmcv ignores it);"""

    class Stops(hooks.Hook):
        def after_train_iter(self, runner: Any) -> None:
            runner.should_stop = True

    assert trained(runner_of(tmp_path), Stops()).model.steps == 6


def test_missing_method(tmp_path: Path) -> None:
    """`call_hook` skips hooks that lack the method (mmcv raises AttributeError);"""
    runner = runner_of(tmp_path)
    runner.register_hook(hooks.Hook())
    with pytest.raises(AttributeError):
        runner.call_hook("after_anything")


def test_taken_names() -> None:
    """by default none may, as in mmcv."""
    with pytest.raises(KeyError):
        hooks.HOOKS.register_module(name="EMAHook", module=Model)


def test_evaluation_is_not_registered() -> None:
    """Not in the registry, as in mmcv."""
    assert "EvalHook" not in hooks.HOOKS.module_dict


def test_points_of_a_closure() -> None:
    """only points are accepted as `fn_name`, where mmcv asserts that the class has such a method,
    `every_n_iters` among them.
    """
    hooks.ClosureHook("every_n_iters", print)
    with pytest.raises(AssertionError):
        hooks.ClosureHook("after_anything", print)


def test_integer_scale() -> None:
    """`loss_scale` may be an int (mmcv raises);"""
    with pytest.raises(ValueError, match="loss_scale must be"):
        hooks.Fp16OptimizerHook(loss_scale=512)


def test_unused_parameters(tmp_path: Path) -> None:
    """the search for unused parameters does not recurse (mmcv's fails on deep graphs), and runs in
    `GradientCumulativeOptimizerHook` too (mmcv ignores the argument there);
    """
    runner = runner_of(tmp_path, optimizer=torch.optim.SGD([torch.zeros(1)], lr=0.1))
    loss = runner.model.weight.sum()
    for _ in range(2000):
        loss = loss + 1
    with pytest.raises(RecursionError):
        hooks.OptimizerHook().detect_anomalous_parameters(loss, runner)
    name = "detect_anomalous_parameters"
    with mock.patch.object(hooks.OptimizerHook, name) as searched:
        trained(runner, hooks.GradientCumulativeOptimizerHook(1, detect_anomalous_params=True))
    assert not searched.called


def test_several_optimizers(tmp_path: Path) -> None:
    """of a dict of optimizers each takes its step after the one backward (mmcv fails)."""
    runner = runner_of(tmp_path, optimizer={"a": torch.optim.SGD([torch.zeros(1)], lr=0.1)})
    with pytest.raises(AttributeError):
        trained(runner, hooks.OptimizerHook())


def test_time_of_loggers(tmp_path: Path) -> None:
    """the time of hooks of lower priority (loggers) belongs to the next iteration, as in mmcv."""
    runner = runner_of(tmp_path)
    runner.register_logger_hooks({"interval": 1, "hooks": [{"type": "TextLoggerHook"}]})
    runner.register_timer_hook({"type": "IterTimerHook"})
    assert [type(hook).__name__ for hook in runner.hooks] == ["IterTimerHook", "TextLoggerHook"]


def test_end_of_a_profile() -> None:
    """profiling ends also in a resumed run, early, or with an error (mmcv goes on for ever);"""
    hook = hooks.ProfilerHook(profile_iters=2, activities=["cpu"])
    hook.profiler = mock.MagicMock()
    for epoch in range(2, 9):  # resumed behind it
        hook.after_train_epoch(SimpleNamespace(epoch=epoch, logger=mock.Mock()))
    assert not hook.profiler.__exit__.called


def test_seeds_of_samplers() -> None:
    """a loader without samplers is skipped, also in a run counted in iterations (mmcv fails on
    both).
    """
    for loader in ([torch.zeros(1)], mmcv.IterLoader([torch.zeros(1)])):
        with pytest.raises(AttributeError):
            hooks.DistSamplerSeedHook().before_epoch(SimpleNamespace(data_loader=loader, epoch=0))


def test_warm_up_in_epochs(tmp_path: Path) -> None:
    """an epoch of the warm-up has as many iterations as are trained (`limit_train_batches` counts),
    and `warmup_by_epoch` works where iterations are counted (mmcv fails).
    """
    hook = hooks.FixedLrUpdaterHook(
        by_epoch=False, warmup="linear", warmup_iters=1, warmup_by_epoch=True
    )
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1)
    with pytest.raises(AssertionError):
        trained(runner_of(tmp_path, mmcv.IterBasedRunner, optimizer=optimizer), hook)


@pytest.mark.parametrize("name", ["OneCycleLrUpdaterHook", "OneCycleMomentumUpdaterHook"])
def test_phase_without_length(name: str, tmp_path: Path) -> None:
    """for an argument outside its range, and at the start of a run that is longer than
    `total_steps`, or where a phase has no length (mmcv divides by zero there).

    for an argument outside its range, and at the start of a run where a phase has no length (mmcv
    divides by zero there).
    """
    given = {"max_lr": 0.1} if "Lr" in name else {}
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.1, momentum=0.9)
    hook = getattr(hooks, name)(pct_start=0.25, **given)
    with pytest.raises(ZeroDivisionError):
        trained(runner_of(tmp_path, optimizer=optimizer), hook, batches=2)  # up in 4 * 0.25 - 1


def test_scalars() -> None:
    """0-d tensors are scalars (mmcv raises TypeError)."""
    with pytest.raises(TypeError):
        hooks.LoggerHook.is_scalar(torch.tensor(1.0))


def test_rate_without_an_optimizer(tmp_path: Path) -> None:
    """A run without optimizer has no learning rate to log (mmcv raises)."""
    with pytest.raises(RuntimeError):
        hooks.TextLoggerHook().get_lr_tags(runner_of(tmp_path))


def test_small_numbers() -> None:
    """floats below 0.01 keep all digits (mmcv rounds to five decimals, so a learning rate of 3e-6
    was 0.0), and NaN and infinity are `null`, so that strict readers read each line.
    """
    assert hooks.TextLoggerHook()._round_float(3e-6) == 0.0


def test_files_of_a_resumed_run(tmp_path: Path) -> None:
    """A resumed run continues the files of the run that it resumes (mmcv begins new ones), unless
    it has another `timestamp`.
    """
    for time in ("first", "second"):
        with mock.patch("mmcv.runner.base_runner.get_time_str", return_value=time):
            trained(runner_of(tmp_path), hooks.TextLoggerHook(), batches=1)
    files = sorted(file.name for file in tmp_path.glob("*.json"))
    assert files == ["first.log.json", "second.log.json"]


def test_run_without_an_end(tmp_path: Path) -> None:
    """Without a known end there is no ETA and the total is `?` (mmcv raises)."""
    runner = runner_of(tmp_path, optimizer=torch.optim.SGD([torch.zeros(1)], lr=0.1))
    runner._max_iters, runner.data_loader, hook = None, [0], hooks.TextLoggerHook()
    hook.time_sec_tot, hook.start_iter = 0.0, 0
    line = {"mode": "train", "epoch": 1, "iter": 1, "lr": 0.1, "time": 0.1, "data_time": 0.1}
    with pytest.raises(TypeError):
        hook._log_info(line, runner)


def test_series_of_neptune() -> None:
    """With `with_step=False` each value goes to its own series (mmcv fails)."""
    hook = hooks.NeptuneLoggerHook.__new__(hooks.NeptuneLoggerHook)
    hook.with_step, hook.run = False, mock.MagicMock()
    with (
        mock.patch.object(hook, "get_loggable_tags", return_value={"a": 1.0, "b": 2.0}),
        mock.patch.object(hook, "get_iter", return_value=5),
        pytest.raises(RuntimeError, match="changed size during iteration"),
    ):
        hook.log(None)


def test_rest_of_another_logger(tmp_path: Path) -> None:
    """Counted in epochs, the epoch's average is logged (mmcv logs the rest of another logger,
    mostly nothing).
    """
    live = mock.Mock()
    runner = runner_of(tmp_path, optimizer=torch.optim.SGD([torch.zeros(1)], lr=0.1))
    with mock.patch.dict("sys.modules", dvclive=mock.Mock()):
        trained(runner, hooks.DvcliveLoggerHook(dvclive=live))
    assert not live.log.called
