"""cvpods of 2021 and of the main branch give equal numbers in cvpods' runner and in a Trainer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn.functional import l1_loss, mse_loss

from lightning_hooks import TextLoggerHook
from lightning_hooks.dialects import cvpods
from support.as_library import load_as
from support.training import TinyModule, fit, make_loader

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")

GENERATIONS = ("2021", "master")
BATCHES = 3


class Losses(TinyModule):
    """A module that returns losses by name and logs nothing."""

    def named_losses(self, batch: Any) -> dict[str, torch.Tensor]:
        x, y = batch
        found = self.net(x)
        return {"loss_box": mse_loss(found, y), "loss_cls": 0.5 * l1_loss(found, y)}

    forward = named_losses

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        losses = self.named_losses(batch)
        return {"loss": sum(losses.values()), **losses}


@pytest.fixture(params=GENERATIONS)
def library(request: Any, monkeypatch: Any) -> Any:
    """Import the engine and the events of a cvpods generation."""
    events = load_as(monkeypatch, "cvpods.utils.dump.events", f"cvpods_events_{request.param}")
    engine = load_as(monkeypatch, "cvpods.engine", "cvpods_engine")
    return engine, events


def clip(parameters: Any) -> None:
    torch.nn.utils.clip_grad_norm_(parameters, 0.5)


def trace_of(base: type) -> Any:
    """Return a hook that records counters and weights at each point."""

    def noting(point: str) -> Any:
        def method(self: Any) -> None:
            trainer = self.trainer
            inner = getattr(trainer, "inner_iter", None) if point.endswith("_step") else None
            weight = trainer.model.net.weight.detach().clone().flatten().tolist()
            self.calls.append((point, trainer.iter, trainer.storage.iter, inner, weight))

        return method

    points = ("before_train", "before_step", "after_step", "after_train")
    hook = type("Trace", (base,), {point: noting(point) for point in points})()
    hook.calls = []
    return hook


def under_library(engine: Any, *hooks: Any) -> None:
    module, loader = Losses(), make_loader(BATCHES)
    runner = engine.SimpleRunner(module, [*loader, *loader], module.configure_optimizers())
    runner.register_hooks(hooks)
    runner.train(2 * BATCHES)


def under_us(folder: Path, *hooks: Any, **options: Any) -> Any:
    return fit(folder, *hooks, host=True, batches=BATCHES, module=Losses, max_epochs=2, **options)


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_its_optimization_hook_trains_to_the_same_weights(
    library: Any, tmp_path: Path, by_epoch: bool
) -> None:
    engine, _ = library
    theirs, ours = trace_of(engine.HookBase), trace_of(engine.HookBase)
    under_library(engine, engine.OptimizationHook(1, clip), theirs)
    under_us(tmp_path, engine.OptimizationHook(1, clip), ours, by_epoch=by_epoch)
    assert [call[:4] for call in ours.calls] == [call[:4] for call in theirs.calls]
    torch.testing.assert_close(
        torch.tensor([call[4] for call in ours.calls]),
        torch.tensor([call[4] for call in theirs.calls]),
    )
    assert len({tuple(call[4]) for call in ours.calls}) == 2 * BATCHES + 1  # each step counts


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_inner_iter_counts_to_the_number_of_accumulated_iterations(
    tmp_path: Path, by_epoch: bool
) -> None:
    trace = trace_of(cvpods.HookBase)
    trainer = under_us(tmp_path, cvpods.OptimizationHook(2), trace, by_epoch=by_epoch)
    inner = [call[3] for call in trace.calls if call[3] is not None]
    assert inner == [0, 1, 1, 2] * 3
    assert trainer.global_step == 3


def test_its_hook_never_steps_over_several_iterations_and_does_here(
    library: Any, tmp_path: Path
) -> None:
    engine, _ = library
    assert under_us(tmp_path, engine.OptimizationHook(2)).global_step == BATCHES
    trace = trace_of(engine.HookBase)
    under_library(engine, engine.OptimizationHook(2), trace)
    assert {call[3] for call in trace.calls if call[0] == "before_step"} == {0}
    assert len({tuple(call[4]) for call in trace.calls}) == 1  # the weights of the beginning


def rows_of(path: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "data_time"} for row in rows]


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
def test_its_json_writer_writes_the_same_rows(library: Any, tmp_path: Path, by_epoch: bool) -> None:
    engine, events = library
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    writer = engine.PeriodicWriter([events.JSONWriter(str(theirs), 2)], 2)
    under_library(engine, engine.OptimizationHook(), writer)
    writer = engine.PeriodicWriter([events.JSONWriter(str(ours), 2)], 2)
    under_us(tmp_path, engine.OptimizationHook(), writer, by_epoch=by_epoch)
    for row, expected in zip(rows_of(ours), rows_of(theirs), strict=True):
        assert row == pytest.approx(expected, rel=1e-6)


def test_its_tensorboard_writer_writes_the_same_scalars(library: Any, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    engine, events = library
    found = []
    for way in ("theirs", "ours"):
        writer = events.TensorboardXWriter(str(tmp_path / way), 2)
        hooks = [engine.OptimizationHook(), engine.PeriodicWriter([writer], 2)]
        if way == "theirs":
            under_library(engine, *hooks)
        else:
            under_us(tmp_path, *hooks)
        accumulated = EventAccumulator(str(tmp_path / way))
        accumulated.Reload()
        names = set(accumulated.Tags()["scalars"]) - {"data_time"}
        assert names == {"total_loss", "loss_box", "loss_cls"}
        events_of = [(e.step, e.value) for n in sorted(names) for e in accumulated.Scalars(n)]
        found.append(torch.tensor(events_of))
    torch.testing.assert_close(*found)


def test_the_librarys_stack_is_empty_after_a_run(library: Any, tmp_path: Path) -> None:
    engine, events = library
    under_us(tmp_path, engine.OptimizationHook())
    assert events._CURRENT_STORAGE_STACK == []
    with pytest.raises(AssertionError):
        events.get_event_storage()


@pytest.mark.parametrize("dialect", ["cvpods", "cvpods_master"])
def test_an_argument_chooses_the_generation_without_the_library(
    dialect: str, tmp_path: Path
) -> None:
    class Reads(cvpods.HookBase):
        def after_step(self) -> None:
            self.latest = self.trainer.storage.latest()["total_loss"]
            assert cvpods.get_event_storage().latest()["total_loss"] == self.latest

    hook, path = Reads(), tmp_path / "rows"
    writer = cvpods.PeriodicWriter([cvpods.JSONWriter(str(path))], 2)
    under_us(tmp_path, cvpods.OptimizationHook(), hook, writer, dialect=dialect)
    assert isinstance(hook.latest, float if dialect == "cvpods" else tuple)
    assert [row["iteration"] for row in rows_of(path)] == [0, 1, 3, 5]


def test_a_module_that_imports_the_stack_changes_nothing(
    library: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    engine, events = library
    other = ModuleType("cvpods.other")
    other._CURRENT_STORAGE_STACK = events._CURRENT_STORAGE_STACK  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cvpods.other", other)

    class Reads(engine.HookBase):
        def after_step(self) -> None:
            *outer, storage = events._CURRENT_STORAGE_STACK
            assert storage is self.trainer.storage
            assert storage not in outer
            self.latest = events.get_event_storage().latest()["total_loss"]

    hook = Reads()
    under_us(tmp_path, engine.OptimizationHook(), hook)
    with events.EventStorage() as own:
        own.put_scalar("total_loss", 1.0)
        assert type(hook.latest) is type(own.latest()["total_loss"])


@pytest.mark.parametrize("module", ["yolof.events", "cvpack2.utils.dump.events"])
def test_a_copy_of_the_library_is_found_by_its_writers(
    module: str, tmp_path: Path, monkeypatch: Any
) -> None:
    events = load_as(monkeypatch, module, "cvpods_events_master")
    writer = events.JSONWriter(str(tmp_path / "rows"))
    under_us(tmp_path, cvpods.PeriodicWriter([writer], 2))
    assert [row["iteration"] for row in rows_of(tmp_path / "rows")] == [0, 1, 3, 5]


def test_a_loss_that_a_hook_divides_in_place_is_written_as_the_step_gave_it(
    library: Any, tmp_path: Path
) -> None:
    engine, events = library

    class Halves(engine.OptimizationHook):
        def after_step(self) -> None:
            self.trainer.step_outputs["loss_for_backward"] *= 0.5
            super().after_step()

    writer = engine.PeriodicWriter([events.JSONWriter(str(tmp_path / "rows"), 1)], 1)
    under_us(
        tmp_path, Halves(), TextLoggerHook(interval=1), writer, work_dir=str(tmp_path / "text")
    )
    rows = rows_of(tmp_path / "rows")
    for row in rows:
        assert row["total_loss"] == pytest.approx(row["loss_box"] + row["loss_cls"], rel=1e-5)
    (path,) = (tmp_path / "text").glob("*.log.json")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    logged = [line["loss"] for line in lines if "loss" in line]
    assert logged == pytest.approx([row["total_loss"] for row in rows], rel=1e-4)


@pytest.mark.parametrize("max_epochs", [2, 40], ids=["short", "long"])
def test_a_run_without_a_step_of_the_optimizer_logs_a_warning(
    tmp_path: Path, caplog: Any, max_epochs: int
) -> None:
    class Waits(cvpods.OptimizationHook):
        def after_step(self) -> None:
            self.trainer.step_outputs["loss_for_backward"].backward()

    with caplog.at_level("WARNING"):
        fit(tmp_path, Waits(), host=True, batches=BATCHES, max_epochs=max_epochs)
    (line,) = [r.getMessage() for r in caplog.records if "Waits" in r.getMessage()]
    iterations = min(max_epochs * BATCHES, 100)
    assert line == (
        f"Waits.after_step: the optimizer has not been stepped in {iterations} iterations, so "
        "nothing was trained; there trainer.inner_iter is 1"
    )
