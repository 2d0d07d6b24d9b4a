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
    """A module that creates its optimizer in the constructor, as Pet's hooks require."""

    def __init__(self) -> None:
        super().__init__()
        self.sgd = torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return self.sgd


def printed_on(monkeypatch: Any, library: ModuleType) -> Any:
    """Import the published hooks with a given library as ``pet.lib``."""
    load_as(monkeypatch, "pet.lib", "pet_library")
    monkeypatch.setitem(sys.modules, "pet.lib", library)
    return load_as(monkeypatch, "pet_project", "pet_printed")


def hooks_of(hooks: Any, module: Own, writer: Any, by_epoch: bool) -> list[Any]:
    batches = [x for x, _ in make_loader(4, seed=3)]
    scheduler = torch.optim.lr_scheduler.StepLR(module.sgd, 2, gamma=0.1)
    return [
        hooks.IterationTimer(MAX_ITER, 1, 2, True),
        hooks.LRScheduler(module.sgd, scheduler),
        hooks.PreciseBN((batches, module.net, torch.device("cpu")), 4, 2, MAX_ITER),
        hooks.PeriodicWriter([writer], BATCHES if by_epoch else MAX_ITER, 2),
    ]


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "printed"])
def test_the_hooks_do_the_same_in_pets_loop_and_in_a_trainer(
    ours: bool, by_epoch: bool, tmp_path: Path, monkeypatch: Any, caplog: Any, capsys: Any
) -> None:
    their_module, our_module = Own(), Own()
    library = load_as(monkeypatch, "pet.lib", "pet_library")
    printed = printed_on(monkeypatch, library)
    their_rows, their_calls, loader = printed.Rows(), printed.Recall(), make_loader(BATCHES)
    hooks = hooks_of(printed, their_module, their_rows, by_epoch)
    batches = [*loader] * EPOCHS
    hooks.append(their_calls)
    library.train(their_module, batches, their_module.sgd, hooks, EPOCHS, BATCHES, by_epoch)
    printed_lines = [line for line in capsys.readouterr().out.splitlines() if "training" in line]
    printed = printed_on(monkeypatch, pet)
    rows, calls = printed.Rows(), printed.Recall()
    hooks = [*hooks_of(pet if ours else printed, our_module, rows, by_epoch), calls]
    with caplog.at_level("INFO"):
        fit(
            tmp_path,
            *hooks,
            module=our_module,
            batches=BATCHES,
            max_epochs=EPOCHS,
            by_epoch=by_epoch,
        )
    assert calls.calls == their_calls.calls
    assert calls.losses == pytest.approx(their_calls.losses)
    assert [row[:3] for row in rows.rows] == [row[:3] for row in their_rows.rows]
    for row, other in zip(rows.rows, their_rows.rows, strict=True):
        assert row[3] == pytest.approx(other[3], rel=1e-5)
    # Pet's variance is the mean over batches, ours the variance of all values
    for name, value in their_module.state_dict().items():
        if "running_var" not in name and "num_batches" not in name:
            torch.testing.assert_close(our_module.state_dict()[name], value)
    logged = [record.getMessage() for record in caplog.records]
    assert len(printed_lines) == 2
    for line in printed_lines:
        assert any(other.partition(" (")[0] == line.partition(" (")[0] for other in logged)


