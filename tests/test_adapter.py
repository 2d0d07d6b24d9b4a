"""HookAdapter: accepted hooks, the order of calls, and refusals before training."""

from __future__ import annotations

import pickle
import sys
import traceback
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    HOOKS,
    BestCheckpointHook,
    CheckpointHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    TextLoggerHook,
    newest_valid,
)
from lightning_hooks.dialects import detect
from lightning_hooks.engine.driver.driver import Driver
from support import training
from support.golden import recorded
from support.probes import Recorder
from support.training import TinyModule, make_loader, make_trainer

GOLDEN = recorded("hook_info")
pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


class Old:
    """A hook without a base."""

    def __init__(self, name: str = "old", calls: list[str] | None = None) -> None:
        self.name, self.calls = name, calls

    def before_run(self, runner: Any) -> None:
        if self.calls is not None:
            self.calls.append(self.name)


fit = partial(training.fit, batches=2)


# -- order ---------------------------------------------------------------------------------


def test_hooks_come_as_objects_pairs_and_configs_in_priority_order(tmp_path: Path) -> None:
    calls: list[str] = []
    adapter = HookAdapter(
        [
            Old("normal 1", calls),
            (Old("lowest", calls), "LOWEST"),
            (Old("49", calls), 49),
            {"type": "IterTimerHook", "priority": "very_low"},
            (Old("highest", calls), "highest"),
            Old("normal 2", calls),
        ]
    )
    adapter.register_hook(Old("later", calls), "ABOVE_NORMAL")
    fit(tmp_path, adapter)
    assert calls == ["highest", "later", "49", "normal 1", "normal 2", "lowest"]
    assert [type(h).__name__ for h in adapter.hooks][-2] == "IterTimerHook"


def test_one_order_over_adapters_and_single_hooks(tmp_path: Path) -> None:
    calls: list[str] = []

    class Early(Hook):
        priority = "VERY_HIGH"

        def before_run(self, runner: Any) -> None:
            calls.append("early")

    fit(
        tmp_path,
        HookAdapter([(Old("late", calls), "LOW"), (Old("tie 1", calls), "HIGH")]),
        HookAdapter(Old("normal", calls)),
        HookAdapter([(Old("tie 2", calls), "HIGH")]),
        Early(),
    )
    assert calls == ["early", "tie 1", "tie 2", "normal", "late"]


@pytest.mark.parametrize("case", GOLDEN["cases"])
def test_hook_info_is_mmcvs_table(case: str) -> None:
    golden = GOLDEN["cases"][case]
    items = [_item(spec, priority) for spec, priority in golden["hooks"]]
    assert HookAdapter(items).get_hook_info().split("\n") == golden["info"]


def _item(spec: dict[str, Any], priority: Any) -> Any:
    if "own" not in spec:
        if spec["type"] not in HOOKS:
            pytest.skip(f"{spec['type']} is not ported yet")
        return {**spec, "priority": priority}
    body = {name: lambda self, runner: None for name in spec["overrides"]}
    return type(spec["own"], (Hook,), body)(), priority


@pytest.mark.parametrize("mmcv", [False, True])
@pytest.mark.parametrize("host", [False, True])
def test_hooks_are_one_line_at_the_start(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch, *, host: bool, mmcv: bool
) -> None:
    monkeypatch.delitem(sys.modules, "mmcv", raising=False)
    if mmcv:
        monkeypatch.setitem(sys.modules, "mmcv", ModuleType("mmcv"))
    old = Old() if host else HookAdapter([Old()])
    with caplog.at_level("INFO", "lightning_hooks"):
        fit(tmp_path, old, IterTimerHook(), EMAHook(), host=host)
    assert "3 hooks, called in this order: Old, EMAHook, IterTimerHook" in caplog.messages
    assert not any("before_run:" in message for message in caplog.messages)


def lines_of(caplog: Any) -> list[str]:
    """Return the messages of this package's logger."""
    return [one.getMessage() for one in caplog.records if one.name == "lightning_hooks"]


