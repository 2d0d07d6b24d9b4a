"""Pet's printed hooks, in Pet's loop and in a Trainer: equal calls, rows, rates and weights."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from lightning_hooks.dialects import pet
from support.as_library import load_as
from support.training import TinyNormModule, fit, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

EPOCHS, BATCHES = 2, 3
MAX_ITER = EPOCHS * BATCHES


class Own(TinyNormModule):
    """Its optimizer is there from the beginning, as Pet's hooks want it."""

    def __init__(self) -> None:
        super().__init__()
        self.sgd = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return self.sgd


def printed_on(monkeypatch: Any, library: ModuleType) -> Any:
    """Load the printed hooks over a library."""
    load_as(monkeypatch, "pet.lib", "pet_library")
    monkeypatch.setitem(sys.modules, "pet.lib", library)
    return load_as(monkeypatch, "pet_project", "pet_printed")


def hooks_of(printed: Any, module: Own, writers: list[Any]) -> list[Any]:
    batches = [x for x, _ in make_loader(4, seed=3)]
    scheduler = torch.optim.lr_scheduler.StepLR(module.sgd, 2, gamma=0.1)
    return [
        printed.IterationTimer(MAX_ITER, 1, warmup_iter=2, ignore_warmup_time=True),
        printed.LRScheduler(module.sgd, scheduler),
        printed.PreciseBN((module.net, batches, torch.device("cpu")), 4, 2, MAX_ITER),
        printed.PeriodicWriter(writers, MAX_ITER, 2),
        printed.Recall(),
    ]


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_the_five_hooks_do_the_same(
    by_epoch: bool, tmp_path: Path, monkeypatch: Any, caplog: Any, capsys: Any
) -> None:
    theirs, ours = Own(), Own()
    library = load_as(monkeypatch, "pet.lib", "pet_library")
    printed = printed_on(monkeypatch, library)
    expected_rows, loader = printed.Rows(), make_loader(BATCHES)
    expected = hooks_of(printed, theirs, [expected_rows])
    batches = [*loader] * EPOCHS
    library.train(theirs, batches, theirs.sgd, expected, EPOCHS, BATCHES, by_epoch)
    printed_lines = capsys.readouterr().out.splitlines()
    printed = printed_on(monkeypatch, pet)
    rows = printed.Rows()
    found = hooks_of(printed, ours, [rows])
    with caplog.at_level("INFO"):
        fit(tmp_path, *found, module=ours, batches=BATCHES, max_epochs=EPOCHS, by_epoch=by_epoch)
    assert found[-1].calls == expected[-1].calls
    assert found[-1].losses == pytest.approx(expected[-1].losses)
    assert [row[:3] for row in rows.rows] == [row[:3] for row in expected_rows.rows]
    for row, other in zip(rows.rows, expected_rows.rows, strict=True):
        assert row[3] == pytest.approx(other[3], rel=1e-5)
    # its variance is the mean of the batches' own, ours that of all values together
    for name, value in theirs.state_dict().items():
        if "running_var" not in name and "num_batches" not in name:
            torch.testing.assert_close(ours.state_dict()[name], value)
    logged = [record.getMessage() for record in caplog.records]
    assert len(printed_lines) == 4
    for line in printed_lines:
        assert any(other.partition(" (")[0] == line.partition(" (")[0] for other in logged)


def test_the_timers_of_a_test_run(monkeypatch: Any, caplog: Any) -> None:
    hook = printed_on(monkeypatch, pet).TestHook("model.yaml", 2, 1)
    with caplog.at_level("INFO"):
        for index in range(4):
            hook.iter_tic()
            hook.infer_tic()
            time.sleep(0.002)
            assert hook.infer_toc() >= 0.002
            assert hook.iter_toc() >= 0
            hook.log_stats(index, 0, 4, 4)
    lines = [record.getMessage() for record in caplog.records]
    assert [line[:35] for line in lines] == [
        "[Testing][range:1-4 of 4][2/4][0.00",
        "[Testing][range:1-4 of 4][4/4][0.00",
    ]


def test_the_timer_counts_parts_and_pauses() -> None:
    timer = pet.Timer()
    timer.tic()
    time.sleep(0.002)
    first = timer.toc()
    timer.tic()
    assert timer.toc(average=False) == timer.diff < first
    assert timer.average_time == pytest.approx(timer.total_time / 2)
    timer.pause()
    paused = timer.seconds()
    time.sleep(0.002)
    assert timer.seconds() == paused > 0.002
    with pytest.raises(ValueError, match=r"Timer.pause\(\) needs a running timer"):
        timer.pause()
    timer.resume()
    assert paused < timer.seconds()
    assert timer.avg_seconds() < timer.seconds()
    with pytest.raises(ValueError, match=r"Timer.resume\(\) needs a paused timer"):
        timer.resume()
    timer.reset()
    assert (timer.calls, timer.average_time) == (0, 0.0)


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_every_writer_accepts_the_epoch_keywords(
    by_epoch: bool, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    printed = printed_on(monkeypatch, pet)
    path = tmp_path / "rows"
    writers = [pet.JSONWriter(str(path)), pet.TensorboardXWriter(str(tmp_path / "board"))]
    writers.append(pet.CommonMetricPrinter(MAX_ITER))
    hooks = [printed.PeriodicWriter(writers, MAX_ITER, 2)]
    hooks.append(pet.PeriodicWriter([*writers, printed.Rows()], MAX_ITER, 3))
    rows = hooks[1]._writers[-1]
    with caplog.at_level("INFO"):
        fit(tmp_path, *hooks, batches=BATCHES, max_epochs=EPOCHS, by_epoch=by_epoch)
    iterations = [json.loads(line)["iteration"] for line in path.read_text().splitlines()]
    assert iterations == [2, 3, 4, 6, 6]
    epochs = [(1, 2), (2, 2)] if by_epoch else [(None, None)] * 2
    assert [row[:3] for row in rows.rows] == [(3, *epochs[0]), (6, *epochs[1])]
    assert any("iter: 3" in record.getMessage() for record in caplog.records)


def test_pets_own_writers_find_the_storage(tmp_path: Path, monkeypatch: Any) -> None:
    library = load_as(monkeypatch, "pet.lib", "pet_library")
    printed = printed_on(monkeypatch, library)
    path = tmp_path / "rows"
    writer = library.JSONWriter(str(path), 2)
    fit(
        tmp_path,
        printed.PeriodicWriter([writer], MAX_ITER, 2),
        batches=BATCHES,
        max_epochs=EPOCHS,
        host=True,
    )
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [2, 4, 6]
    assert {"total_loss", "train_loss"} <= set(rows[0])
    assert library._CURRENT_STORAGE_STACK == []


def test_the_helpers_follow_pet(caplog: Any) -> None:
    module = TinyNormModule()
    assert pet.get_bn_modules(module) == [module.net[1]]
    assert pet.get_bn_modules(module.eval()) == []
    with caplog.at_level("INFO"):
        pet.logging_rank("a ", 1)
        pet.logging_rank("b", local_rank=1)
        pet.logging_rank("c", distributed=False, local_rank=1)
    assert [record.getMessage() for record in caplog.records] == ["a 1", "c"]
