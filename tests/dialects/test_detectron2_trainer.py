"""The trainer, the storage and the terminal line of detectron2's hooks."""

from __future__ import annotations

import json
import re
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import HookAdapter
from lightning_hooks.dialects import cvpods
from lightning_hooks.dialects import detectron2 as d2
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

fit = partial(training.fit, host=True, batches=3, max_epochs=2)


class After(d2.HookBase):
    """Calls a function after each step."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.results: list[Any] = []

    def after_step(self) -> None:
        self.results.append(self.function(self.trainer))


def test_an_assigned_iteration_holds_until_the_next_one(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Jumps(d2.HookBase):
        def before_train(self) -> None:
            self.trainer.iter = 50

        def before_step(self) -> None:
            seen.append(("before_step", self.trainer.iter))

        def after_step(self) -> None:
            self.trainer.iter = 70
            seen.append(("after_step", self.trainer.iter))

        def after_train(self) -> None:
            seen.append(("after_train", self.trainer.iter))

    fit(tmp_path, Jumps(), max_epochs=1, limit_train_batches=2)
    assert seen == [
        ("before_step", 0),
        ("after_step", 70),
        ("before_step", 1),
        ("after_step", 70),
        ("after_train", 71),  # detectron2's loop adds 1 at the end
    ]


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_the_storage_keeps_its_iteration_where_a_hook_assigns_one(
    by_epoch: bool, tmp_path: Path
) -> None:
    seen: list[tuple[int, int]] = []

    class Jumps(d2.HookBase):
        def before_step(self) -> None:
            self.trainer.iter += 70

        def after_step(self) -> None:
            seen.append((self.trainer.iter, self.trainer.storage.iter))

        def after_train(self) -> None:
            self.after_step()

    count = {"max_epochs": 1} if by_epoch else {"max_steps": 3, "max_epochs": None}
    fit(tmp_path, Jumps(), by_epoch=by_epoch, **count)
    assert seen == [(70, 0), (71, 1), (72, 2), (73, 73)]


def test_has_event_storage_within_a_run_and_a_with_block(tmp_path: Path) -> None:
    assert not d2.has_event_storage()
    hook = After(lambda trainer: d2.has_event_storage())
    fit(tmp_path, hook, max_epochs=1)
    assert hook.results == [True] * 3
    assert not d2.has_event_storage()
    with d2.EventStorage():
        assert d2.has_event_storage()
    assert not d2.has_event_storage()


def test_the_latest_scalars_under_their_private_name() -> None:
    with d2.EventStorage(4) as storage:
        storage.put_scalar("loss", 2.0)
        assert storage._latest_scalars == {"loss": (2.0, 4)}


def test_the_trainer_inside_is_the_trainer(tmp_path: Path) -> None:
    hook = After(lambda t: (t._trainer.iter, t._trainer.model is t.model))
    fit(tmp_path, hook, max_epochs=1)
    assert hook.results == [(0, True), (1, True), (2, True)]


def test_the_loader_has_a_second_iterator(tmp_path: Path) -> None:
    hook = After(lambda t: [tuple(x.shape) for x in next(t._data_loader_iter)])
    fit(tmp_path, hook, max_epochs=1)
    assert len(hook.results) == 3


class Sees(TinyModule):
    """Records the mean input of each step."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.means = [*getattr(self, "means", []), float(batch[0].mean())]
        return super().training_step(batch, batch_idx)


def constant_batches(value: float) -> Any:
    while True:
        yield torch.full((4, 4), value), torch.zeros(4, 2)


def replace_iterator(trainer: Any, value: float) -> None:
    trainer._data_loader_iter_obj = constant_batches(value)


