"""Statements of the documentation about hooks, schedules and callbacks of other libraries."""

from __future__ import annotations

import inspect
import logging
import math
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from mmcv.runner import hooks as hooks_of_mmcv
from torch import nn

import lightning_hooks
from lightning_hooks.engine.usage_errors import SAME_ELSEWHERE


def hook_registry() -> set[str]:
    """Return the names of mmcv's hooks."""
    return set(hooks_of_mmcv.HOOKS.module_dict)


def group_rates() -> torch.optim.SGD:
    """Return an optimizer with two rates."""
    groups = [{"params": [torch.zeros(1)], "lr": 1.0}, {"params": [torch.zeros(1)], "lr": 0.1}]
    return torch.optim.SGD(groups, lr=1.0, momentum=0.9)


def test_arguments_of_timm_and_ignite() -> None:
    """Their names for arguments lead to those for the same here."""
    from ignite.handlers import Checkpoint
    from timm.scheduler.cosine_lr import CosineLRScheduler

    made = [Checkpoint, CosineLRScheduler]
    theirs = {name for each in made for name in inspect.signature(each).parameters}
    named = {name for names in SAME_ELSEWHERE.values() for name in names.split()}
    assert {"lr_min", "n_saved", "warmup_t"} <= theirs & named


@pytest.mark.parametrize("library", ["detectron2", "timm"])
def test_groups_with_rates_of_their_own(library: str) -> None:
    """detectron2's and timm's are closed forms too, and know groups with rates of their own."""
    optimizer = group_rates()
    if library == "timm":
        from timm.scheduler.cosine_lr import CosineLRScheduler

        CosineLRScheduler(optimizer, t_initial=10).step(4)
    else:
        from detectron2.solver.lr_scheduler import LRMultiplier
        from fvcore.common.param_scheduler import CosineParamScheduler

        groups = optimizer.param_groups
        for group in groups:  # a resume at any iteration
            group["initial_lr"] = group["lr"]
        LRMultiplier(optimizer, CosineParamScheduler(1.0, 0.0), max_iter=10, last_iter=3)
    share = (1 + math.cos(math.pi * 0.4)) / 2
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([share, share / 10])


def test_any_entry_of_a_group() -> None:
    """Ignite's `CosineAnnealingScheduler` moves any entry of a group."""
    from ignite.engine import Engine, Events
    from ignite.handlers import CosineAnnealingScheduler

    optimizer, engine = group_rates(), Engine(lambda engine, batch: None)
    scheduler = CosineAnnealingScheduler(optimizer, "momentum", 0.9, 0.5, cycle_size=10)
    engine.add_event_handler(Events.ITERATION_STARTED, scheduler)
    engine.run(range(6), max_epochs=1)
    assert optimizer.param_groups[0]["momentum"] == pytest.approx(0.7)


def test_momentum_above_one() -> None:
    """In mmcv a warm-up can bring a momentum above 1 without an error; here the schedule is refused
    before the run, with optimizer and group named.
    """
    from mmcv.runner.hooks.momentum_updater import StepMomentumUpdaterHook

    hook = StepMomentumUpdaterHook(step=100, warmup="linear", warmup_iters=10, warmup_ratio=0.1)
    runner = SimpleNamespace(
        optimizer=group_rates(), iter=0, epoch=0, max_epochs=1, data_loader=range(20)
    )
    runner._set = lambda values: None
    hook.before_run(runner)
    hook.before_train_epoch(runner)
    hook.before_train_iter(runner)
    assert runner.optimizer.param_groups[0]["momentum"] == pytest.approx(9.0)


