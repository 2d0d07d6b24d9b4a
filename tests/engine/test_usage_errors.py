"""Error messages for beginners' mistakes say what to write."""

from __future__ import annotations

import copy
import importlib.util
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import pytest

from lightning_hooks import (
    HOOKS,
    CheckpointHook,
    EMAHook,
    Hook,
    HookAdapter,
    IterTimerHook,
    MlflowLoggerHook,
    StepLrUpdaterHook,
    StepTimeHook,
    TextLoggerHook,
    WandbLoggerHook,
    register_training_hooks,
    schedules,
)
from lightning_hooks.config.trainer_args import DEFAULTS
from support import training
from support.paths import ROOT
from support.training import TinyModule, make_loader, make_trainer


class OldHook:
    """An old hook without imports from mmcv."""

    def after_train_epoch(self, runner: Any) -> None:
        """Do nothing."""


fit = partial(training.fit, batches=2, val=1)


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
        (lambda: EMAHook(priority=49), r"write HookAdapter\(\[\(EMAHook\(\.\.\.\), priority\)\]\)"),
    ],
)
def test_an_argument_with_a_wrong_name(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        make()


def test_a_constructor_without_named_arguments_takes_any() -> None:
    class Takes(Hook):
        def __init__(*given: Any) -> None:
            self, self.given = given  # type: ignore[misc]

    assert Takes(3).given == 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"Hook\(\) takes no arguments, got \(3,\)"):
        Hook(3)


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


@pytest.mark.parametrize("name", ["StepLrUpdaterHook", "CyclicMomentumUpdaterHook"])
def test_every_schedule_knows_the_names_of_its_warm_up(name: str) -> None:
    with pytest.raises(TypeError, match="did you mean 'warmup_ratio'"):
        HOOKS.build({"type": name, "warmup_ratioo": 0.1})


# -- missing packages ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "package"), [(WandbLoggerHook, "wandb"), (MlflowLoggerHook, "mlflow")]
)
def test_a_missing_client_is_named_with_the_command_to_install_it(
    make: Callable[[], Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=rf"needs {package}: pip install {package}$"):
        make()


def test_a_hook_that_draws_on_the_terminal_names_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="needs rich: pip install rich"):
        StepTimeHook(table=True)


# -- a hook in the wrong place -------------------------------------------------------------


@pytest.mark.parametrize("base", [EMAHook, HookAdapter, IterTimerHook])
def test_a_class_in_the_callbacks(base: type, tmp_path: Path) -> None:
    mine = type("Mine", (base,), {})  # Lightning sets attributes on its callbacks
    with pytest.raises(TypeError, match=r"Mine is a class; .*callbacks=\[Mine\(\.\.\.\)\]"):
        fit(tmp_path, mine)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OldHook(), r"OldHook is not .*HookAdapter\(\[OldHook\(\.\.\.\)\]\)"),
        (OldHook, r"OldHook is a class; .*HookAdapter\(\[OldHook\(\.\.\.\)\]\)"),
    ],
)
def test_an_old_hook_in_the_callbacks_beside_one_of_ours(
    given: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(TypeError, match=message):
        fit(tmp_path, IterTimerHook(), given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (OldHook, r"OldHook is a class; pass an object: OldHook\(\.\.\.\)"),
        ("EMAHook", r"write HookAdapter\(\[dict\(type='EMAHook'\)\]\)"),
        (L.pytorch.callbacks.LearningRateMonitor(), r"give it to Trainer\(callbacks="),
        ({"type": "EMAHok"}, "did you mean 'EMAHook'"),
        ((OldHook(), "HIHG"), "did you mean 'HIGH'"),
        ([OldHook(), OldHook()], r"a list among the hooks: .* HookAdapter\(\[\*hooks\]\)"),
    ],
)
def test_what_an_adapter_does_not_take(given: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        HookAdapter([given])


def test_a_class_registered_in_the_run(tmp_path: Path) -> None:
    class Registers(Hook):
        def before_run(self, runner: Any) -> None:
            runner.register_hook(OldHook)

    with pytest.raises(TypeError, match=r"OldHook is a class; pass an object: OldHook\(\.\.\.\)"):
        fit(tmp_path, Registers())


# -- config options not passed to the Trainer -----------------------------------------------

BY_EPOCH: dict[str, Any] = dict(
    checkpoint_config={"interval": 1},
    runner={"type": "EpochBasedRunner", "max_epochs": 2},
    workflow=[("train", 2), ("val", 1)],
)
BY_ITER: dict[str, Any] = dict(
    runner={"type": "IterBasedRunner", "max_iters": 4}, workflow=[("train", 2), ("val", 1)]
)
UNTOLD = "the hooks' config sets"
LIGHTNINGS = "`max_epochs` was not set|have no `val_dataloader`"


class StopsAtOnce(L.Callback):
    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        trainer.should_stop = True


def fit_from(tmp_path: Path, config: dict[str, Any], *, val: bool = True, **kwargs: Any) -> None:
    hooks = register_training_hooks(**config, work_dir=str(tmp_path))
    trainer = make_trainer(tmp_path, hooks, StopsAtOnce(), **kwargs)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1) if val else None)