@pytest.mark.parametrize("host", [False, True])
def test_a_run_begins_with_one_line_and_ends_with_the_place_of_its_files(
    tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch, *, host: bool
) -> None:
    monkeypatch.delitem(sys.modules, "mmcv", raising=False)
    saving = CheckpointHook(save_best="val_loss")
    hooks = [EMAHook(momentum=0.5, warm_up=1), saving, TextLoggerHook(interval=1)]
    with caplog.at_level("INFO", "lightning_hooks"):
        fit(tmp_path, *hooks, val=1, host=host, enable_checkpointing=not host, max_epochs=1)
    order = "3 hooks, called in this order: EMAHook, CheckpointHook, TextLoggerHook"
    first, *epoch, last = lines_of(caplog)
    assert first == f"{order}; files in {tmp_path}"
    said = [
        line.partition(" ")[0] for line in epoch if not line.startswith(("Epoch [1]", "Epoch("))
    ]
    assert said == ["Best", "Saving"]
    assert last == f"the files of this run are in {tmp_path}"


def test_a_work_dir_may_be_a_url_of_a_file(tmp_path: Path) -> None:
    hooks = HookAdapter([CheckpointHook(), TextLoggerHook()], work_dir=f"file://{tmp_path}/run")
    fit(tmp_path, hooks, max_epochs=1)
    assert {"epoch_1.pth", "checkpoints.json"} <= {
        path.name for path in (tmp_path / "run").iterdir()
    }
    assert newest_valid(f"file://{tmp_path}/run") == str(tmp_path / "run" / "epoch_1.pth")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_checkpoints_elsewhere_are_named_in_the_first_line(tmp_path: Path, caplog: Any) -> None:
    hooks = [
        BestCheckpointHook("val_loss", out_dir=str(tmp_path / "best")),
        CheckpointHook(out_dir=f"file://{tmp_path}/all"),
        CheckpointHook(filename_tmpl="same_{}.pth"),
    ]
    with caplog.at_level("INFO", "lightning_hooks"):
        fit(tmp_path / "run", *hooks, val=1, max_epochs=1)
    where = f"{tmp_path}/run, checkpoints in {tmp_path}/all/run, {tmp_path}/best/run"
    lines = lines_of(caplog)
    assert lines[0].endswith(f"BestCheckpointHook; files in {where}")
    assert lines[-1] == f"the files of this run are in {where}"
    assert not any("will be saved" in line for line in lines)
    found = {path.relative_to(tmp_path).parts[0] for path in tmp_path.glob("*/run/*.pth")}
    assert found == {"best", "all"}


