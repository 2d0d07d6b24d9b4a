"""Tests for all dialects: detection, several dialects in a Trainer, errors, states, the table."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import HookAdapter, IterTimerHook, dialects
from lightning_hooks.dialects import DIALECTS, cvpods, detect, mmengine, pet, pointrix
from lightning_hooks.dialects import detectron2 as d2
from lightning_hooks.engine.points import STAGES
from support.dialect_hooks import (
    cvpods_style,
    detectron2_style,
    mmengine_style,
    pet_style,
    pointrix_style,
)
from support.probes import Recorder
from support.processes import read_ranks, run_job
from support.training import TinyModule, fit, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*have no .val_dataloader")
TRACES = {
    "mmengine": mmengine_style.Trace,
    "detectron2": detectron2_style.Trace,
    "cvpods": cvpods_style.Trace,
    "pet": pet_style.Trace,
    "pointrix": pointrix_style.Trace,
}


@pytest.mark.parametrize("name", TRACES)
def test_a_base_class_tells_the_dialect(name: str) -> None:
    assert detect(TRACES[name]()) == name
    assert detect(TRACES[name](), name) == name


def test_points_and_arguments_tell_the_dialect() -> None:
    class Mmengine:
        def before_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None
        ) -> None: ...

    class MmengineTrain:
        def before_train(self, runner: Any) -> None: ...

    class Detectron2:
        def after_step(self) -> None: ...
        def after_backward(self) -> None: ...

    class Pet:
        def after_step(self, storage: Any) -> None: ...

    class PetAny:
        def before_step(self, **kwargs: Any) -> None: ...

    class Pointrix:
        def after_train_iter(self, trainner: Any) -> None: ...

    found = [detect(cls()) for cls in (Mmengine, MmengineTrain, Detectron2, Pet, PetAny, Pointrix)]
    assert found == ["mmengine", "mmengine", "detectron2", "pet", "pet", "pointrix"]


def test_an_ambiguous_dialect_raises_with_the_candidates() -> None:
    class Steps:
        def before_step(self) -> None: ...

    class Vals:
        def before_val(self, trainer: Any) -> None: ...

    class Nothing:
        pass

    with pytest.raises(
        ValueError,
        match=r"\(before_step\): it may be detectron2, cvpods, cvpods_master, pet; write",
    ):
        detect(Steps())
    with pytest.raises(ValueError, match="it may be mmengine, pointrix; write"):
        detect(Vals())
    with pytest.raises(TypeError, match="none of the points of a hook"):
        detect(Nothing())
    with pytest.raises(
        TypeError, match=r"no point of the dialect 'pointrix', only .'before_step'."
    ):
        detect(Steps(), "pointrix")
    with pytest.raises(TypeError, match="pass an object: Steps"):
        detect(Steps)
    with pytest.raises(ValueError, match="did you mean 'detectron2'"):
        detect(Steps(), "detectron")


def test_native_hooks_are_themselves_in_an_adapter_of_any_dialect(tmp_path: Path) -> None:
    recorder, hook = Recorder(), cvpods_style.Trace()
    adapter = HookAdapter([recorder, dict(type="IterTimerHook"), hook], dialect="cvpods")
    make_trainer(tmp_path, adapter).fit(TinyModule(), make_loader(2))
    assert recorder.points.count("after_train_iter") == 2
    assert len(hook.calls) == 6


def test_all_dialects_in_one_trainer(tmp_path: Path) -> None:
    hooks = {name: cls() for name, cls in TRACES.items()}
    recorder = Recorder()
    adapters = (
        HookAdapter([hooks["mmengine"], hooks["pet"], recorder]),
        HookAdapter([hooks["detectron2"], hooks["cvpods"], hooks["pointrix"]]),
    )
    trainer = make_trainer(tmp_path, *adapters, max_epochs=2)
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    for name, hook in hooks.items():
        alone = TRACES[name]()
        module = TinyModule()
        trainer = make_trainer(tmp_path, HookAdapter([alone]), max_epochs=2)
        trainer.fit(module, make_loader(2), make_loader(1))
        assert hook.calls == alone.calls, name
    assert recorder.points.count("after_train_iter") == 4


def test_priorities_count_where_the_dialect_has_them() -> None:
    class Late(mmengine.Hook):
        priority = "VERY_LOW"

    class Unread(pointrix.Hook):
        priority = "VERY_LOW"  # pointrix never reads a priority

    hooks = [Late(), Unread(), (d2.HookBase(), "HIGH"), cvpods.EvalHook(1, dict), pet.TrainHook()]
    names = [type(hook).__name__ for hook in HookAdapter(hooks).hooks]
    assert names == ["HookBase", "Unread", "EvalHook", "TrainHook", "Late"]


@pytest.mark.parametrize("name", TRACES)
def test_a_hook_may_stop_the_run_and_sees_the_others(tmp_path: Path, name: str) -> None:
    point = "after_step" if name in ("detectron2", "cvpods", "pet") else "after_train_iter"
    found = []

    def stop(self: Any, *args: Any, **kwargs: Any) -> None:
        facade = adapter._of_other_dialects()[0].facade  # Pet has no facade
        found.append([type(hook).__name__ for hook in facade.hooks])
        facade.should_stop = True

    hook, recorder = type("Stops", (TRACES[name],), {point: stop})(), Recorder()
    adapter = HookAdapter([hook, recorder])
    make_trainer(tmp_path, adapter).fit(TinyModule(), make_loader(3))
    assert found == [["Stops", "Recorder"]]
    assert recorder.points.count("after_train_iter") == 1


@pytest.mark.parametrize("name", TRACES)
def test_an_error_of_any_dialect_names_hook_point_and_place(tmp_path: Path, name: str) -> None:
    point = "after_step" if name in ("detectron2", "cvpods", "pet") else "after_train_iter"

    def fail(self: Any, *args: Any, **kwargs: Any) -> None:
        raise StopIteration("enough")

    bad = type("Bad", (TRACES[name],), {point: fail})()
    trainer = make_trainer(tmp_path, HookAdapter([bad]))
    with pytest.raises(RuntimeError, match="a hook raised StopIteration: enough") as caught:
        trainer.fit(TinyModule(), make_loader(2))
    assert caught.value.__notes__ == [f"in hook Bad.{point} (epoch 0, iter 0)"]


@pytest.mark.parametrize("name", TRACES)
def test_hooks_change_nothing_of_the_training(tmp_path: Path, name: str) -> None:
    def weights(*hooks: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = TinyModule()
        trainer = make_trainer(tmp_path, HookAdapter(list(hooks)), max_epochs=2)
        trainer.fit(module, make_loader(4, shuffle=True))
        return [p.detach() for p in module.parameters()]

    assert all(map(torch.equal, weights(TRACES[name]()), weights()))


@pytest.mark.parametrize("name", ["detectron2", "cvpods", "pet"])
def test_an_iteration_based_run(tmp_path: Path, name: str) -> None:
    hook = TRACES[name]()
    adapter = HookAdapter([hook], by_epoch=False)
    make_trainer(tmp_path, adapter, max_steps=5).fit(TinyModule(), make_loader(2))
    first = 1 if name == "pet" else 0
    after = [call[1] for call in hook.calls if call[0] == "after_step"]
    assert after == [*range(first, first + 5)]
    assert hook.calls[-1][:2] == ("after_train", 5 + first)


@pytest.mark.parametrize("name", ["mmengine", "pointrix"])
def test_validation_in_a_run_by_iterations(tmp_path: Path, name: str) -> None:
    hook = TRACES[name]()
    trainer = make_trainer(
        tmp_path,
        HookAdapter([hook], by_epoch=False),
        max_steps=4,
        val_check_interval=2,
        num_sanity_val_steps=1,
    )
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    points = [call[0] for call in hook.calls]
    start = points.index("before_val")
    val = ["before_val", "before_val_iter", "after_val_iter", "after_val"]
    if name == "mmengine":
        val[1:1], val[-1:-1] = ["before_val_epoch"], ["after_val_epoch"]
    assert points[start : start + len(val)] == val
    assert points.count("before_val") == points.count("after_val") == 2
    assert points[start - 1] == "after_train_iter"


class SaveAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == self.step:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "a.ckpt")


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("name", TRACES)
def test_a_run_goes_on_from_the_middle_of_an_epoch(tmp_path: Path, name: str) -> None:
    whole, rest = TRACES[name](), TRACES[name]()
    make_trainer(tmp_path, HookAdapter([whole]), max_epochs=2).fit(TinyModule(), make_loader(3))
    first = make_trainer(tmp_path, HookAdapter([TRACES[name]()]), SaveAt(2), max_epochs=2)
    first.fit(TinyModule(), make_loader(3))
    trainer = make_trainer(tmp_path, HookAdapter([rest]), max_epochs=2)
    trainer.fit(TinyModule(), make_loader(3), ckpt_path=tmp_path / "a.ckpt")
    # all iterations but the first two, and nothing twice
    after = "after_step" if name in ("detectron2", "cvpods", "pet") else "after_train_iter"
    steps = [call for call in whole.calls if call[0] == after]
    assert [call for call in rest.calls if call[0] == after] == steps[2:]
    assert rest.calls[-1] == whole.calls[-1]


def test_the_table_of_the_docs_is_that_of_the_code() -> None:
    text = dialects.__doc__ or ""
    table = text[text.index("mmcv's point") : text.index("``after_train`` of")]
    rows = {line.split()[0]: line for line in table.splitlines() if line.split()}
    for stage in STAGES:
        for dialect in DIALECTS.values():
            for point in dialect.points.get(stage, ()):
                assert point in rows[stage] or point in table
    for dialect in DIALECTS.values():
        assert set(dialect.points) <= {*STAGES, "before_epoch", "after_epoch"}
        for point in dialect.further:
            assert point in table


def test_two_ranks_call_all_and_write_once(tmp_path: Path) -> None:
    run_job("dialects", tmp_path)
    assert (tmp_path / "epoch_1.pth").is_file()
    assert len([*tmp_path.glob("*.log.json")]) == 1
    one, two = read_ranks(tmp_path)
    assert one["own"] != two["own"]  # each rank logs its own losses
    assert [one["logged"], two["logged"]] == pytest.approx([one["own"], two["own"]])
    for seen in (one, two):  # no step waits for the other rank
        own = pytest.approx(seen["own"])
        assert seen["detectron2"] == [own, 3]
        assert seen["cvpods"] == seen["pet"] == own
    traces = {
        name: calls for name, calls in one.items() if name.startswith("support.dialect_hooks")
    }
    assert len(traces) == 2
    assert all(two[name] == calls for name, calls in traces.items())
    assert {calls[-1][0] for calls in traces.values()} == {"after_run"}
    rows = [json.loads(line) for line in (tmp_path / "metrics.json").read_text().splitlines()]
    assert len(rows) == 2
    assert rows[-1]["train_loss"] == pytest.approx(rows[-1]["total_loss"])


def test_a_hook_writes_into_a_new_work_dir(tmp_path: Path) -> None:
    """mmcv's runner also creates the folder."""

    class Notes:
        def before_run(self, runner: Any) -> None:
            Path(runner.work_dir, "notes.txt").write_text("begun")

        def after_run(self, runner: Any) -> None:
            pass

    folder = tmp_path / "new" / "run"
    adapter = HookAdapter([Notes()], dialect="mmcv", work_dir=str(folder))
    make_trainer(tmp_path, adapter).fit(TinyModule(), make_loader(1))
    assert (folder / "notes.txt").read_text() == "begun"
    make_trainer(tmp_path / "other", IterTimerHook()).fit(TinyModule(), make_loader(1))
    assert not (tmp_path / "other").exists()  # this package's hooks create their folders