@pytest.mark.parametrize(
    ("config", "val", "says", "has"),
    [
        (
            BY_EPOCH,
            True,
            "max_epochs=2, check_val_every_n_epoch=2",
            "max_epochs=1000, check_val_every_n_epoch=1",
        ),
        (BY_EPOCH, False, "max_epochs=2", "max_epochs=1000"),
        (
            BY_ITER,
            True,
            "max_epochs=-1, max_steps=4, check_val_every_n_epoch=None, val_check_interval=2, "
            "limit_val_batches=1",
            "max_epochs=1000, max_steps=-1, check_val_every_n_epoch=1, val_check_interval=1.0, "
            "limit_val_batches=1.0",
        ),
    ],
)
def test_forgotten_arguments_of_a_config(
    config: dict[str, Any], val: bool, says: str, has: str, tmp_path: Path
) -> None:
    lightnings = pytest.warns(UserWarning, match=LIGHTNINGS)
    with lightnings, pytest.warns(UserWarning, match=UNTOLD) as told:
        fit_from(tmp_path, config, val=val, max_epochs=None)
    (message,) = [str(one.message) for one in told if UNTOLD in str(one.message)]
    assert f"sets {says}, but the Trainer has its defaults, {has}: give it these" in message
    assert "Trainer(callbacks=[hooks], **hooks.trainer_kwargs)" in message


def test_a_length_of_ones_own_says_nothing_of_the_rest(tmp_path: Path) -> None:
    config = {**BY_EPOCH, "workflow": [("train", 1)]}
    with pytest.warns(
        UserWarning, match="limit_val_batches=0, but .* limit_val_batches=1.0: give it"
    ):
        fit_from(tmp_path, config, max_epochs=1)


@pytest.mark.parametrize(
    ("config", "kwargs"),
    [
        (BY_EPOCH, register_training_hooks(**BY_EPOCH).trainer_kwargs),
        (BY_ITER, register_training_hooks(**BY_ITER).trainer_kwargs),
        (BY_EPOCH, {"max_epochs": 3, "val_check_interval": 0.5}),
        (BY_EPOCH, {"max_epochs": None, "max_steps": 3, "check_val_every_n_epoch": 3}),
        (BY_EPOCH, {"max_epochs": None, "max_time": "00:01:00:00", "limit_val_batches": 0}),
        (BY_ITER, {"max_epochs": 1, "val_check_interval": 1, "limit_val_batches": 2}),
        (BY_ITER, {"fast_dev_run": True}),
        ({**BY_EPOCH, "workflow": [("train", 1), ("val", 1)]}, {"max_epochs": 3}),
        ({"lr_config": {"policy": "fixed"}}, {"max_epochs": 1}),
    ],
)
def test_arguments_of_ones_own_are_meant(
    config: dict[str, Any], kwargs: dict[str, Any], tmp_path: Path
) -> None:
    fit_from(tmp_path, config, **kwargs)  # pytest turns warnings into errors


def test_only_a_fit_asks_for_what_a_config_says(tmp_path: Path) -> None:
    hooks = register_training_hooks(**BY_EPOCH, work_dir=str(tmp_path))
    make_trainer(tmp_path, hooks).validate(TinyModule(), make_loader(1), verbose=False)


def test_what_a_trainer_has_that_was_told_nothing(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, StopsAtOnce(), max_epochs=None)
    with pytest.warns(UserWarning, match=LIGHTNINGS):
        trainer.fit(TinyModule(), make_loader(1))
    assert {name: getattr(trainer, name) for name in DEFAULTS} == DEFAULTS


