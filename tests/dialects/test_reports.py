"""Reports: hooks without a call, missing attributes, skipped steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks.dialects import cvpods, mmengine, pet, pointrix
from lightning_hooks.dialects import detectron2 as d2
from support.training import NoValidation, fit

BASES: dict[str, Any] = {
    "detectron2": d2.HookBase,
    "cvpods": cvpods.HookBase,
    "pet": pet.TrainHook,
    "pointrix": pointrix.Hook,
    "mmengine": mmengine.Hook,
}


def warnings_of(caplog: Any, folder: Path, *hooks: Any, **options: Any) -> list[str]:
    with caplog.at_level("WARNING"):
        fit(folder, *hooks, module=NoValidation, batches=1, host=True, **options)
    return [record.getMessage() for record in caplog.records if "Hook" in record.getMessage()]


def does_nothing(self: Any, *args: Any, **kwargs: Any) -> None:
    pass


@pytest.mark.parametrize("library", BASES)
def test_a_hook_without_a_point_is_named(library: str, tmp_path: Path, caplog: Any) -> None:
    point = "after_train_iter" if library in ("mmengine", "pointrix") else "after_step"
    hook = type("MyHook", (BASES[library],), {f"{point}s": does_nothing})()
    misspelt, unused = warnings_of(caplog, tmp_path, hook)
    assert misspelt == f"MyHook.{point}s() is called at no point; did you mean {point}()?"
    assert unused.startswith(f"MyHook, a hook of {library}, was never called: it has none of the")


@pytest.mark.parametrize("library", ["pointrix", "mmengine"])
def test_a_hook_whose_points_never_come_is_named(library: str, tmp_path: Path, caplog: Any) -> None:
    own = {"before_val": does_nothing, "after_val_iter": does_nothing}
    hook = type("MyHook", (BASES[library],), own)()
    reason = "the run came to none of its points (after_val_iter, before_val)"
    expected = f"MyHook, a hook of {library}, was never called: {reason}"
    assert warnings_of(caplog, tmp_path, hook) == [expected]


def test_a_point_that_the_library_does_not_have_is_not_called(tmp_path: Path, caplog: Any) -> None:
    calls: list[str] = []

    class MyHook(cvpods.HookBase):
        def after_backward(self) -> None:  # detectron2's
            calls.append("after_backward")

    (line,) = warnings_of(caplog, tmp_path, MyHook())
    assert "MyHook, a hook of cvpods, was never called: it has none of the points (" in line
    assert calls == []


@pytest.mark.parametrize("library", BASES)
def test_a_called_hook_is_not_reported(library: str, tmp_path: Path, caplog: Any) -> None:
    base = BASES[library]
    called = type("MyHook", (base,), {"before_train": does_nothing})()
    waits = (
        type("WaitHook", (base,), {"exception": does_nothing})()
        if library == "pointrix"
        else called
    )
    assert warnings_of(caplog, tmp_path, *{called, waits}) == []


WITH_TRAINER = {
    "detectron2": "after_step",
    "cvpods": "after_step",
    "pointrix": "after_train_iter",
    "mmengine": "after_train_iter",
}
"""The point after a step in libraries whose hooks get a trainer."""


@pytest.mark.parametrize("library", WITH_TRAINER)
def test_a_missing_attribute_raises_with_a_correction(library: str, tmp_path: Path) -> None:
    point = WITH_TRAINER[library]

    def reads(self: Any, *args: Any, **kwargs: Any) -> None:
        self.seen = (args[0] if args else self.trainer).best_yet

    hook = type("MyHook", (BASES[library],), {point: reads})()
    with pytest.raises(AttributeError, match=f"of {library} see it, has no .*'best_yet'") as caught:
        fit(tmp_path, hook, module=NoValidation, batches=1, host=True)
    assert caught.value.__notes__ == [
        f"in hook MyHook.{point} (epoch 0, iter 0)",
        "what it expects there: HookAdapter(..., attributes={'best_yet': ...})",
    ]
    fit(tmp_path, hook, module=NoValidation, batches=1, attributes={"best_yet": 1})
    assert hook.seen == 1


@pytest.mark.parametrize("library", WITH_TRAINER)
def test_an_attribute_that_is_computed_cannot_be_assigned(library: str, tmp_path: Path) -> None:
    point = WITH_TRAINER[library]

    def assigns(self: Any, *args: Any, **kwargs: Any) -> None:
        (args[0] if args else self.trainer).epoch = 5

    hook = type("MyHook", (BASES[library],), {point: assigns})()
    with pytest.raises(AttributeError, match="epoch") as caught:
        fit(tmp_path, hook, module=NoValidation, batches=1, host=True)
    assert caught.value.__notes__ == [f"in hook MyHook.{point} (epoch 0, iter 0)"]


def test_a_property_that_raises_keeps_its_message(tmp_path: Path) -> None:
    class MyHook(d2.HookBase):
        def after_step(self) -> None:
            _ = self.trainer.scheduler

    with pytest.raises(AttributeError, match=r"the Trainer has no scheduler; give one to"):
        fit(tmp_path, MyHook(), module=NoValidation, batches=1, host=True)


def test_a_step_that_returns_none_is_skipped_and_a_warning_names_the_hook(tmp_path: Path) -> None:
    class Module(NoValidation):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    message = "OptimizationHook: after_step is not called where training_step returns None"
    with pytest.warns(UserWarning, match=message):
        trainer = fit(tmp_path, cvpods.OptimizationHook(), module=Module(), batches=3, host=True)
    assert trainer.global_step == 2