class Flat(nn.Module):
    """A BatchNorm and an unused BatchNorm, with the interfaces of mmcls and fvcore."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.unused = nn.BatchNorm1d(1), nn.BatchNorm1d(1)
        nn.init.ones_(self.unused.running_mean)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)

    train_step = forward


BATCHES = [torch.tensor([[0.0], [2.0], [4.0], [6.0]]), torch.tensor([[10.0], [12.0]])]


def test_fvcore_weighs() -> None:
    """fvcore weighs batches by their samples too, takes exactly as many as `num_iters`, and sets a
    layer that no batch reaches to zero.
    """
    from fvcore.nn.precise_bn import update_bn_stats

    model = Flat()
    update_bn_stats(model, BATCHES, num_iters=2)
    values = torch.cat(BATCHES)
    assert model.norm.running_mean.item() == pytest.approx(values.mean().item())
    assert model.norm.running_var.item() == pytest.approx(values.var(correction=0).item())
    assert model.unused.running_mean.item() == 0
    with pytest.raises(AssertionError, match="meant to run for 3 iterations"):
        update_bn_stats(Flat(), BATCHES, num_iters=3)


def test_mmcls_does_not() -> None:
    """mmcls averages batches with equal weights, so that a short last one counts as a full one, and
    its variance leaves out that between batches.
    """
    from mmcls.core.hook.precise_bn_hook import update_bn_stats

    class Loader(list[torch.Tensor]):
        batch_size = 4

    model = Flat()
    update_bn_stats(model, Loader(BATCHES))
    assert model.norm.running_mean.item() == pytest.approx((3 + 11) / 2)
    variances = [float(batch.var()) for batch in BATCHES]
    assert model.norm.running_var.item() == pytest.approx(sum(variances) / 2)
    update_bn_stats(model, Loader(BATCHES), num_samples=3)
    assert model.norm.running_mean.item() == model.norm.running_var.item() == 0


def under_mmcv(folder: Path, epochs: int, *hooks: Any) -> None:
    """Train with mmcv's runner and the given hooks and priorities."""
    from mmcv.runner import EpochBasedRunner

    class Model(nn.Linear):
        def train_step(self, data: Any, optimizer: Any) -> dict[str, Any]:
            with torch.no_grad():
                self.weight.fill_(1.0)
            return {"loss": self.weight.sum(), "num_samples": 1}

    model = Model(1, 1)
    nn.init.zeros_(model.weight)
    runner = EpochBasedRunner(
        model,
        work_dir=str(folder),
        logger=logging.getLogger("mmcv"),
        max_epochs=epochs,
        meta={},
    )
    for hook, priority in hooks:
        runner.register_hook(hook, priority)
    with mock.patch("time.sleep"):
        runner.run([[torch.zeros(1)]], [("train", 1)])


def checkpoints(folder: Path, epochs: int, **arguments: Any) -> list[str]:
    """Return the files of mmcv's checkpoint hook after a run."""
    from mmcv.runner.hooks import CheckpointHook

    under_mmcv(folder, epochs, (CheckpointHook(create_symlink=False, **arguments), "NORMAL"))
    return sorted(file.name for file in folder.iterdir())


def test_files_in_place(tmp_path: Path) -> None:
    """mmcv writes a file in its place and without fsync, then deletes the oldest, and keeps one too
    many if the last epoch is no multiple of `interval`.
    """
    with mock.patch("os.fsync") as synced, mock.patch("os.replace") as moved:
        found = checkpoints(tmp_path, epochs=5, interval=2, max_keep_ckpts=1)
    assert found == ["epoch_4.pth", "epoch_5.pth"]
    assert not synced.called
    assert not moved.called


def test_average_in_the_file(tmp_path: Path) -> None:
    """`state_dict` is the average, as in mmcv."""
    from mmcv.runner.hooks import CheckpointHook, EMAHook

    hooks = (
        (EMAHook(momentum=0.25, warm_up=1), "ABOVE_NORMAL"),
        (CheckpointHook(create_symlink=False), 50),
    )
    under_mmcv(tmp_path, 1, *hooks)
    state = torch.load(tmp_path / "epoch_1.pth")["state_dict"]
    assert (state["weight"].item(), state["ema_weight"].item()) == (0.25, 1.0)


