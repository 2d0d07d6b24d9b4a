"""Resumes within an epoch: exact with a stateful loader, otherwise with a warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, GradientAccumulationScheduler
from torch.utils.data import DataLoader, IterableDataset
from torchmetrics import MeanMetric

from lightning_hooks import (
    CheckpointHook,
    CosineAnnealingLrUpdaterHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    TextLoggerHook,
)
from support.logs.text import read_logs
from support.training import TinyNormModule, make_loader, make_trainer

# torchdata uses deprecated parts of torch
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")


class Module(TinyNormModule):
    """A module with dropout, which depends on the random state."""

    def make_net(self) -> torch.nn.Module:
        return torch.nn.Sequential(super().make_net(), torch.nn.Dropout(0.2))


class MayChangeData(Hook):
    """A hook with a point at which hooks may replace loaders; leaves the loader unchanged."""

    def before_train_epoch(self, runner: Any) -> None:
        torch.rand(1)


class Stream(IterableDataset[Any]):
    """Samples with a length, and no state."""

    def __len__(self) -> int:
        return 20

    def __iter__(self) -> Iterator[Any]:
        return iter(make_loader(10).dataset)


def run(
    folder: Path, loader: Any, *hooks: Any, by_epoch: bool = True, ckpt: Any = None
) -> dict[str, Any]:
    """Train epochs of 10 iterations with a checkpoint every 2; return the last checkpoint."""
    folder.mkdir(exist_ok=True)
    adapter = HookAdapter(
        [
            CosineAnnealingLrUpdaterHook(min_lr=0.0, by_epoch=by_epoch),
            EMAHook(momentum=0.1),
            CheckpointHook(interval=2, by_epoch=False),
            IterTimerHook(),
            TextLoggerHook(interval=4, by_epoch=by_epoch),
            *(hook for hook in hooks if isinstance(hook, Hook)),
        ],
        by_epoch=by_epoch,
        work_dir=str(folder),
    )
    length: dict[str, Any] = {"max_epochs": 2} if by_epoch else {"max_steps": 20}
    torch.manual_seed(0 if ckpt is None else 77)  # another process is in another state
    callbacks = [hook for hook in hooks if not isinstance(hook, Hook)]
    trainer = make_trainer(folder, adapter, *callbacks, **length)
    trainer.fit(Module(), loader, make_loader(1), ckpt_path=ckpt)
    found: dict[str, Any] = torch.load(folder / "iter_20.pth", weights_only=True)
    return found


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)


def check_exact(tmp_path: Path, *hooks: Hook, by_epoch: bool, workers: int = 0) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def loader() -> Any:
        data = make_loader(10).dataset
        return stateful.StatefulDataLoader(data, 2, shuffle=True, num_workers=workers)

    whole = run(tmp_path / "a", loader(), *hooks, by_epoch=by_epoch)
    rows, lines = read_logs(tmp_path / "a")
    assert len(rows) == len(lines) > 4
    for start in (6, 8, 10, 18):  # 6 and 18: a log's interval has begun; 10: an epoch is over
        # the files of the whole run, as after a kill at the end
        part = run(tmp_path / "a", loader(), *hooks, by_epoch=by_epoch, ckpt=file(tmp_path, start))
        for key in ("state_dict", "current_model_state", "optimizer_states", "loops"):
            assert same(part[key], whole[key]), (start, key)
        assert read_logs(tmp_path / "a") == (rows, lines)
    assert len(list((tmp_path / "a").glob("*.log.json"))) == 1


def file(tmp_path: Path, iteration: int) -> Path:
    return tmp_path / "a" / f"iter_{iteration}.pth"


modes = pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])


@pytest.mark.parametrize(
    ("by_epoch", "hooks"), [(True, []), (False, [MayChangeData()])], ids=["native", "foreign"]
)
def test_a_stateful_loader_goes_on_exactly(
    tmp_path: Path, by_epoch: bool, hooks: list[Hook]
) -> None:
    check_exact(tmp_path, *hooks, by_epoch=by_epoch)


@pytest.mark.slow
@modes
def test_with_workers_too(tmp_path: Path, by_epoch: bool) -> None:
    check_exact(tmp_path, MayChangeData(), by_epoch=by_epoch, workers=2)


class Raises(Callback):
    """Raises an error in the validation after a given number of batches."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def on_validation_batch_start(self, trainer: Any, *args: Any) -> None:
        if trainer.fit_loop.epoch_loop.batch_progress.total.ready == self.batches:
            raise InterruptedError


