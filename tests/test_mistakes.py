"""Mistakes of a first day are answered with what to write."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from helpers import TinyModule, make_loader, make_trainer

from lightning_hooks import (
    HOOKS,
    CheckpointHook,
    EMAHook,
    HookAdapter,
    IterTimerHook,
    MlflowLoggerHook,
    StepLrUpdaterHook,
    TextLoggerHook,
    WandbLoggerHook,
    register_training_hooks,
)
from lightning_hooks.dialects import cvpods, detectron2, mmengine, pet, pointrix


class OldHook:
    """As in an old file that needs nothing of mmcv."""

    def after_train_epoch(self, runner: Any) -> None:
        """Do nothing."""


def fit(tmp_path: Path, *callbacks: Any, **kwargs: Any) -> None:
    trainer = make_trainer(tmp_path, *callbacks, **kwargs)
    trainer.fit(TinyModule(), make_loader(2), make_loader(1))


# -- an argument with a wrong name ---------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EMAHook(momentm=0.1), r"EMAHook\(\) got .*'momentm'; did you mean 'momentum'"),
        (lambda: CheckpointHook(max_keep=3), "did you mean 'max_keep_ckpts'"),
        (lambda: StepLrUpdaterHook(step=1, warmup_iter=9), "did you mean 'warmup_iters'"),
        (lambda: TextLoggerHook(intervall=9), "did you mean 'interval'"),
        (lambda: HookAdapter(workdir="here"), r"HookAdapter\(\) got .* did you mean 'work_dir'"),
        (lambda: HookAdapter([{"type": "EMAHook", "momentm": 0.1}]), "did you mean 'momentum'"),
        (lambda: register_training_hooks(custom_hooks=[]), "did you mean 'custom_hooks_config'"),
    ],
)
def test_an_argument_with_a_wrong_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_class_of_ones_own_is_asked_only_what_can_be_told() -> None:
    class Takes(EMAHook):
        def __init__(self, **kwargs: Any) -> None:
            self.own = kwargs.pop("own")
            super().__init__(**kwargs)

    class Names(EMAHook):
        def __init__(self, own: int, momentum: float = 0.1) -> None:
            super().__init__(momentum)

    assert Takes(own=3, momentum=0.5).own == 3
    assert Names(own=3).momentum == 0.1
    with pytest.raises(TypeError, match="did you mean 'own'"):
        Names(owm=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted(n for n in HOOKS.module_dict if "Updater" in n))
def test_every_schedule_knows_the_names_of_its_warm_up(name: str) -> None:
    with pytest.raises(TypeError, match="did you mean 'warmup_ratio'"):
        HOOKS.build({"type": name, "warmup_ratioo": 0.1})


# -- a package that is missing -------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "extra"), [(WandbLoggerHook, "wandb"), (MlflowLoggerHook, "mlflow")]
)
def test_a_missing_extra(
    make: Callable[[], Any], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=rf'pip install "lightning_hooks\[{extra}\]"'):
        make()


def test_a_hook_that_draws_on_the_terminal_names_an_extra_that_there_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'pip install "lightning_hooks\[cli\]"'):
        pointrix.ProgressHook()


# -- a hook in the wrong place -------------------------------------------------------------


@pytest.mark.parametrize("base", [EMAHook, HookAdapter, IterTimerHook])
def test_a_class_in_the_callbacks(base: type, tmp_path: Path) -> None:
    mine = type("Mine", (base,), {})  # Lightning sets attributes of what it is given
    with pytest.raises(TypeError, match=r"Mine is a class; .*callbacks=\[Mine\(\.\.\.\)\]"):
        fit(tmp_path, mine)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OldHook(), r"the hook OldHook is not .*HookAdapter\(\[OldHook\(\.\.\.\)\]\)"),
        (OldHook, r"OldHook is a class; .*HookAdapter\(\[OldHook\(\.\.\.\)\]\)"),
    ],
)
def test_an_old_hook_in_the_callbacks_beside_one_of_ours(
    given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=message):
        fit(tmp_path, IterTimerHook(), given)


@pytest.mark.parametrize(
    "base",
    [detectron2.HookBase, cvpods.HookBase, mmengine.Hook, pet.TrainHook, pointrix.Hook],
    ids=lambda base: base.__module__.rpartition(".")[2],
)
def test_a_hook_of_another_dialect_in_the_callbacks(base: type, tmp_path: Path) -> None:
    mine = type("Mine", (base,), {})
    with pytest.raises(TypeError, match=r"write Trainer\(callbacks=\[HookAdapter\(\[Mine\("):
        fit(tmp_path, mine())


def test_a_writer_as_logger(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"TextLoggerHook, for Trainer\(callbacks=\[\.\.\.\]\)"):
        fit(tmp_path, logger=TextLoggerHook())


@pytest.mark.parametrize("argument", ["plugins", "strategy"])
def test_a_hook_as_something_else_of_the_trainer(argument: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"EMAHook, for Trainer\(callbacks=\[\.\.\.\]\)"):
        fit(tmp_path, **{argument: EMAHook()})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OldHook, r"OldHook is a class; pass an object: OldHook\(\.\.\.\)"),
        ("EMAHook", r"write dict\(type='EMAHook'\)"),
        (L.pytorch.callbacks.LearningRateMonitor(), r"give it to Trainer\(callbacks="),
        ({"type": "EMAHok"}, "did you mean 'EMAHook'"),
        ((OldHook(), "HIHG"), "did you mean 'HIGH'"),
    ],
)
def test_what_an_adapter_does_not_take(given: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        HookAdapter([given])
