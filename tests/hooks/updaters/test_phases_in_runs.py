"""Phases, a decay on demand and schedules of fields in real runs: previews, resumes, logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
from lightning.pytorch.callbacks import Callback

from lightning_hooks import (
    CosineAnnealingLrUpdaterHook,
    FieldUpdaterHook,
    Hook,
    HookAdapter,
    PhasesLrUpdaterHook,
    PhasesMomentumUpdaterHook,
    TextLoggerHook,
    WSDLrUpdaterHook,
    register_training_hooks,
    schedules,
)
from lightning_hooks.cli.app import run
from support.schedule_runs import Optimizers
from support.training import TinyModule, make_loader, make_trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before"),
]


class Values(Hook):
    """Records an option of the first parameter group in each step."""

    _reads_step = False

    def __init__(self, key: str = "lr") -> None:
        self.key = key
        self.seen: list[Any] = []

    def before_train_iter(self, runner: Any) -> None:
        """Record the first group's."""
        key, _, item = self.key.partition(".")
        entry = runner.optimizer.param_groups[0][key]
        self.seen.append(entry[int(item)] if item else entry)


PHASES = [
    {"policy": "fixed", "length": 0.4},
    {"policy": "CosineAnnealing", "min_lr_ratio": 0.25, "length": 0.4},
    {"policy": "exp", "gamma": 0.5},
]
HOOKS = {
    "phases": ("lr", lambda: PhasesLrUpdaterHook(PHASES, by_epoch=False)),
    "phases by epoch": (
        "lr",
        lambda: PhasesLrUpdaterHook(
            [{"policy": "fixed", "length": 1}, {"policy": "LinearAnnealing", "min_lr": 0.5}],
            warmup="linear",
            warmup_iters=0.25,
        ),
    ),
    "momentum": (
        "momentum",
        lambda: PhasesMomentumUpdaterHook(
            [{"policy": "fixed", "length": 0.5}, {"policy": "Step", "step": 2}], by_epoch=False
        ),
    ),
    "WSD": ("lr", lambda: WSDLrUpdaterHook(decay=0.4, warmup="exp", warmup_iters=0.3)),
    "own length": ("lr", lambda: CosineAnnealingLrUpdaterHook(0.1, by_epoch=False, total=0.5)),
    "field": (
        "weight_decay",
        lambda: FieldUpdaterHook("weight_decay", "CosineAnnealing", end=0.4, by_epoch=False),
    ),
}


