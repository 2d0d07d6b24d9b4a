"""The list of callbacks is the user's: hooks change no place in it, and replace it never."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch.callbacks import Callback

from lightning_hooks import EMAHook, Hook, HookAdapter
from support.training import NoValidation, make_loader, make_trainer


class Noted(Callback):
    """Notes the events that it gets."""

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
    """Adds a callback to the list in its setup, as Lightning allows."""

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
