"""Hooks neither replace the user's list of callbacks nor change its order."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.profilers import SimpleProfiler

from lightning_hooks import CheckpointHook, EMAHook, Hook, HookAdapter
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch
from support.training import NoValidation, TinyModule, fit, make_loader, make_trainer


class Noted(Callback):
    """Records its events."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name, self.calls = name, calls

    @property
    def state_key(self) -> str:
        return self.name

    def setup(self, *args: Any, **kwargs: Any) -> None:
        self.calls.append(f"{self.name}.setup")

    def on_train_start(self, *args: Any) -> None:
        self.calls.append(f"{self.name}.on_train_start")


class Adds(Noted):
    """Adds a callback in ``setup``, as Lightning allows."""

    def setup(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        super().setup()
        if self.name == "first":
            trainer.callbacks.append(Noted("added", self.calls))


class Counts(Hook):
    """A stateful hook of the user's."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.calls.append("hook.setup")

    def on_train_start(self, *args: Any) -> None:
        self.calls.append("hook.on_train_start")


class NotesRuns(Hook):
    """Records the calls of ``before_run``."""

    def __init__(self, calls: list[str]) -> None:
        self.calls = calls

    def before_run(self, runner: Any) -> None:
        self.calls.append("before_run")


@pytest.mark.parametrize("hosted", [False, True])
def test_callbacks_that_others_add_in_setup_are_set_up_once_each(
    hosted: bool, tmp_path: Path
) -> None:
    calls: list[str] = []
    hook = Counts(calls)
    given = [HookAdapter([hook]) if hosted else hook, Adds("first", calls), Noted("last", calls)]
    trainer = make_trainer(tmp_path, *given)
    callbacks = trainer.callbacks  # type: ignore[attr-defined]
    for _ in range(2):
        trainer.fit_loop.max_epochs += 1  # type: ignore[operator]
        trainer.fit(NoValidation(), make_loader(1))
        assert trainer.callbacks is callbacks  # type: ignore[attr-defined]
        counts = [calls.count(f"{name}.setup") for name in ("first", "hook", "last", "added")]
        assert counts == [1, 1, 1, 1]
        assert calls.count("hook.on_train_start") == calls.count("added.on_train_start") == 1
        kept = [one for one in callbacks if any(one is own for own in given)]
        assert kept == given
        calls.clear()
        callbacks.remove(next(one for one in callbacks if getattr(one, "name", "") == "added"))


def test_a_hook_registered_in_before_run_gets_each_event_once(tmp_path: Path) -> None:
    calls: list[str] = []

    class Registers(Hook):
        def before_run(self, runner: Any) -> None:
            runner.register_hook(Counts(calls))

    make_trainer(tmp_path, HookAdapter([EMAHook(), Registers()])).fit(
        NoValidation(), make_loader(1)
    )
    assert calls == ["hook.setup", "hook.on_train_start"]


def names(trainer: Any) -> list[str]:
    return [getattr(one, "name", type(one).__name__) for one in trainer.callbacks]


class Looks(Noted):
    """Records the list of callbacks in ``setup``."""

    seen: list[Any]

    def setup(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        super().setup()
        self.seen = [*trainer.callbacks]


@pytest.mark.parametrize("hosted", [False, True])
def test_lightnings_walk_over_the_list_is_left_alone(hosted: bool, tmp_path: Path) -> None:
    calls: list[str] = []
    hook = Counts(calls)
    last, profiler = Looks("last", calls), SimpleProfiler()
    given = [Noted("first", calls), HookAdapter([hook]) if hosted else hook, last]
    trainer = make_trainer(tmp_path, *given, enable_checkpointing=True, profiler=profiler)
    before = [*trainer.callbacks]  # type: ignore[attr-defined]
    trainer.fit(NoValidation(), make_loader(1))
    assert last.seen[: len(before)] == before
    assert calls[:3] == ["first.setup", "hook.setup", "last.setup"]
    setups = {k: v for k, v in profiler.recorded_durations.items() if k.endswith(".setup")}
    assert {len(durations) for durations in setups.values()} == {1}
    order = ["first", "Driver", "HookAdapter" if hosted else "Counts", "last"]
    assert names(trainer) == [*order, *(["Counts"] if hosted else []), "ModelCheckpoint"]


class Replaces(Noted):
    """Replaces the Trainer's list of callbacks in ``setup``, without the driver."""

    def setup(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        super().setup()
        trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, Driver)]


@pytest.mark.parametrize("hosted", [False, True])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_list_is_replaced_while_callbacks_are_set_up(
    place: int, hosted: bool, tmp_path: Path
) -> None:
    calls: list[str] = []
    hook = Counts(calls)
    given: list[Callback] = [Noted("first", calls), HookAdapter([hook]) if hosted else hook]
    given.insert(place, Replaces("replaces", calls))
    trainer = make_trainer(tmp_path, *given)
    expected = [getattr(one, "name", type(one).__name__) for one in given]
    expected.insert(next(i for i, one in enumerate(given) if not isinstance(one, Noted)), "Driver")
    for epochs in (1, 2):
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(NoValidation(), make_loader(1))
        assert names(trainer) == [*expected, *(["Counts"] if hosted else [])]
        assert calls.count("hook.setup") == calls.count("hook.on_train_start") == 1
        calls.clear()