def test_a_run_cut_in_the_validation_of_an_epoch_goes_on_exactly(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    def end(folder: Path, *hooks: Any, ckpt: Any = None) -> Any:
        torch.manual_seed(0)  # seed of the shuffle, drawn when the loader is created
        loader = stateful.StatefulDataLoader(make_loader(10).dataset, 2, shuffle=True)
        return run(folder, loader, *hooks, ckpt=ckpt)

    whole = end(tmp_path / "a")
    with pytest.raises(InterruptedError):
        end(tmp_path / "b", Raises(10))
    part = end(tmp_path / "b", ckpt=tmp_path / "b" / "iter_10.pth")
    assert same(part["state_dict"], whole["state_dict"])


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")  # Lightning's own words
@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")
def test_with_a_stream_a_warning_says_what_repeats(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("lightning_hooks"), "propagate", True)
    run(tmp_path / "a", DataLoader(Stream(), 2))
    run(tmp_path / "a", DataLoader(Stream(), 2), ckpt=file(tmp_path, 12))
    (told,) = [x.getMessage() for x in caplog.records if "new pass" in x.getMessage()]
    assert "in epoch 2 after 2 batches" in told
    assert "8 batches are taken" in told
    assert "Stream is iterable" in told
    assert "StatefulDataLoader" in told


class LogsEpochs(TinyNormModule):
    """A module that logs epoch-level values, one of them only in some batches."""

    def __init__(self, *, shows: bool = False) -> None:
        super().__init__()
        self.shows = shows

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        self.log("loss", loss, on_epoch=True, prog_bar=self.shows)
        self.log("least", loss, on_step=False, on_epoch=True, reduce_fx="min")
        if batch_idx % 4 == 2:
            self.log("rare", loss, on_step=False, on_epoch=True, reduce_fx="sum")
        return loss


class LogsMetric(LogsEpochs):
    """Logs a metric of torchmetrics too."""

    def __init__(self) -> None:
        super().__init__()
        self.metric = MeanMetric()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = super().training_step(batch, batch_idx)
        self.metric(loss.detach())
        self.log("metric", self.metric, on_step=False, on_epoch=True)
        return loss


def fit_epochs(folder: Path, module: Any, *callbacks: Any, ckpt: Any = None, **options: Any) -> Any:
    """Train 2 epochs of 10 batches with checkpoints; return the epochs' values and the log."""
    found = []

    class Values(Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            values = trainer.callback_metrics
            found.append({name: values[name].item() for name in ("loss_epoch", "least", "rare")})

    saves = CheckpointHook(interval=3, by_epoch=False, on_exception=True)
    hooks = saves, TextLoggerHook(), Values(), *callbacks
    trainer = make_trainer(folder, *hooks, max_epochs=2, enable_checkpointing=True, **options)
    trainer.fit(module, make_loader(10), make_loader(1), ckpt_path=ckpt)
    return found, read_logs(folder)


@pytest.mark.parametrize("options", [{}, {"val_check_interval": 3}], ids=["end", "within"])
@pytest.mark.parametrize("shows", [False, True], ids=["same", "other_arguments"])
def test_an_epochs_values_go_on_within_the_epoch(
    tmp_path: Path, options: dict[str, Any], shows: bool, caplog: pytest.LogCaptureFixture
) -> None:
    whole, log = fit_epochs(tmp_path / "a", LogsEpochs(), **options)
    for start in (3, 6, 9, 12, 18):
        path = tmp_path / "a" / f"iter_{start}.pth"
        found, again = fit_epochs(tmp_path / "a", LogsEpochs(shows=shows), ckpt=path, **options)
        assert found == whole[start // 10 :]
        assert again == log
    assert "since the resume" not in caplog.text


def test_an_epochs_values_go_on_from_its_last_validation(tmp_path: Path) -> None:
    whole, log = fit_epochs(tmp_path / "a", LogsEpochs())
    with pytest.raises(InterruptedError):
        fit_epochs(tmp_path / "b", LogsEpochs(), Raises(10))
    found, again = fit_epochs(tmp_path / "b", LogsEpochs(), ckpt="last")
    assert (found, again) == (whole, log)


class CutsEnd(Callback):
    """Raises an error at an event of an epoch's last batch or end."""

    def __init__(self, event: str, epoch: int) -> None:
        self.epoch = epoch
        setattr(self, event, self.stop)

    def stop(self, trainer: Any, *_: Any) -> None:
        if (trainer.current_epoch, trainer.global_step % 10) == (self.epoch, 0):
            raise InterruptedError


@pytest.mark.parametrize("event", ["on_train_batch_end", "on_train_epoch_end"])
@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("options", [{}, {"limit_val_batches": 0}], ids=["validates", "not"])
def test_the_end_of_an_epoch_that_is_cut_is_repeated(
    tmp_path: Path, event: str, epoch: int, options: dict[str, Any]
) -> None:
    whole, log = fit_epochs(tmp_path / "a", LogsEpochs(), **options)
    with pytest.raises(InterruptedError):
        fit_epochs(tmp_path / "b", LogsEpochs(), CutsEnd(event, epoch), **options)
    found, again = fit_epochs(tmp_path / "b", LogsEpochs(), ckpt="last", **options)
    assert found == whole[epoch:]
    assert again == log
    weights = [
        torch.load(tmp_path / folder / "iter_20.pth", weights_only=True)["state_dict"]
        for folder in "ab"
    ]
    assert same(*weights)


def test_a_line_tells_that_no_step_is_left_for_the_end_of_an_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InterruptedError):
        fit_epochs(tmp_path, LogsEpochs(), CutsEnd("on_train_epoch_end", 1), max_steps=20)
    fit_epochs(tmp_path, LogsEpochs(), ckpt="last", max_steps=20)
    assert "before the end of the epoch with the last of max_steps=20" in caplog.text


class Stops(Callback):
    """Raises an error in a step."""

    def on_before_optimizer_step(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 13:
            raise InterruptedError


@pytest.mark.parametrize(
    ("module", "start", "names"),
    [(LogsMetric, 12, "metric"), (LogsEpochs, 13, "loss_epoch, least, rare")],
    ids=["metric", "cut_batch"],
)
def test_a_line_tells_of_values_that_cannot_go_on(
    tmp_path: Path, module: Any, start: int, names: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InterruptedError):
        fit_epochs(tmp_path, module(), Stops())
    fit_epochs(tmp_path, module(), ckpt=tmp_path / f"iter_{start}.pth")
    told = [line for line in caplog.messages if "since the resume" in line]
    assert [line.partition(":")[0] for line in told] == [f"{names} of epoch 2"]


def test_a_line_tells_of_values_of_ranks_that_are_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit_epochs(tmp_path, LogsEpochs())
    path = tmp_path / "iter_12.pth"
    file = torch.load(path, weights_only=True)
    of_two = file["lightning_hooks"]
    of_two["sums"] *= 2  # as of a run of two ranks
    torch.save(file, tmp_path / "of_two.pth")
    found, _ = fit_epochs(tmp_path, LogsEpochs(), ckpt=tmp_path / "of_two.pth")
    (line,) = [line for line in caplog.messages if "since the resume" in line]
    assert line.partition(":")[0] == "loss_epoch, least, rare of epoch 2"
    assert len(found) == 1


@pytest.mark.parametrize("is_sized", [True, False], ids=["sized", "not sized"])
def test_a_line_says_which_batches_a_stateful_loader_leaves_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_sized: bool
) -> None:
    kind = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    class Samples(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            return iter(make_loader(10).dataset)

    class Dies(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, batch: Any, index: int) -> None:
            if index == 3:
                raise InterruptedError

    def fit(*callbacks: Any, ckpt: Any = None) -> int:
        data = make_loader(10).dataset if is_sized else Samples()
        keep = CheckpointHook(by_epoch=False, on_exception=True)
        trainer = make_trainer(tmp_path, keep, *callbacks, max_epochs=1, enable_checkpointing=True)
        trainer.fit(Module(), kind(data, 2), make_loader(1), ckpt_path=ckpt)
        return int(trainer.global_step)

    with pytest.raises(InterruptedError):
        fit(Dies())
    lost = 1 if is_sized else 2
    assert fit(ckpt="last") == 10 - lost
    assert f"is ahead of the training by {lost} batches" in caplog.text


@pytest.mark.parametrize("step", [10, 20])
def test_a_resumed_epoch_accumulates_as_scheduled(tmp_path: Path, step: int) -> None:
    def fit(folder: Path, *callbacks: Any, ckpt: Any = None) -> Any:
        torch.manual_seed(0)
        schedule = GradientAccumulationScheduler({0: 1, 1: 2, 2: 4})
        keep = CheckpointHook(1, by_epoch=False, max_keep_ckpts=9)
        hooks = [EMAHook(momentum=0.1), keep, *callbacks]
        trainer = make_trainer(folder, *hooks, schedule, max_epochs=3, enable_checkpointing=True)
        trainer.fit(Module(), make_loader(8), make_loader(1), ckpt_path=ckpt)
        return trainer

    whole = fit(tmp_path)
    assert whole.global_step == 8 + 4 + 2
    part = fit(tmp_path, ckpt=tmp_path / f"iter_{step}.pth")
    assert part.global_step == whole.global_step
    assert same(part.lightning_module.state_dict(), whole.lightning_module.state_dict())