def test_a_run_without_files_names_no_place(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level("INFO", "lightning_hooks"):
        fit(tmp_path, IterTimerHook(), max_epochs=1)
        fit(tmp_path, CheckpointHook(), fast_dev_run=True)
    dry = "fast_dev_run: nothing is written by CheckpointHook"
    assert lines_of(caplog) == [
        "1 hook: IterTimerHook",
        f"1 hook: CheckpointHook; {dry}",
    ]


def test_an_adapter_prints_the_table() -> None:
    adapter = HookAdapter([IterTimerHook(), EMAHook()])
    assert str(adapter) == repr(adapter) == adapter.get_hook_info()
    assert "before_run:" in str(adapter)


def test_callbacks_events_that_are_not_used_cost_nothing_and_come_back(tmp_path: Path) -> None:
    during: dict[str, Any] = {}

    class Look(Callback):
        def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
            ours = [c for c in trainer.callbacks if isinstance(c, (Driver, Hook, HookAdapter))]
            during.update(
                {type(c).__name__: [k for k, v in vars(c).items() if v is None] for c in ours}
            )

    class Quiet(Hook):
        _reads_step = False

        def before_run(self, runner: Any) -> None: ...

    hook = Quiet()
    fit(tmp_path, hook, Look())
    assert {"on_train_batch_start", "on_train_batch_end"} <= set(during["Driver"])
    assert {"on_train_batch_start", "on_train_batch_end"} <= set(during["Quiet"])
    assert callable(hook.on_train_batch_start)


def test_a_subclass_hears_every_event(tmp_path: Path) -> None:
    heard = []

    class MethodPatch(HookAdapter):
        def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
            heard.append("after backward")

        def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
            heard.append("validation")

    trainer = make_trainer(tmp_path, MethodPatch([Old()]), num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    assert heard == ["after backward", "after backward", "validation"]


def test_pickle(tmp_path: Path) -> None:
    adapter = HookAdapter([(Old(), 49), IterTimerHook()])
    copy = pickle.loads(pickle.dumps(adapter))
    assert [h.priority for h in copy.hooks] == [49, 70]
    fit(tmp_path, copy)


# -- errors inside hooks -------------------------------------------------------------------


class MyError(Exception):
    pass


@pytest.mark.parametrize("point", Hook.stages)
def test_an_error_in_a_hook_names_hook_point_epoch_and_iter(point: str, tmp_path: Path) -> None:
    def fail(self: Any, runner: Any) -> None:
        raise MyError("broken")

    hook = type("Failing", (Recorder,), {point: fail})()
    trainer = make_trainer(tmp_path, hook, num_sanity_val_steps=0)
    with pytest.raises(MyError, match=r"^broken") as caught:
        trainer.fit(TinyModule(), make_loader(2), make_loader(1))
    done = {"after_train_epoch": 2, "after_run": 2, **dict.fromkeys(Hook.stages[5:9], 2)}
    epoch = 1 if point == "after_run" or "val" in point else 0
    assert caught.value.__notes__ == [
        f"in hook Failing.{point} (epoch {epoch}, iter {done.get(point, 0)})"
    ]
    frames = [frame.name for frame in traceback.extract_tb(caught.tb)]
    assert frames[-1] == "fail"


# -- refused before training ---------------------------------------------------------------


def test_unknown_type_says_what_was_meant() -> None:
    with pytest.raises(ValueError, match="did you mean 'IterTimerHook'"):
        HookAdapter([{"type": "ItrTimerHook"}])


def test_a_config_and_a_priority_of_a_foreign_hook_fail_as_in_mmcv() -> None:
    with pytest.raises(TypeError, match=r"write HookAdapter\(\[{'type': 'EMAHook'}\]\)"):
        HookAdapter().register_hook({"type": "EMAHook"}, priority=49)
    foreign = type("Foreign", (), {"priority": "LOW", "before_run": print})()
    with pytest.raises(ValueError, match=r'"priority" is a reserved .* write \(hook, priority\)'):
        HookAdapter((foreign, 10))


def test_unknown_priority_says_what_was_meant() -> None:
    with pytest.raises(ValueError, match="did you mean 'VERY_HIGH'"):
        HookAdapter([(Old(), "VERRY_HIGH")])
    with pytest.raises(ValueError, match="between 0 and 100, got 101"):
        HookAdapter([(Old(), 101)])


def test_object_without_points() -> None:
    with pytest.raises(TypeError, match="object object has none of the points"):
        HookAdapter([object()])
    with pytest.raises(TypeError, match=r"Old is a class; pass an object: Old\(\.\.\.\)"):
        HookAdapter([Old])


def test_the_same_object_twice(tmp_path: Path) -> None:
    hook = Old()
    with pytest.raises(ValueError, match="the same Old object is given twice"):
        HookAdapter([hook, hook])
    with pytest.raises(ValueError, match="the same Old object is given twice"):
        fit(tmp_path, HookAdapter([hook]), HookAdapter([hook]))
    native = Recorder()
    with pytest.raises(ValueError, match=r"the same Recorder object is given twice"):
        fit(tmp_path, native, HookAdapter([native]))


def test_a_dialect_that_cannot_be_told() -> None:
    class Step:
        def before_step(self) -> None: ...

    with pytest.raises(ValueError, match=r"cannot detect the dialect of Step .*detectron2.*cvpods"):
        HookAdapter([Step()])
    HookAdapter([Step()], dialect="cvpods")
    with pytest.raises(ValueError, match="did you mean 'mmcv'"):
        HookAdapter([Old()], dialect="mmvc")
    with pytest.raises(TypeError, match="no point of the dialect 'mmcv'"):
        HookAdapter([Step()], dialect="mmcv")


def test_detect_by_base_and_by_methods() -> None:
    assert detect(Old()) == "mmcv"
    assert detect(Recorder()) == "mmcv"

    class MmgenPoint(Old):
        def before_fetch_train_data(self, runner: Any) -> None: ...  # mmgen's own, never called

    assert detect(MmgenPoint()) == "mmcv"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("by_epoch", 1),
        ("meta", [1]),
        ("model", "module"),
        ("work_dir", 3),
        ("owns_backward", "yes"),
    ],
)
def test_bad_arguments_name_themselves(argument: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{argument} must be"):
        HookAdapter([Old()], **{argument: value})


@pytest.mark.parametrize(
    ("argument", "values"),
    [("by_epoch", (True, False)), ("work_dir", ("a", "b")), ("meta", ({"a": 1}, {"a": 2}))],
)
def test_two_adapters_that_differ_are_refused(
    argument: str, values: tuple[Any, Any], tmp_path: Path
) -> None:
    adapters = [HookAdapter([Old()], **{argument: value}) for value in values]
    with pytest.raises(ValueError, match=f"differ in {argument}"):
        fit(tmp_path, *adapters)


def test_the_callers_config_is_not_changed() -> None:
    config = {"type": "IterTimerHook", "priority": 5}
    HookAdapter([config])
    assert config == {"type": "IterTimerHook", "priority": 5}


def test_an_error_in_a_constructor_names_the_config() -> None:
    with pytest.raises(TypeError) as caught:
        HookAdapter([{"type": "IterTimerHook", "interval": 3}])
    assert "while building IterTimerHook" in caught.value.__notes__[0]


def test_an_adapter_is_a_hook_whose_own_points_are_not_called(tmp_path: Path) -> None:
    calls: list[str] = []

    class Notes(Hook):
        def before_run(self, runner: Any) -> None:
            calls.append(type(self).__name__)

    class Adapter(HookAdapter):
        def before_run(self, runner: Any) -> None:
            calls.append("Adapter")

    adapter = Adapter([Notes(), Adapter([Notes()])], dialect="auto", work_dir=str(tmp_path))
    fit(tmp_path, adapter)
    assert isinstance(adapter, Hook)
    assert calls == ["Notes", "Notes"]
    assert "Adapter" not in adapter.get_hook_info()
    assert HookAdapter([Notes()], work_dir=str(tmp_path)).state_key == "HookAdapter"


@pytest.mark.parametrize("is_nested", [True, False])
def test_states_of_hooks_move_in_and_out_of_an_inner_adapter(
    tmp_path: Path, is_nested: bool
) -> None:
    class Counts:
        total = 0

        def after_train_iter(self, runner: Any) -> None:
            self.total += 1

        def state_dict(self) -> dict[str, Any]:
            return {"total": self.total}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.total = state_dict["total"]

    class Native(Counts, Hook):
        pass

    def adapter(hooks: list[Any], *, nested: bool) -> HookAdapter:
        inner = HookAdapter(hooks)
        return HookAdapter([inner]) if nested else inner

    first = fit(tmp_path, adapter([Counts(), Native()], nested=is_nested))
    first.save_checkpoint(tmp_path / "one.ckpt")
    resumed = [Counts(), Native()]
    trainer = make_trainer(
        tmp_path, callbacks=[adapter(resumed, nested=not is_nested)], max_epochs=2
    )
    trainer.fit(TinyModule(), make_loader(2), ckpt_path=str(tmp_path / "one.ckpt"))
    assert [hook.total for hook in resumed] == [4, 4]