class SaveAll(Callback):
    """Saves a checkpoint after every iteration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.global_step}.ckpt")


class Module(Optimizers):
    """A module with SGD and a single parameter group."""

    def __init__(self) -> None:
        super().__init__([{"lr": [1.0], "momentum": [0.8]}])

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        optimizer[0].param_groups[0]["weight_decay"] = 0.0625
        return optimizer


@pytest.mark.parametrize("name", HOOKS)
def test_a_run_is_its_preview_and_so_is_each_resume(tmp_path: Path, name: str) -> None:
    key, make = HOOKS[name]
    whole = Values(key)
    trainer = make_trainer(tmp_path, make(), whole, SaveAll(tmp_path), max_epochs=2)
    trainer.fit(Module(), make_loader(5))
    run = {"max_epochs": 2, "iters_per_epoch": 5, "base_lr": 1.0, "base_momentum": 0.8}
    assert whole.seen == schedules.sample(make(), **run, fields={"weight_decay": 0.0625})
    for done in range(1, 10):
        rest = Values(key)
        trainer = make_trainer(tmp_path, make(), rest, max_epochs=2)
        trainer.fit(Module(), make_loader(5), ckpt_path=tmp_path / f"{done}.ckpt")
        assert rest.seen == whole.seen[done:]


# -- the decay on demand -----------------------------------------------------------------------


class Ask(Hook):
    """Starts the decay after a given iteration."""

    def __init__(self, hook: WSDLrUpdaterHook, after: int) -> None:
        self.hook, self.after = hook, after

    def after_train_iter(self, runner: Any) -> None:
        """Ask."""
        if runner.iter + 1 == self.after:
            self.hook.start_decay(runner)


def wsd(**options: Any) -> WSDLrUpdaterHook:
    return WSDLrUpdaterHook(**{"decay": 4, **options})


def test_a_decay_on_demand_ends_the_run_and_is_resumed(tmp_path: Path) -> None:
    hook, whole = wsd(), Values()
    trainer = make_trainer(tmp_path, hook, Ask(hook, 4), whole, SaveAll(tmp_path), max_epochs=10)
    trainer.fit(Module(), make_loader(5))
    # requested in the fourth iteration, number 3
    assert whole.seen == [1, 1, 1, 1, 0.75, 0.5, 0.25]
    for done in range(1, 7):
        rest = Values()
        again = wsd()
        trainer = make_trainer(tmp_path, again, Ask(again, 4), rest, max_epochs=10)
        trainer.fit(Module(), make_loader(5), ckpt_path=tmp_path / f"{done}.ckpt")
        assert rest.seen == whole.seen[done:]


def test_a_decay_by_epoch_on_demand(tmp_path: Path) -> None:
    hook, seen = wsd(by_epoch=True, decay=2), Values()
    trainer = make_trainer(tmp_path, hook, Ask(hook, 2), seen, max_epochs=10)
    trainer.fit(Module(), make_loader(1))
    assert seen.seen == [1, 1, 0.5]


@pytest.mark.parametrize("batches", [1, 2])
def test_a_decay_by_step_on_demand_makes_all_of_its_steps(tmp_path: Path, batches: int) -> None:
    hook, seen = wsd(by_step=True), Values()
    callbacks = [hook, Ask(hook, 2), seen]
    trainer = make_trainer(tmp_path, *callbacks, max_epochs=10, accumulate_grad_batches=batches)
    trainer.fit(Module(), make_loader(4))
    steps = [*[1] * (2 // batches), 1, 0.75, 0.5, 0.25]
    assert seen.seen == [rate for rate in steps for _ in range(batches)]


def test_a_decay_that_has_begun_goes_on(tmp_path: Path) -> None:
    hook, seen = wsd(), Values()
    trainer = make_trainer(tmp_path, hook, Ask(hook, 9), seen, max_epochs=2)
    trainer.fit(Module(), make_loader(5))
    assert seen.seen == [*[1] * 6, 1, 0.75, 0.5, 0.25]
    assert hook.span is None


@pytest.mark.parametrize("validates", [True, False])
def test_the_command_starts_the_decay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], validates: bool
) -> None:
    class Type(Hook):
        """Runs the command ``decay`` after the third iteration."""

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 2:
                assert run(["decay", runner.work_dir]) == 0

    (tmp_path / "run").mkdir()
    hook, seen = wsd(decay=2), Values()
    adapter = HookAdapter([hook, Type(), seen], work_dir=str(tmp_path / "run"))
    trainer = make_trainer(tmp_path, adapter, max_epochs=10)
    loaders = [make_loader(2), make_loader(1)] if validates else [make_loader(2)]
    trainer.fit(TinyModule(lr=1.0), *loaders)
    assert seen.seen == [1, 1, 1, 1, 1, 0.5]
    assert not (tmp_path / "run" / "start_decay").exists()
    assert "decays from the next epoch or validation on" in capsys.readouterr().out


def test_a_new_run_forgets_an_old_request(tmp_path: Path) -> None:
    (tmp_path / "start_decay").touch()
    hook, seen = wsd(decay=2), Values()
    adapter = HookAdapter([hook, seen], work_dir=str(tmp_path))
    make_trainer(tmp_path, adapter, max_epochs=3).fit(Module(), make_loader(2))
    assert seen.seen == [1, 1, 1, 1, 1, 0.5]


def test_a_request_in_the_planned_decay_is_no_request_of_a_resumed_run(tmp_path: Path) -> None:
    class AskLate(Hook):
        """Asks for the decay in the planned decay."""

        def after_train_iter(self, runner: Any) -> None:
            if runner.iter == 3:
                (tmp_path / "start_decay").touch()

    adapter = HookAdapter([wsd(decay=2), AskLate()], work_dir=str(tmp_path))
    trainer = make_trainer(tmp_path, adapter, max_epochs=3)
    trainer.fit(Module(), make_loader(2))
    trainer.save_checkpoint(tmp_path / "a.ckpt")
    rest = Values()
    adapter = HookAdapter([wsd(decay=2), rest], work_dir=str(tmp_path))
    trainer = make_trainer(tmp_path, adapter, max_epochs=6)
    trainer.fit(Module(), make_loader(2), ckpt_path=tmp_path / "a.ckpt")
    assert rest.seen == [1, 1, 1, 1, 1, 0.5]


def test_the_command_needs_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["decay", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_a_decay_is_asked_for_in_place_of_a_link(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/start_decay").symlink_to(tmp_path / "other")
    assert run(["decay", str(tmp_path / "run")]) == 0
    assert not (tmp_path / "run/start_decay").is_symlink()
    assert (tmp_path / "other").read_text() == "kept"


# -- fields ------------------------------------------------------------------------------------


def test_the_log_has_a_field_under_its_name(tmp_path: Path) -> None:
    hook = FieldUpdaterHook("weight_decay", "LinearAnnealing", end=0.5625, by_epoch=False)
    trainer = make_trainer(tmp_path, hook, TextLoggerHook(interval=1), max_epochs=1)
    trainer.fit(Module(), make_loader(4))
    lines = map(json.loads, next(tmp_path.glob("**/*.log.json")).read_text().splitlines())
    values = [line["weight_decay"] for line in lines if "weight_decay" in line]
    assert values == [0.0625, 0.1875, 0.3125, 0.4375]


def test_a_name_that_no_group_has_is_told_with_the_closest(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, FieldUpdaterHook("weight_decy", "fixed"), max_epochs=1)
    with pytest.raises(ValueError, match=r"has no number weight_decy; did you mean 'weight_decay'"):
        trainer.fit(Module(), make_loader(1))


def test_a_field_of_zeros_is_told_with_the_argument_that_moves_it(tmp_path: Path) -> None:
    hook = FieldUpdaterHook("dampening", "LinearAnnealing", end=0.1)
    with pytest.warns(UserWarning, match=r"never moves the dampening .* unless include_zeros=True"):
        make_trainer(tmp_path, hook, max_epochs=2).fit(Module(), make_loader(1))


def test_two_hooks_for_one_field_are_told(tmp_path: Path) -> None:
    policies = "LinearAnnealing", "CosineAnnealing"
    hooks = [FieldUpdaterHook("weight_decay", policy, end=0.1) for policy in policies]
    trainer = make_trainer(tmp_path, *hooks, max_epochs=2)
    with pytest.warns(UserWarning, match="2 FieldUpdaterHooks set weight_decay"):
        trainer.fit(Module(), make_loader(1))


# -- configs -----------------------------------------------------------------------------------


def test_a_config_of_phases() -> None:
    hooks = register_training_hooks(
        lr_config={"policy": "phases", "phases": PHASES},
        momentum_config={
            "policy": "Phases",
            "phases": [{"policy": "fixed", "length": 0.5}, {"policy": "step", "step": 1}],
        },
        custom_hooks_config=[
            {"type": "FieldUpdaterHook", "name": "weight_decay", "policy": "exp", "gamma": 0.5}
        ],
        runner={"type": "IterBasedRunner", "max_iters": 10},
    )
    lr, momentum, field = hooks.hooks[:3]
    assert [type(one).__name__ for one in hooks.hooks[:3]] == [
        "PhasesLrUpdaterHook",
        "PhasesMomentumUpdaterHook",
        "FieldUpdaterHook",
    ]
    assert (lr.by_epoch, momentum.by_epoch, field.by_epoch) == (False, False, True)