def test_a_hook_registers_another_of_its_dialect(tmp_path: Path) -> None:
    calls: list[Any] = []

    class Late(mmengine.Hook):
        def before_train(self, runner: Any) -> None:
            calls.append("before_train")

        def after_train_iter(
            self, runner: Any, batch_idx: int, data_batch: Any = None, outputs: Any = None
        ) -> None:
            calls.append(batch_idx)

    class Starts(mmengine.Hook):
        def before_run(self, runner: Any) -> None:
            runner.register_hook(Late(), "VERY_LOW")

    class LateStep(d2.HookBase):
        def after_step(self) -> None:
            calls.append(("step", self.trainer.iter))

    class StartsSteps(d2.HookBase):
        def before_step(self) -> None:
            if self.trainer.iter == 1:
                self.trainer.register_hooks([LateStep(), None])

    adapter = HookAdapter([Starts(), StartsSteps()])
    make_trainer(tmp_path, adapter, max_epochs=1).fit(TinyModule(), make_loader(3))
    assert calls == ["before_train", 0, ("step", 1), 1, ("step", 2), 2]


def test_a_hook_registered_last_in_before_train_repeats_no_call(tmp_path: Path) -> None:
    calls: list[str] = []

    class Late(mmengine.Hook):
        def before_train(self, runner: Any) -> None:
            calls.append("late")  # the next point is its first

        def after_train_epoch(self, runner: Any) -> None:
            calls.append("epoch of late")

    class Starts(mmengine.Hook):
        def before_train(self, runner: Any) -> None:
            calls.append("before_train")
            runner.register_hook(Late(), "LOWEST")

    make_trainer(tmp_path, HookAdapter([Starts()])).fit(TinyModule(), make_loader(1))
    assert calls == ["before_train", "epoch of late"]