def loop(hooks: list[Any], iterations: int, per_epoch: int = 0) -> None:
    """Call hooks as Pet's loops do: by epochs if ``per_epoch`` is given, else by iterations."""
    for hook in hooks:
        hook.before_train()
    with pet.EventStorage(1) as storage:
        for iteration in range(iterations):
            for hook in hooks:
                hook.before_step(storage=storage)
            storage.put_scalars(total_loss=0.5)
            epoch = {"epoch": 1 + iteration // per_epoch} if per_epoch else {}
            epochs = {"max_epoch": iterations // per_epoch} if per_epoch else {}
            for hook in hooks:
                hook.after_step(storage=storage, **epoch, **epochs)
            storage.step()
        for hook in hooks:
            hook.after_train(storage=storage)


@pytest.fixture(params=["ours", "printed"])
def hooks(request: Any, monkeypatch: Any) -> Any:
    """The dialect's hooks, or Pet's published hooks on the dialect's storage."""
    printed = printed_on(monkeypatch, pet)
    return pet if request.param == "ours" else printed


def test_the_writer_writes_one_iteration_early_as_printed(hooks: Any, monkeypatch: Any) -> None:
    rows = printed_on(monkeypatch, pet).Rows()
    loop([hooks.PeriodicWriter([rows], max_iter=8, display_iter=3)], 8)
    assert [row[0] for row in rows.rows] == [2, 5, 7, 8]


def test_by_epoch_the_writer_counts_max_iter_per_epoch(hooks: Any, monkeypatch: Any) -> None:
    rows = printed_on(monkeypatch, pet).Rows()
    loop([hooks.PeriodicWriter([rows], max_iter=4, display_iter=3)], 8, per_epoch=4)
    assert [row[:3] for row in rows.rows] == [(2, 1, 2), (3, 1, 2), (6, 2, 2), (7, 2, 2)]
    assert [row[3]["epoch"] for row in rows.rows] == [1, 1, 2, 2]


@pytest.mark.parametrize("ignore_warmup_time", [False, True])
def test_the_timer_counts_without_the_warmup(
    hooks: Any, ignore_warmup_time: bool, caplog: Any
) -> None:
    timed = []

    class Sees(pet.TrainHook):
        def after_step(self, storage: Any, **kwargs: Any) -> None:  # type: ignore[override]
            timed.append("time" in storage.latest())

    with caplog.at_level("INFO"):
        loop([hooks.IterationTimer(8, 1, 3, ignore_warmup_time), Sees()], 8)
    assert caplog.messages[0].startswith("Overall training speed: 6 iterations in 0:00:00 (0.0")
    assert caplog.messages[1] == "Total training time: 0:00:00 (0:00:00 on hooks)"
    assert timed == [not ignore_warmup_time] * 2 + [True] * 6


def test_the_lines_of_the_json_writer_count_from_one_as_printed(
    hooks: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    lines = []
    for library in (pet, load_as(monkeypatch, "pet.lib", "pet_library")):
        monkeypatch.setattr(library, "get_event_storage", pet.get_event_storage)
        path = tmp_path / library.__name__
        writer = library.JSONWriter(str(path))
        # the published hook accepts writers of the known base class
        monkeypatch.setattr(writer, "__class__", type("", (type(writer), pet.EventWriter), {}))
        loop([hooks.PeriodicWriter([writer], 12, 5)], 12)
        lines.append([json.loads(line)["iteration"] for line in path.read_text().splitlines()])
    assert lines == [[5, 10, 12]] * 2


def test_the_hooks_have_the_printed_attributes(hooks: Any) -> None:
    module, sgd = TinyNormModule(), torch.optim.SGD([torch.zeros(1, requires_grad=True)], 0.1)
    scheduler, batches = torch.optim.lr_scheduler.StepLR(sgd, 2), [torch.zeros(2, 4)]
    cpu = torch.device("cpu")
    writer = hooks.PeriodicWriter([], 8, 3)
    assert (writer.writers, writer.max_iter, writer.display_iter) == ([], 8, 3)
    timer = hooks.IterationTimer(8, 1, 3, True)
    assert isinstance(timer.step_timer, pet.Timer)
    found = (timer.start_iter, timer.max_iter, timer.warmup_iter, timer.ignore_warmup_time)
    assert found == (1, 8, 3, True)
    stepper = hooks.LRScheduler(sgd, scheduler)
    found = (stepper.optimizer, stepper.scheduler, stepper._best_param_group_id)
    assert found == (sgd, scheduler, 0)
    bn = hooks.PreciseBN((batches, module, cpu), 3, 5, 8)
    assert (bn.data_loader, bn.model, bn.device) == (batches, module, cpu)
    found = (bn.num_iter, bn.period, bn.max_iter, bn.disabled, bn.data_iter)
    assert found == (5, 3, 8, False, None)
    bn = hooks.PreciseBN((batches, module.eval(), cpu), 3, 5, 8)
    assert bn.disabled
    bn.update_stats()
    assert bn.data_iter is None


def test_the_statistics_take_four_positional_arguments_or_our_keywords(hooks: Any) -> None:
    module, batches = TinyNormModule(), [x for x, _ in make_loader(3)]
    pet.update_bn_stats(module.net, batches, torch.device("cpu"), 2)
    expected = module.net[1].running_mean.clone()
    module.net[1].reset_running_stats()
    pet.update_bn_stats(module.net, data_loader=batches, num_iters=2)
    assert torch.equal(module.net[1].running_mean, expected)
    module.net[1].reset_running_stats()
    bn = hooks.PreciseBN((batches, module.net, torch.device("cpu")), 0, 2, 8)
    bn.update_stats()
    assert torch.equal(module.net[1].running_mean, expected)
    assert torch.equal(next(bn.data_iter), batches[2])


def test_the_timers_of_a_test_have_the_printed_names(hooks: Any, caplog: Any) -> None:
    hook = hooks.TestHook("model.yaml", 2)
    assert (hook.num_warmup, hook.iter) == (5, 0)
    assert tuple(hook.default_timers) == ("iter", "data", "infer", "post")
    hook.tic("nms")
    assert "nms" in hook.timers
    hook.nms_toc()
    with pytest.raises(ValueError, match="nms"):
        hook.add_timer("nms")
    assert hook.add_timer("own") is hook.timers["own"]
    with pytest.raises(ValueError, match="nns"):
        hook.toc("nns")
    for _ in range(2):
        hook.iter_tic()
        hook.wait()
        hook.iter_toc()
    assert hook.iter == 2
    with caplog.at_level("INFO"):
        hook.log_stats(cur=1, start=0, end=4, total=8)
    assert "[Testing][range:1-4 of 8][2/4][0.000s" in caplog.messages[0]
    hook.reset_timer()


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
    assert [line[:33] for line in lines] == [
        "[Testing][range:1-4 of 4][2/4][0.",
        "[Testing][range:1-4 of 4][4/4][0.",
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
    rows = hooks[1].writers[-1]
    with caplog.at_level("INFO"):
        fit(tmp_path, *hooks, batches=BATCHES, max_epochs=EPOCHS, by_epoch=by_epoch)
    iterations = [json.loads(line)["iteration"] for line in path.read_text().splitlines()]
    assert iterations == [2, 3, 4, 6, 6]
    epochs = [(1, 2), (2, 2)] if by_epoch else [(None, None)] * 2
    assert [row[:3] for row in rows.rows] == [(2, *epochs[0]), (5, *epochs[1])]
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