# -- inside of a hook ----------------------------------------------------------------------


def test_what_a_hook_expects_on_its_runner_is_given_by_attributes(tmp_path: Path) -> None:
    class Expects(Hook):
        def before_run(self, runner: Any) -> None:
            self.found = runner.eval_model

    with pytest.raises(AttributeError, match="eval_model") as error:
        fit(tmp_path, Expects())
    told = error.value.__notes__[-1]  # type: ignore[attr-defined]
    assert told.endswith("HookAdapter(..., attributes={'eval_model': ...})")
    fit(tmp_path, HookAdapter([Expects()], attributes={"eval_model": 3}))


@pytest.mark.parametrize("base", [Hook, object])
def test_a_point_with_a_wrong_name(
    base: type, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Misspelt(base):  # type: ignore[misc]
        def after_train_iters(self, runner: Any) -> None: ...

        def before_train_epoch(self, runner: Any) -> None: ...

        def after_training(self) -> None: ...

        @property
        def means(self) -> float:
            raise RuntimeError("nothing is measured yet")

    fit(tmp_path, HookAdapter([Misspelt()]))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    expected = (
        "Misspelt.after_train_iters() is called at no point; did you mean after_train_iter()?"
    )
    assert told == [expected]


def test_the_wrong_place_to_import_a_hook_from() -> None:
    with pytest.raises(ImportError, match="write `from lightning_hooks import EMAHook`"):
        from lightning_hooks.hooks import EMAHook  # type: ignore[attr-defined] # noqa: F401


def test_a_schedule_of_what_has_none() -> None:
    with pytest.raises(AttributeError, match="are for hooks that set learning rates or momenta"):
        schedules.sample(EMAHook(), max_epochs=1, iters_per_epoch=2)
    with pytest.raises(TypeError, match=r"pass an object: StepLrUpdaterHook\(\.\.\.\)"):
        schedules.sample(StepLrUpdaterHook, max_epochs=1, iters_per_epoch=2)


# -- Lightning's own errors ----------------------------------------------------------------


class Stateful(Hook):
    def state_dict(self) -> dict[str, Any]:
        return {}


FAQ = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: [OldHook()], "'OldHook' object has no attribute 'on_exception'"),
        (lambda: [[IterTimerHook()]], "'list' object has no attribute 'on_exception'"),
        (OldHook, "'OldHook' object is not iterable"),
        (lambda: [Stateful(), Stateful()], "Found more than one stateful callback of type"),
        (lambda: [CheckpointHook()], "found `ModelCheckpoint` in callbacks list"),
    ],
)
def test_what_lightning_says_is_in_the_faq(
    make: Callable[[], Any], words: str, tmp_path: Path
) -> None:
    quiet: dict[str, Any] = dict(logger=False, enable_checkpointing=False, accelerator="cpu")
    older = "Expected a parent"  # Lightning 2.5's message for an object other than a callback
    assert f"| `{older}` |" in FAQ
    with pytest.raises(Exception, match=f"{re.escape(words)}|{older}"):
        L.Trainer(callbacks=make(), default_root_dir=tmp_path, max_epochs=1, **quiet).fit(
            TinyModule(), make_loader(1)
        )
    assert f"| `{words.replace('OldHook', 'MyHook').replace('`', '')}` |" in FAQ


# -- arguments as attributes -------------------------------------------------------------------


def test_arguments_are_read_by_their_names() -> None:
    assert EMAHook(buffers="copy", after_fit="raw").buffers == "copy"
    assert [EMAHook().swap, EMAHook().check, EMAHook().device] == ["auto", "sample", None]
    assert StepLrUpdaterHook(step=[1], by_epoch=False, by_step=True).by_step
    assert TextLoggerHook(sync=True).sync


def test_a_subclasss_own_attribute_of_an_arguments_name_wins() -> None:
    class Old(EMAHook):
        buffers = "mine"

    hook = Old(buffers="average")
    hook.check = print
    assert (hook.buffers, hook.check) == ("mine", print)
    assert copy.copy(hook).buffers == "mine"


def test_another_attribute_is_missing_by_its_name() -> None:
    with pytest.raises(AttributeError, match=r"'EMAHook' object has no attribute 'bufers'"):
        EMAHook().bufers  # noqa: B018
    assert not hasattr(EMAHook(), "metric")
