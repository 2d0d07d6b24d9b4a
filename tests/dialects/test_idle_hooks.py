"""A hook of which a run calls nothing is named, with the reason."""

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


@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iters"])
@pytest.mark.parametrize("library", BASES)
def test_a_hook_without_a_point_is_named(
    library: str, by_epoch: bool, tmp_path: Path, caplog: Any
) -> None:
    point = "after_train_iter" if library in ("mmengine", "pointrix") else "after_step"
    hook = type("MyHook", (BASES[library],), {f"{point}s": does_nothing})()
    misspelt, unused = warnings_of(caplog, tmp_path, hook, by_epoch=by_epoch, max_steps=1)
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
def test_a_hook_that_is_called_or_waits_for_an_error_is_not(
    library: str, tmp_path: Path, caplog: Any
) -> None:
    base = BASES[library]
    called = type("MyHook", (base,), {"before_train": does_nothing})()
    waits = (
        type("WaitHook", (base,), {"exception": does_nothing})()
        if library == "pointrix"
        else called
    )
    assert warnings_of(caplog, tmp_path, *{called, waits}) == []