def test_the_list_is_replaced_between_the_setups_of_two_hooks(tmp_path: Path) -> None:
    calls: list[str] = []
    given = [HookAdapter([Counts(calls)]), Replaces("replaces", calls), NotesRuns(calls)]
    trainer = make_trainer(tmp_path, *given)
    for epochs in (1, 2):
        trainer.fit_loop.max_epochs = epochs
        trainer.fit(NoValidation(), make_loader(1))
        assert names(trainer) == ["Driver", "HookAdapter", "replaces", "NotesRuns", "Counts"]
        assert calls.count("before_run") == calls.count("hook.on_train_start") == 1
        calls.clear()


def test_the_lists_of_two_trainers_put_together(tmp_path: Path) -> None:
    calls: list[str] = []
    lists = []
    for hook in (NotesRuns(calls), HookAdapter([Counts(calls)])):
        trainer = make_trainer(tmp_path, hook)
        trainer.fit(NoValidation(), make_loader(1))
        lists += trainer.callbacks  # type: ignore[attr-defined]
    calls.clear()
    both = make_trainer(tmp_path, *lists)
    both.fit(NoValidation(), make_loader(1))
    assert names(both) == ["Driver", "NotesRuns", "HookAdapter", "Counts"]
    assert sorted(calls) == ["before_run", "hook.on_train_start", "hook.setup"]


def test_a_hosted_hook_in_front_of_the_driver_is_set_up_once(tmp_path: Path) -> None:
    calls: list[str] = []
    first = make_trainer(tmp_path, HookAdapter([Counts(calls)]))
    first.fit(NoValidation(), make_loader(1))
    calls.clear()
    turned = make_trainer(tmp_path, *reversed(first.callbacks))  # type: ignore[attr-defined]
    turned.fit(NoValidation(), make_loader(1))
    assert names(turned) == ["Driver", "HookAdapter", "Counts"]
    assert calls == ["hook.setup", "hook.on_train_start"]


def test_a_mixins_setup_is_called_once(tmp_path: Path) -> None:
    calls: list[str] = []

    class Mixin:
        def setup(self, *args: Any, **kwargs: Any) -> None:
            calls.append("setup")

    class Mixed(Mixin, Hook):  # type: ignore[misc]
        pass

    trainer = make_trainer(tmp_path, HookAdapter([Mixed()]))
    trainer.fit(NoValidation(), make_loader(1))
    assert calls == ["setup"]


def test_a_hook_put_in_front_of_all_callbacks_between_fits(tmp_path: Path) -> None:
    calls: list[str] = []
    trainer = make_trainer(tmp_path, Noted("first", calls), HookAdapter([Hook()]))
    trainer.fit(NoValidation(), make_loader(1))
    ema = EMAHook(warm_up=0)
    trainer.callbacks = [ema, *trainer.callbacks]  # type: ignore[attr-defined]
    trainer.fit_loop.max_epochs = 2
    trainer.fit(NoValidation(), make_loader(3))
    assert names(trainer) == ["Driver", "EMAHook", "first", "HookAdapter", "Hook"]
    assert ema.steps == 3
    trainer.save_checkpoint(tmp_path / "after.ckpt")  # has the average, because the patch is active
    trainer.validate(TinyModule(), make_loader(1), verbose=False)
    assert names(trainer) == ["Driver", "EMAHook", "first", "HookAdapter", "Hook"]


def test_a_hook_of_an_adapter_given_alone_saves_as_a_hook_given_alone(tmp_path: Path) -> None:
    hook = EMAHook()
    fit(tmp_path, HookAdapter([hook]), module=NoValidation)
    keys = []
    for one in (hook, EMAHook()):
        fit(tmp_path, one, module=NoValidation).save_checkpoint(tmp_path / "a.ckpt")
        keys.append([*torch.load(tmp_path / "a.ckpt", weights_only=False)["callbacks"]])
    assert keys[0] == keys[1]


def test_a_fit_after_an_error_in_setup(tmp_path: Path) -> None:
    calls: list[str] = []

    class Fails(Noted):
        def setup(self, *args: Any, **kwargs: Any) -> None:
            super().setup()
            if calls.count("fails.setup") == 1:
                raise RuntimeError("in setup")

    ema, module = EMAHook(warm_up=0), NoValidation()
    trainer = make_trainer(tmp_path, Noted("first", calls), ema, Fails("fails", calls))
    with pytest.raises(RuntimeError, match="in setup"):
        trainer.fit(module, make_loader(2))
    assert not any(isinstance(value, MethodPatch) for value in vars(module).values())
    trainer.fit(module, make_loader(2))
    assert names(trainer) == ["first", "Driver", "EMAHook", "fails"]
    assert ema.steps == 2