def reset_loader(trainer: Any, value: float) -> None:
    class Endless(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return constant_batches(value)

    trainer.reset_data_loader(lambda: torch.utils.data.DataLoader(Endless(), batch_size=None))


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
@pytest.mark.parametrize("replace", [replace_iterator, reset_loader])
@pytest.mark.parametrize("when", ["before_train", "after_step"])
def test_a_hook_replaces_the_training_data(
    when: str, replace: Any, by_epoch: bool, tmp_path: Path
) -> None:
    class Switches(d2.HookBase):
        lengths: Any = ()

        def before_train(self) -> None:
            if when == "before_train":
                replace(self.trainer, 0.5)

        def after_step(self) -> None:
            if when == "after_step" and self.trainer.iter in (1, 3):
                replace(self.trainer, 0.5 * self.trainer.iter)
            self.lengths = (*self.lengths, self.trainer.max_iter)

    hook = Switches()
    length = {"max_epochs": 2} if by_epoch else {"max_epochs": -1, "max_steps": 6}
    trainer = fit(tmp_path, hook, module=Sees, by_epoch=by_epoch, **length)
    means = trainer.lightning_module.means
    expected = [0.5] * 6 if when == "before_train" else [*means[:2], 0.5, 0.5, 1.5, 1.5]
    assert means == expected
    assert hook.lengths == (6,) * 6


def test_data_replaced_too_late_or_too_short_is_an_error(tmp_path: Path) -> None:
    class Late(d2.HookBase):
        def before_step(self) -> None:
            replace_iterator(self.trainer, 0.5)

    with pytest.raises(RuntimeError, match="cannot be replaced in before_step"):
        fit(tmp_path, Late())

    def replace(trainer: Any) -> None:
        if trainer.iter == 0:
            trainer._data_loader_iter_obj = iter([next(constant_batches(0.5))])

    with pytest.raises(RuntimeError, match="has ended before the run"):
        fit(tmp_path, After(replace))


def test_an_assigned_optimizer_trains(tmp_path: Path) -> None:
    def assign(trainer: Any) -> float:
        if trainer.iter == 1:
            trainer.optimizer = torch.optim.SGD(trainer.model.parameters(), lr=0.0)
        return float(trainer.model.net.weight.detach().sum())

    hook = After(assign)
    fit(tmp_path, hook)
    assert len({*hook.results[:2]}) == 2
    assert len({*hook.results[1:]}) == 1


def test_the_trainers_points_call_all_hooks(tmp_path: Path) -> None:
    calls: list[str] = []

    class Counts(d2.HookBase):
        def before_step(self) -> None:
            calls.append("before_step")

        def after_train(self) -> None:
            calls.append("after_train")

    def call(trainer: Any) -> None:
        if trainer.iter == 2:
            calls.clear()
            trainer.before_step()
            trainer._trainer.after_train()

    fit(tmp_path, Counts(), After(call), max_epochs=1)
    assert calls == ["before_step", "after_train", "after_train"]


def test_private_attributes_of_the_adapter_are_visible(tmp_path: Path) -> None:
    hook = After(lambda trainer: trainer._period_of_mine)
    adapter = HookAdapter([hook], attributes={"_period_of_mine": 7})
    make_trainer(tmp_path, adapter, max_epochs=1).fit(TinyModule(), make_loader(1))
    assert hook.results == [7]
    with pytest.raises(AttributeError, match="'_period_of_mine'"):
        fit(tmp_path, After(lambda trainer: trainer._period_of_mine))


def test_each_rank_has_its_own_data_time(tmp_path: Path) -> None:
    hook = After(lambda t: {k: v for k, (v, _) in t.storage.latest().items() if "time" in k})
    fit(tmp_path, hook, max_epochs=1)
    assert hook.results[2]["rank_data_time"] == hook.results[2]["data_time"] > 0


def test_a_step_that_fails_has_no_data_time(tmp_path: Path) -> None:
    class Fails(d2.HookBase):
        def before_step(self) -> None:
            assert self.trainer.iter < 2

    path = tmp_path / "metrics.json"
    writer = d2.PeriodicWriter([d2.JSONWriter(str(path))], period=1)
    with pytest.raises(AssertionError):
        fit(tmp_path, Fails(), writer, max_epochs=1)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [0, 1]


@pytest.mark.parametrize("validation", [{}, {"val_check_interval": 2}])
def test_the_time_of_a_validation_is_no_data_time(
    tmp_path: Path, validation: dict[str, Any]
) -> None:
    class Slow(TinyModule):
        def on_validation_epoch_end(self) -> None:
            time.sleep(0.5)

    hook = After(lambda trainer: trainer.storage.latest()["data_time"][0])
    fit(tmp_path, hook, module=Slow(), val=1, **validation)
    assert len(hook.results) == 6  # from the first iteration on, as detectron2's
    assert max(hook.results) < 0.5


# -- the line for the terminal -------------------------------------------------------------------


def line_of(printer: Any, caplog: Any) -> str:
    caplog.clear()
    with caplog.at_level("INFO"):
        printer.write()
    return str(caplog.records[-1].getMessage())


def test_metric_printer_line_equals_detectron2(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with d2.EventStorage() as storage:
        for value in (1.0, 3.0):
            storage.put_scalars(total_loss=value, loss_box=value / 2, time=value, data_time=value)
            storage.put_scalars(accuracy=value, **{"[metric]bn_stat": value})
            storage.put_scalar("lr", 0.01, smoothing_hint=False)
            storage.step()
        assert line_of(d2.CommonMetricPrinter(10), caplog) == (
            " eta: 0:00:14  iter: 2  total_loss: 2  loss_box: 1  [metric]bn_stat: 2  "
            "time: 2.0000  last_time: 3.0000  data_time: 2.0000  last_data_time: 3.0000   "
            "lr: 0.01  "
        )
        assert "eta" not in line_of(d2.CommonMetricPrinter(), caplog)


def test_metric_printer_line_of_an_empty_storage(
    caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with d2.EventStorage():
        assert line_of(d2.CommonMetricPrinter(), caplog) == " iter: 0       lr: N/A  "


# -- torch's profilers ---------------------------------------------------------------------------


@pytest.mark.parametrize("tensorboard", [True, False])
def test_torch_profiler_writes_traces_of_selected_steps(tmp_path: Path, tensorboard: bool) -> None:
    folder = tmp_path / "prof"
    hook = d2.TorchProfiler(
        lambda trainer: trainer.iter == 1,
        str(folder),
        activities=[torch.profiler.ProfilerActivity.CPU],
        save_tensorboard=tensorboard,
    )
    fit(tmp_path, hook, max_epochs=1)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*.json")]
    wanted = r"log/profiler-tensorboard-iter1\..*pt\.trace\.json"
    assert len(names) == 1
    assert re.fullmatch(wanted if tensorboard else r"profiler-trace-iter1\.json", names[0])


def test_a_second_profiler_of_torch_is_refused(tmp_path: Path) -> None:
    """Two running profilers end the process without an error message."""
    hooks = [d2.TorchProfiler(lambda trainer: True, str(tmp_path / name)) for name in "ab"]
    with pytest.raises(RuntimeError, match="another of torch's profilers is running: that of a"):
        fit(tmp_path, *hooks, max_epochs=1)


def test_a_fast_dev_run_is_not_profiled(tmp_path: Path) -> None:
    fit(tmp_path, d2.TorchProfiler(lambda _: True, str(tmp_path / "prof")), fast_dev_run=True)
    assert not (tmp_path / "prof").exists()


def test_memory_stats_log_the_gpu(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = d2.TorchMemoryStats(period=2, max_runs=2)
    trainer = make_trainer(tmp_path, HookAdapter([hook]), max_epochs=2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("max_memory_reserved", "memory_reserved", "max_memory_allocated"):
        monkeypatch.setattr(torch.cuda, name, lambda: 3 * 2**20)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 2**20)
    monkeypatch.setattr(torch.cuda, "memory_summary", lambda: "all of it")
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: None)
    with caplog.at_level("INFO"):
        trainer.fit(TinyModule(), make_loader(3))
    lines = [r.getMessage() for r in caplog.records if "allocated_mem" in r.getMessage()]
    assert [line.split()[1] for line in lines] == ["1", "3"]
    assert lines[0].endswith("max_allocated_mem: 3MB  allocated_mem: 1MB ")
    assert "\nall of it" in caplog.messages


def test_memory_stats_log_nothing_without_a_gpu(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with caplog.at_level("INFO"):
        fit(tmp_path, d2.TorchMemoryStats(period=1), max_epochs=1)
    assert "allocated_mem" not in caplog.text


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
@pytest.mark.parametrize("base", [d2.HookBase, cvpods.HookBase])
def test_points_of_an_epoch_in_a_loop_of_steps_are_named(
    base: Any, by_epoch: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Both(base):  # type: ignore[misc]
        def after_step(self) -> None: ...

        def after_epoch(self) -> None:
            raise AssertionError

    fit(tmp_path, Both(), by_epoch=by_epoch, max_epochs=1, max_steps=2)
    named = [
        line for line in caplog.messages if line.startswith("Both.after_epoch() is never called")
    ]
    assert len(named) == 1
    assert named[0].endswith("has steps and no epochs; move the code to after_step")
