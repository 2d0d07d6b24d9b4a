"""A resumed run equals an uninterrupted run: counters, points, random state and weights."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning import seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from lightning_hooks import CheckpointHook, EMAHook, Hook, HookAdapter
from support.foreign_hooks import OldEMA
from support.probes import Recorder, SaveAt, equal, line, weights
from support.training import NoValidation, TinyModule, TinyNormModule, make_loader, make_trainer


class Noise(Hook):
    """Draws from every random generator in each iteration, and from torch's in ``before_run``."""

    def __init__(self) -> None:
        self.drawn: list[Any] = []

    def before_run(self, runner: Any) -> None:
        torch.rand(3)

    def before_train_epoch(self, runner: Any) -> None:
        torch.rand(1)

    def after_train_iter(self, runner: Any) -> None:
        self.drawn.append((random.random(), float(np.random.rand()), torch.rand(1).item()))


def run(tmp_path: Path, *hooks: Any, ckpt: Any = None, module: Any = None, **kw: Any) -> Any:
    module = module or TinyNormModule()
    trainer = make_trainer(tmp_path, *hooks, max_epochs=3, **kw)
    trainer.fit(module, make_loader(4, shuffle=True), make_loader(1), ckpt_path=ckpt)
    return module


@pytest.mark.parametrize("epoch", [1, 2])
def test_from_an_epoch_end_everything_is_as_uninterrupted(epoch: int, tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    torch.manual_seed(0)
    whole = Noise()
    uninterrupted = run(tmp_path, whole, SaveAt("on_train_epoch_end", path, epoch))
    torch.manual_seed(123)  # another process would have another state
    random.seed(5)
    part = Noise()
    resumed = run(tmp_path, part, Recorder(), ckpt=path)
    assert part.drawn == whole.drawn[4 * epoch :]
    assert resumed.losses == uninterrupted.losses[4 * epoch :]
    assert equal(weights(resumed), weights(uninterrupted))


def test_a_run_in_double_precision_goes_on_with_all_digits(tmp_path: Path) -> None:
    def train(ckpt: Any = None) -> Any:
        torch.manual_seed(0)
        keep = CheckpointHook(interval=1)
        options: Any = {"precision": "64-true", "enable_checkpointing": True}
        return weights(run(tmp_path, EMAHook(momentum=0.1), keep, ckpt=ckpt, **options))

    whole = train()
    assert any(value.dtype == torch.float64 for value in whole.values())
    assert equal(train(tmp_path / "epoch_2.pth"), whole)


@pytest.mark.parametrize("val", [0, 1])
@pytest.mark.parametrize("by_epoch", [True, False])
@pytest.mark.parametrize("epochs", [-1, 4])
def test_from_an_epoch_end_with_max_steps_set(
    epochs: int, by_epoch: bool, val: int, tmp_path: Path
) -> None:
    """Lightning without hooks adds a batch to the finished epoch, or ends the run."""
    path = tmp_path / "a.ckpt"
    limit = {"max_steps": 10, "max_epochs": epochs}

    def train(ckpt: Any, *hooks: Any) -> Any:
        adapter = HookAdapter(list(hooks), by_epoch=by_epoch)
        trainer = make_trainer(tmp_path, adapter, **limit)
        val_loader = make_loader(val) if val else None
        module = TinyModule() if val else NoValidation()
        trainer.fit(module, make_loader(4, shuffle=True), val_loader, ckpt_path=ckpt)
        return module

    torch.manual_seed(0)
    whole, part = Recorder(), Recorder()
    uninterrupted = train(None, SaveAt("on_train_epoch_end", path), whole)
    resumed = train(path, part)
    done = [call for call in whole.calls if call[2] >= 4 and "val" not in call[0]]
    again = [call for call in part.calls[1:] if "val" not in call[0]]
    kept = [call[:3] for call in done if call[0] != "after_train_epoch" or call[2] > 4]
    assert [call[:3] for call in again] == kept
    assert equal(weights(resumed), weights(uninterrupted))


def test_from_mid_epoch_the_counters_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    run(tmp_path, SaveAt("on_train_batch_end", path, 6))
    recorder = Recorder()
    run(tmp_path, recorder, ckpt=path)
    assert line(recorder) == "([tTtT]{vV}[tTtTtTtT]{vV})"
    assert recorder.calls[0] == ("before_run", 1, 6, 1, None)
    assert recorder.calls[2] == ("before_train_iter", 1, 6, 2, "train")
    assert recorder.calls[-1][:3] == ("after_run", 3, 12)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
def test_from_the_end_of_an_epochs_last_batch(tmp_path: Path) -> None:
    """The resumed run begins with the epoch's validation and end, which Lightning alone omits."""
    path = tmp_path / "a.ckpt"
    run(tmp_path, SaveAt("on_train_batch_end", path, 4))
    recorder = Recorder()
    run(tmp_path, recorder, ckpt=path)
    assert line(recorder) == "([]{vV}[tTtTtTtT]{vV}[tTtTtTtT]{vV})"
    assert recorder.calls[0][:3] == ("before_run", 0, 4)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
def test_from_the_validation_that_ended_an_epoch_it_is_not_closed_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    run(tmp_path, SaveAt("on_validation_end", path, 1))
    recorder = Recorder()
    run(tmp_path, recorder, ckpt=path)
    assert line(recorder) == "([tTtTtTtT]{vV}[tTtTtTtT]{vV})"
    assert recorder.calls[0][:3] == ("before_run", 1, 4)
    assert recorder.calls[1][:3] == ("before_train_epoch", 1, 4)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint")
@pytest.mark.parametrize(
    ("event", "nth"),
    [("on_train_epoch_end", 1), ("on_validation_end", 1), ("on_train_batch_end", 6)],
)
def test_buffers_that_an_old_hook_registers_survive_a_strict_resume(
    event: str, nth: int, tmp_path: Path
) -> None:
    """The old hook's swapped weights are not swapped again."""
    path = tmp_path / "a.ckpt"
    torch.manual_seed(0)
    adapter = HookAdapter([OldEMA()])
    uninterrupted = run(tmp_path, adapter, SaveAt(event, path, nth), module=TinyModule())
    assert any("ema_" in key for key in uninterrupted.state_dict())
    resumed = run(tmp_path, HookAdapter([OldEMA()]), ckpt=path, module=TinyModule())
    assert equal(weights(resumed), weights(uninterrupted))


def test_weights_are_those_of_the_file_when_a_mid_epoch_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    adapter = HookAdapter([OldEMA()])
    run(tmp_path, adapter, SaveAt("on_train_batch_end", path, 6), module=TinyModule())
    file = torch.load(path, weights_only=True)
    TinyModule().load_state_dict(file["state_dict"])  # strictly: without the hook's buffers
    saved = {**file["state_dict"], **file["lightning_hooks"]["buffers"]}
    assert "ema_net_weight" in saved
    seen = {}

    class Look(Hook):
        def before_train_iter(self, runner: Any) -> None:
            if not seen:
                seen.update({k: v.clone() for k, v in runner.module.state_dict().items()})

    run(tmp_path, HookAdapter([OldEMA()]), Look(), ckpt=path, module=TinyModule())
    assert {k: v.tolist() for k, v in seen.items()} == {k: v.tolist() for k, v in saved.items()}


def test_a_file_loads_into_a_module_that_has_the_hooks_buffers_already(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    module = TinyModule()
    trainer = make_trainer(tmp_path, HookAdapter([OldEMA()]), SaveAt("on_train_epoch_end", path))
    trainer.fit(module, make_loader(4), make_loader(1))
    kept = module.ema_net_weight.clone()
    module.ema_net_weight.zero_()
    trainer.validate(module, make_loader(1), ckpt_path=path, verbose=False, weights_only=True)
    assert torch.equal(module.ema_net_weight, kept)
    trainer.fit_loop.max_epochs = 2
    trainer.fit(module, make_loader(4), make_loader(1), ckpt_path=path)


def test_meta_and_its_hook_messages_survive_in_plain_types(tmp_path: Path) -> None:
    class Message(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            messages = runner.meta.setdefault("hook_msgs", {})
            messages["best_score"] = np.float64(0.5)
            messages["ids"] = np.arange(2)

    path = tmp_path / "a.ckpt"
    meta = {"seed": 1, "exp_name": "digits"}
    run(
        tmp_path,
        HookAdapter([Message()], meta=meta),
        SaveAt("on_train_epoch_end", path),
        Recorder(),
    )
    assert meta == {"seed": 1, "exp_name": "digits"}
    saved = torch.load(path, weights_only=True)["meta"]
    assert saved["hook_msgs"] == {"best_score": 0.5, "ids": [0, 1]}
    assert (saved["epoch"], saved["iter"], saved["exp_name"]) == (1, 4, "digits")

    class Look(Hook):
        meta: Any = None

        def before_run(self, runner: Any) -> None:
            self.meta = dict(runner.meta)

    look = Look()
    run(tmp_path, look, ckpt=path)
    assert look.meta["hook_msgs"] == {"best_score": 0.5, "ids": [0, 1]}
    assert look.meta["exp_name"] == "digits"


def test_numbers_of_numpys_that_a_hook_gives_the_optimizer_are_saved_as_pythons(
    tmp_path: Path,
) -> None:
    class Decay(Hook):
        def before_train_iter(self, runner: Any) -> None:
            for group in runner.optimizer.param_groups:  # as the schedules of DINO's hooks
                group["weight_decay"] = np.linspace(0.1, 0.2, 100)[runner.iter]

        def after_train_epoch(self, runner: Any) -> None:
            runner.save_checkpoint(str(tmp_path), "mmcvs.pth")

    path = tmp_path / "a.ckpt"
    run(tmp_path, Decay(), SaveAt("on_train_epoch_end", path))
    [ours] = torch.load(path, weights_only=True)["optimizer_states"]
    mmcvs = torch.load(tmp_path / "mmcvs.pth", weights_only=True)["optimizer"]
    for state in (ours, mmcvs):
        assert type(state["param_groups"][0]["weight_decay"]) is float
    run(tmp_path, Decay(), ckpt=path)


def test_counters_are_written_once_whatever_the_number_of_callbacks(tmp_path: Path) -> None:
    path = tmp_path / "a.ckpt"
    run(
        tmp_path,
        Recorder(),
        Recorder(),
        HookAdapter([Recorder()]),
        SaveAt("on_train_epoch_end", path),
    )
    saved = torch.load(path, weights_only=True)
    assert saved["lightning_hooks"]["iter"] == 4
    assert not any("Recorder" in key for key in saved["callbacks"])


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")
def test_a_checkpoint_of_plain_lightning_is_resumed(tmp_path: Path) -> None:
    plain = ModelCheckpoint(
        dirpath=tmp_path, filename="plain", save_top_k=1, monitor="epoch", mode="max"
    )
    trainer = make_trainer(tmp_path, plain, max_epochs=2, enable_checkpointing=True)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    recorder = Recorder()
    run(tmp_path, recorder, ckpt=plain.best_model_path, module=TinyModule())
    assert recorder.calls[0][:3] in [("before_run", 2, 8), ("before_run", 1, 4)]
    assert line(recorder).endswith("[tTtTtTtT]{vV})")
    assert recorder.calls[-1][:3] == ("after_run", 3, 12)


class Counted(TinyNormModule):
    """A module that logs a rising value in validation."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("steps", float(self.trainer.global_step))


class Cut(Hook):
    """Raises an error in a validation, or copies files before the next batch."""

    def __init__(self, epoch: int, files: list[Path]) -> None:
        self.epoch, self.files = epoch, files

    def before_val_iter(self, runner: Any) -> None:
        if runner.iter == 4 * self.epoch and self.files == []:
            raise ConnectionError("a batch is lost")

    def before_train_iter(self, runner: Any) -> None:
        for path in self.files:
            copy = path.with_name(f"copy_of_{path.name}")
            if not copy.exists() and runner.iter == 4 * self.epoch:
                copy.write_bytes(path.read_bytes())


@pytest.mark.parametrize("name", ["epoch_2.pth", "best_steps_epoch_2.pth"])
@pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])
def test_a_file_of_a_repeated_validation_resumes_exactly_too(
    tmp_path: Path, name: str, by_epoch: bool
) -> None:
    """The resumed run writes the file before its first batch draws from the random state."""
    if not by_epoch:
        name = name.replace("epoch_2", "iter_8")

    def train(folder: str, *hooks: Any, ckpt: Any = None) -> Any:
        noise = Noise()
        saving = CheckpointHook(
            1 if by_epoch else 4, by_epoch=by_epoch, save_best="steps", rule="greater"
        )
        adapter = HookAdapter([noise, saving, *hooks], work_dir=str(tmp_path / folder))
        seed_everything(0 if ckpt is None else 77)
        module = run(tmp_path / folder, adapter, ckpt=ckpt, module=Counted())
        return noise.drawn, module

    drawn, uninterrupted = train("whole")
    with pytest.raises(ConnectionError):
        train("cut", Cut(2, []))
    path = tmp_path / "cut" / name
    train("cut", Cut(2, [path]), ckpt=tmp_path / "cut" / name.replace("best_steps_", ""))
    again, resumed = train("again", ckpt=path.with_name(f"copy_of_{name}"))
    assert again == drawn[8:]
    assert equal(weights(resumed), weights(uninterrupted))