def test_copies_of_the_callbacks_train_in_another_trainer(tmp_path: Path) -> None:
    checkpoint = CheckpointHook(interval=1, out_dir=str(tmp_path))
    trainer = make_trainer(tmp_path, HookAdapter([checkpoint, EMAHook()]))
    trainer.fit(NoValidation(), make_loader(2))
    copied = copy.deepcopy(trainer.callbacks)  # type: ignore[attr-defined]
    other = make_trainer(tmp_path, *copied, max_epochs=2, enable_checkpointing=True)
    other.fit(NoValidation(), make_loader(2))
    assert names(other) == ["Driver", "HookAdapter", "CheckpointHook", "EMAHook"]
    assert next(one for one in copied if isinstance(one, EMAHook)).steps == 4
    assert not any(type(one) is ModelCheckpoint for one in other.callbacks)  # type: ignore[attr-defined]
    assert (tmp_path / "epoch_2.pth").exists()


class SetsUp(NoValidation):
    """A module that counts calls of ``setup``, whose argument is optional."""

    calls = 0

    def setup(self, stage: str | None = None) -> None:
        self.calls += 1


class CallsSetup(Callback):
    """Calls the module's ``setup``."""

    calls = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.calls += 1
        pl_module.setup()


def test_a_callback_may_call_the_modules_setup(tmp_path: Path) -> None:
    module, callback, last = SetsUp(), CallsSetup(), Noted("last", [])
    hooks = [EMAHook(), callback, last]
    make_trainer(tmp_path, *hooks, max_epochs=1).fit(module, make_loader(2))
    assert (callback.calls, module.calls) == (1, 2)
    assert last.calls == ["last.setup", "last.on_train_start"]


class Breaks(Callback):
    """Raises an error in the first ``setup``."""

    setups = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.setups += 1
        if self.setups == 1:
            raise RuntimeError("broken once")


class BreaksAgain(Breaks):
    """Fails in on_exception, too."""

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        raise RuntimeError("no cleaning")


def test_an_error_in_setup_that_nobody_cleans_up_leaves_the_next_fit_alone(tmp_path: Path) -> None:
    module, calls = TinyModule(), list[str]()
    trainer = make_trainer(tmp_path, Counts(calls), EMAHook(), BreaksAgain(), max_epochs=1)
    trainer.callbacks.insert(0, trainer.callbacks.pop())  # call its on_exception first
    trainer.callbacks.insert(2, trainer.callbacks.pop(0))  # call its setup after the first hook's
    with pytest.raises(RuntimeError):
        trainer.validate(module, make_loader(2), verbose=False)
    trainer.fit(module, make_loader(2), make_loader(2))
    assert trainer.global_step == 2
    assert calls[-1] == "hook.on_train_start"


class Opens(Hook):
    """Records ``setup`` and ``on_exception``."""

    events: list[str]

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self.events = ["setup"]

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.events.append("on_exception")


def test_a_hosted_hook_hears_of_an_error_in_a_later_setup(tmp_path: Path) -> None:
    hook = Opens()
    trainer = make_trainer(tmp_path, HookAdapter([hook]), Breaks(), max_epochs=1)
    with pytest.raises(RuntimeError):
        trainer.fit(NoValidation(), make_loader(2))
    assert hook.events == ["setup", "on_exception"]


class AddsHook(Callback):
    """Appends a hook to the callbacks in ``setup``."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if self.hook not in trainer.callbacks:
            trainer.callbacks.append(self.hook)


def test_a_hook_added_in_setup_is_set_up(tmp_path: Path) -> None:
    hook = Opens()
    make_trainer(tmp_path, EMAHook(), AddsHook(hook), max_epochs=1).fit(
        NoValidation(), make_loader(2)
    )
    assert hook.events == ["setup"]


class Finds(Callback):
    """Records the Trainer's checkpoint callback in setup."""

    found: Any = None

    def setup(self, trainer: Any, *args: Any, **kwargs: Any) -> None:
        self.found = trainer.checkpoint_callback


def test_a_checkpoint_hook_in_an_adapter_is_found_in_the_setup_of_others(tmp_path: Path) -> None:
    hook, callback = CheckpointHook(interval=1), Finds()
    make_trainer(tmp_path, HookAdapter([hook]), callback).fit(NoValidation(), make_loader(1))
    assert callback.found is hook


@pytest.mark.parametrize("hosted", [False, True])
def test_a_setup_wrapped_by_others_joins_too(
    hosted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, own = list[str](), EMAHook.setup

    def wrapped(*args: Any, **kwargs: Any) -> None:
        calls.append("wrapped")
        own(*args, **kwargs)

    monkeypatch.setattr(EMAHook, "setup", wrapped)
    hook = EMAHook(warm_up=0)
    given = HookAdapter([hook]) if hosted else hook
    make_trainer(tmp_path, given).fit(NoValidation(), make_loader(2))
    assert calls[0] == "wrapped"
    assert hook.steps == 2