@pytest.mark.parametrize("interval", [1, 50])
def test_line_of_a_short_epoch(tmp_path: Path, interval: int) -> None:
    """The line of text that is due at the end of a short epoch is part of its border; mmcv leaves
    that line out.
    """
    from mmcv.runner.hooks import TextLoggerHook

    hook = TextLoggerHook(interval=interval)
    with mock.patch.object(hook, "log") as logged:
        under_mmcv(tmp_path, 1, (hook, "VERY_LOW"))
    assert logged.called == (interval == 1)


def test_every_fiftieth_loss() -> None:
    """mmdet's hook checks the loss of every 50th iteration by an assertion."""
    from mmdet.core.hook.checkloss_hook import CheckInvalidLossHook

    hook = CheckInvalidLossHook()
    runner = SimpleNamespace(outputs={"loss": torch.tensor(math.nan)}, logger=mock.Mock(), iter=0)
    hook.after_train_iter(runner)
    runner.iter = 49
    with pytest.raises(AssertionError):
        hook.after_train_iter(runner)


def test_counter_of_batches() -> None:
    """mmcv's `SyncBuffersHook` fails on several ranks with every model that has BatchNorm, since
    torch refuses to average its counter of batches: here integers are rank 0's.
    """
    from mmcv.runner.hooks import SyncBuffersHook

    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    try:
        with (
            mock.patch("mmcv.runner.dist_utils.get_dist_info", return_value=(0, 2)),
            pytest.raises(RuntimeError, match="can't be cast"),
        ):
            SyncBuffersHook().after_epoch(SimpleNamespace(model=nn.BatchNorm1d(1)))
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("library", ["mmcv", "mmengine"])
def test_clock_of_the_day(library: str) -> None:
    """mmcv's and MMEngine's `IterTimerHook` read the clock of the day, which may jump; here it is a
    monotonic one.
    """
    noted: dict[str, float] = {}
    if library == "mmcv":
        from mmcv.runner.hooks import IterTimerHook

        hook = IterTimerHook()
        runner = SimpleNamespace(log_buffer=SimpleNamespace(update=noted.update))
        hook.before_epoch(runner)
        with mock.patch("time.time", return_value=0.0):
            hook.before_iter(runner)
        assert noted["data_time"] < -1e9
    else:
        from mmengine.hooks import IterTimerHook

        hook, hub = IterTimerHook(), SimpleNamespace(update_scalar=noted.__setitem__)
        runner = SimpleNamespace(message_hub=hub)
        hook._before_epoch(runner)
        with mock.patch("time.time", return_value=0.0):
            hook._before_iter(runner, 0)
        assert noted["train/data_time"] < -1e9


def test_time_of_handlers() -> None:
    """Neither measures a hook: Ignite's `HandlersTimeProfiler` does, by the host's clock, which
    charges a GPU's work to the code that waits for it.
    """
    from ignite.engine import Engine, Events
    from ignite.handlers import HandlersTimeProfiler

    def hook(engine: Engine) -> None:
        time.sleep(0.02)  # the host alone

    engine, profiler = Engine(lambda engine, batch: None), HandlersTimeProfiler()
    profiler.attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED, hook)
    engine.run(range(2), max_epochs=1)
    (row,) = [row for row in profiler.get_results() if row[0].endswith("hook")]
    assert row[2] >= 0.04


@pytest.mark.parametrize("name", sorted(hook_registry() - {"PaviLoggerHook", "SegmindLoggerHook"}))
def test_names_arguments_and_defaults(name: str) -> None:
    """mmcv's names, arguments, defaults, priorities, order of calls and text log lines are all
    kept.
    """

    def defaults(hook: Any) -> dict[str, Any]:
        parameters = inspect.signature(hook).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD}

    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, tuple) else value

    ours = defaults(getattr(lightning_hooks, name))
    for argument, default in defaults(getattr(hooks_of_mmcv, name)).items():
        assert plain(ours[argument]) == plain(default)
