"""ThroughputHook: the rates of each line, measured with a fake clock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_hooks import CheckpointHook, EMAHook, EvalHook, Hook, TextLoggerHook, ThroughputHook
from support.training import NoValidation, TinyModule, make_loader, make_trainer

MS = 1_000_000


class Clock:
    """A fake clock in milliseconds, advanced by the loader, the step and callbacks."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now * MS


class Timed(NoValidation):
    """A module with steps of 3 ms, or of the time given for a batch."""

    def __init__(self, clock: Clock, slow: dict[int, int] | None = None) -> None:
        super().__init__()
        self.clock, self.slow = clock, slow or {}

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.clock.now += self.slow.get(batch_idx, 3)
        return super().training_step(batch, batch_idx)

    def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        self.clock.now += 1  # of the wait for the batch
        return batch


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the training lines of the JSON log."""
    (file,) = folder.glob("*.log.json")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row.get("mode") == "train"]


def made(clock: Clock, **arguments: Any) -> ThroughputHook:
    hook = ThroughputHook(**{"warmup_iters": 0, **arguments})
    hook.clock = clock  # type: ignore[method-assign,assignment]
    return hook


def test_the_rates_are_the_lines_own_samples_by_its_time(tmp_path: Path) -> None:
    clock = Clock()
    hook = made(clock, tokens=lambda batch: batch[0].numel())
    module = Timed(clock, slow={2: 9})
    make_trainer(tmp_path, hook, TextLoggerHook(interval=2)).fit(module, make_loader(6))
    size = len(next(iter(make_loader(6)))[0])
    times = [8, 14, 8]  # in milliseconds: the third step takes nine
    for row, spent in zip(lines(tmp_path), times, strict=True):
        assert row["samples_per_sec"] == pytest.approx(2 * size * 1000 / spent)
        assert row["tokens_per_sec"] == pytest.approx(8 * size * 1000 / spent)
        assert row["data_share"] == pytest.approx(2 / spent, abs=1e-5)


def test_the_first_iterations_do_not_count(tmp_path: Path) -> None:
    clock = Clock()
    hook, module = made(clock, warmup_iters=3), Timed(clock, slow={0: 500, 1: 80})
    make_trainer(tmp_path, hook, TextLoggerHook(interval=2)).fit(module, make_loader(6))
    size = len(next(iter(make_loader(6)))[0])
    first, *others = lines(tmp_path)
    assert "samples_per_sec" not in first
    assert [row["samples_per_sec"] for row in others] == pytest.approx([size * 250] * 2)


@pytest.mark.parametrize("validate", ["average", "both"])
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_validations_and_checkpoints_do_not_count(
    tmp_path: Path, validate: Literal["average", "both"]
) -> None:
    clock = Clock()

    class Validated(Timed):
        validation_step = TinyModule.validation_step

        def on_validation_batch_end(self, *args: Any) -> None:
            self.clock.now += 1000

    class Slow(Hook):
        def on_save_checkpoint(self, *args: Any) -> None:
            clock.now += 1000

    saves = CheckpointHook(by_epoch=False, interval=2)
    options = {"val_check_interval": 3, "enable_checkpointing": True, "max_epochs": 2}
    average = EMAHook(validate=validate)
    hooks = made(clock), TextLoggerHook(interval=2), saves, Slow(), average
    make_trainer(tmp_path, *hooks, **options).fit(Validated(clock), make_loader(6), make_loader(2))
    size = len(next(iter(make_loader(6)))[0])
    assert [row["samples_per_sec"] for row in lines(tmp_path)] == pytest.approx([size * 250] * 6)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_evaluation_within_an_epoch_does_not_count(tmp_path: Path, is_first: bool) -> None:
    clock = Clock()

    class Scored(TensorDataset):
        def evaluate(self, results: Any, logger: Any = None) -> dict[str, float]:
            clock.now += 1000
            return {"acc": 0.5}

    data = DataLoader(Scored(torch.ones(1)))
    hook = EvalHook(data, interval=3, by_epoch=False, test_fn=lambda model, loader: [])
    hooks = [hook, made(clock)] if is_first else [made(clock), hook]
    make_trainer(tmp_path, *hooks, TextLoggerHook(interval=2)).fit(Timed(clock), make_loader(8))
    size = len(next(iter(make_loader(8)))[0])
    rows = [row for row in lines(tmp_path) if "loss" in row]
    assert [row["samples_per_sec"] for row in rows] == pytest.approx([size * 250] * 4)


@pytest.mark.parametrize("owner", ["trainer", "runner"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_checkpoint_of_a_hook_does_not_count(tmp_path: Path, owner: str, is_first: bool) -> None:
    clock = Clock()

    class Saves(Hook):
        priority = "NORMAL" if is_first else "VERY_LOW"

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter % 3 == 1:
                where = {"trainer": runner.trainer, "runner": runner}[owner]
                where.save_checkpoint(str(tmp_path / "saved"))
                clock.now += is_first  # within the iteration, which is left out

    class Slow(Timed):
        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            clock.now += 1000
            return super().state_dict(*args, **kwargs)

    hooks = Saves(), made(clock), TextLoggerHook(interval=2)
    make_trainer(tmp_path, *hooks).fit(Slow(clock), make_loader(8))
    size = len(next(iter(make_loader(8)))[0])
    assert [row["samples_per_sec"] for row in lines(tmp_path)] == pytest.approx([size * 250] * 4)


def test_operations_are_counted_once_or_given(tmp_path: Path) -> None:
    clock = Clock()
    measured = made(clock, flops="measure", peak_flops=1e9)
    make_trainer(tmp_path, measured, TextLoggerHook(interval=4)).fit(Timed(clock), make_loader(8))
    batch = next(iter(make_loader(8)))[0]
    forward = 2 * len(batch) * 4 * 2
    backward = forward  # for the weights: the batch wants no gradient
    _, row = lines(tmp_path)
    assert row["mfu"] == pytest.approx((forward + backward) * 250 / 1e9, abs=1e-5)
    given = tmp_path / "given"
    hook = made(clock, flops=4e9)
    make_trainer(given, hook, TextLoggerHook(interval=4)).fit(Timed(clock), make_loader(8))
    assert [row["tflops_per_sec"] for row in lines(given)] == pytest.approx([1.0] * 2)
    assert not any("mfu" in row for row in lines(given))  # nobody knows a CPU's peak


def test_a_batch_without_a_size_is_named_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class OfNumbers(Timed):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return nn.functional.mse_loss(self.net(torch.ones(3, 4)), torch.ones(3, 2))

    clock = Clock()
    loader = torch.utils.data.DataLoader(range(8), batch_size=None, collate_fn=lambda x: object())
    make_trainer(tmp_path, made(clock), TextLoggerHook(interval=4)).fit(OfNumbers(clock), loader)
    said = [r.getMessage() for r in caplog.records if "samples_per_sec" in r.getMessage()]
    assert len([line for line in said if "is not logged" in line]) == 1
    assert "ThroughputHook(samples=lambda batch: ...)" in said[0]


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"flops": "measured"}, 'flops must be a number, "measure" or None'),
        ({"flops": 0}, "flops must be above 0"),
        ({"samples": 8}, "samples must be a function or None, got 8"),
        ({"peak_flops": -1.0}, "peak_flops must be above 0"),
        ({"warmup_iters": -1}, "warmup_iters must be an int of at least 0"),
    ],
)
def test_bad_arguments(given: dict[str, Any], error: str) -> None:
    with pytest.raises((TypeError, ValueError), match=error):
        ThroughputHook(**given)