@pytest.mark.parametrize(
    ("base", "point"),
    [
        (d2.HookBase, "after_step"),
        (cvpods.HookBase, "after_step"),
        (pet.TrainHook, "after_step"),
        (pointrix.Hook, "after_train_iter"),
        (mmengine.Hook, "after_train_iter"),
    ],
)
def test_a_resumed_run_does_not_keep_the_loaded_file_in_memory(
    base: Any, point: str, tmp_path: Path
) -> None:
    loaded: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    class Keeps(TinyModule):
        def on_save_checkpoint(self, checkpoint: Any) -> None:
            checkpoint["large"] = torch.zeros(1)

        def on_load_checkpoint(self, checkpoint: Any) -> None:
            loaded.append(weakref.ref(checkpoint["large"]))

    def note(self: Any, *args: Any, **kwargs: Any) -> None:
        alive.extend(one() is not None for one in loaded)

    hook = type("Notes", (base,), {point: note})
    fit(tmp_path, hook(), host=True, module=Keeps).save_checkpoint(tmp_path / "a.ckpt")
    fit(tmp_path, hook(), host=True, module=Keeps, max_epochs=3, ckpt_path=tmp_path / "a.ckpt")
    assert alive
    assert not any(alive)


def test_a_fast_dev_run_overwrites_no_checkpoint_and_begins_no_log(tmp_path: Path) -> None:
    class Saves(mmengine.Hook):
        def after_train(self, runner: Any) -> None:
            runner.save_checkpoint(str(tmp_path), "last.pth")

    checkpointer = d2.Checkpointer(torch.nn.Linear(1, 1), str(tmp_path))
    hooks = [
        d2.EvalHook(1, lambda: {"AP": 1.0}),
        d2.PeriodicCheckpointer(checkpointer, 1),
        d2.BestCheckpointer(1, checkpointer, "AP"),
        pointrix.LogHook(1),
        pointrix.CheckPointHook(1),
        Saves(),
    ]
    fit(tmp_path, *hooks, host=True, fast_dev_run=True)
    assert [path.name for path in tmp_path.iterdir()] == []
    fit(tmp_path, *hooks, host=True, max_epochs=1, batches=1)
    names = {path.name.partition(".")[0] for path in tmp_path.iterdir()}
    assert {"model_final", "model_best", "chkpnt1", "last", "events"} <= names
