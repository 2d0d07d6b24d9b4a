"""A malicious pickle file runs no code, regardless of the function that reads the file."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckInvalidLossHook,
    CheckpointHook,
    EMAHook,
    Hook,
    HookAdapter,
    load_batch,
    newest_valid,
)
from lightning_hooks.cli.app import run
from lightning_hooks.dialects.detectron2 import Checkpointer
from lightning_hooks.loggers.replay import replay
from lightning_hooks.standin.runner import checkpoint
from lightning_hooks.storage import manifest
from lightning_hooks.storage.checksum import checksum
from support import training
from support.fsdp_on_cpu import FSDPOnCPU
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:.*weights_only.*:UserWarning")


class Payload:
    """Creates a folder when unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> Any:
        return os.makedirs, (self.path, 0o777, True)


@pytest.fixture
def fired(tmp_path: Path) -> Path:
    """The path of the folder created by a payload."""
    return tmp_path / "fired"


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A work dir with the checkpoints of a run."""
    fit(tmp_path / "work", EMAHook())
    return tmp_path / "work"


@pytest.fixture
def bad(work: Path, fired: Path) -> Path:
    """The newest checkpoint, forged with matching size and checksum."""
    path = work / "epoch_2.pth"
    forge(path, fired)
    return path


def fit(folder: Path, *hooks: Any, **arguments: Any) -> Any:
    hooks = CheckpointHook(interval=1), *hooks
    return training.fit(folder, *hooks, **{"val": 1, "max_epochs": 2, **arguments})


def forge(path: Path, fired: Path) -> None:
    content = torch.load(path, weights_only=True) if path.exists() else {}
    content = {**content, "current_model_state": Payload(fired), "batch": Payload(fired)}
    torch.save(content, path)
    directory = str(path.parent)
    size, crc32 = path.stat().st_size, checksum(str(path))
    listed_at = os.path.join(directory, manifest.NAME)
    table = manifest.Manifest(listed_at, Path(listed_at).read_bytes())
    table.entries = [
        dataclasses.replace(e, size=size, crc32=crc32) if e.name == path.name else e
        for e in table.entries
    ]
    table.write()


def test_the_payload_would_fire(bad: Path, fired: Path) -> None:
    torch.load(bad, weights_only=False)
    assert fired.exists()


class Asks(Hook):
    """Loads a file as old hooks do."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self.ask = ask

    def before_run(self, runner: Any) -> None:
        self.ask(runner)


WAYS: dict[str, Callable[[Path], Any]] = {
    "resume": lambda p: fit(p.parent, EMAHook(), max_epochs=3, ckpt_path=str(p)),
    "resume from the last": lambda p: fit(p.parent, EMAHook(), max_epochs=3, ckpt_path="last"),
    "resume, hosted": lambda p: make_trainer(
        p.parent, HookAdapter([CheckpointHook(interval=1)]), max_epochs=3
    ).fit(TinyModule(), make_loader(), make_loader(1), ckpt_path=str(p)),
    "validate": lambda p: make_trainer(
        p.parent, CheckpointHook(), enable_checkpointing=True
    ).validate(TinyModule(), make_loader(1), ckpt_path=str(p), verbose=False),
    "resume with a strategy that reads by itself": lambda p: by_itself(p),
    "EMA, at the start": lambda p: fit(p.parent, EMAHook(resume_from=str(p)), max_epochs=3),
    "runner.load_checkpoint": lambda p: fit(
        p.parent / "new", Asks(lambda runner: runner.load_checkpoint(str(p)))
    ),
    "runner.resume": lambda p: fit(p.parent / "new", Asks(lambda runner: runner.resume(str(p)))),
    "the stand-in's load_checkpoint": lambda p: checkpoint.load_checkpoint(TinyModule(), str(p)),
    "the stand-in's loader by URL": lambda p: by_url(p),
    "a Checkpointer": lambda p: Checkpointer(TinyModule()).load(str(p)),
    "EMA's apply_to": lambda p: apply_to(p),
    "export": lambda p: export(p),
    "lightning-hooks plot": lambda p: command("plot", str(p)),
    "lightning-hooks plot, as a log": lambda p: command("plot", renamed(p, "x.log.json")),
    "lightning-hooks convert": lambda p: command("convert", str(p)),
    "lightning-hooks convert, as YAML": lambda p: command("convert", renamed(p, "x.yaml")),
    "lightning-hooks convert, as JSON": lambda p: command("convert", renamed(p, "x.json")),
    "lightning-hooks check": lambda p: command("check", str(p)),
    "lightning-hooks replay": lambda p: command("replay", str(p), "--to", "tensorboard"),
    "load_batch": lambda p: load_batch(str(p)),
    "the last good state": lambda p: restore(p),
    "replay": lambda p: replay(str(p), to="tensorboard", log_dir=str(p.parent / "tb")),
    "the list of checkpoints": lambda p: listed(p),
}


def apply_to(path: Path) -> None:
    """Apply a hook's average, even if the run from the file has failed."""
    hook = EMAHook(resume_from=str(path))
    try:
        fit(path.parent, hook, max_epochs=3)
    finally:
        with contextlib.suppress(RuntimeError):
            hook.apply_to(TinyModule())


def export(path: Path) -> None:
    """Export the best weights from a file replaced after the run."""
    hook = BestCheckpointHook("val_loss")
    work = path.parent / "exported"
    fit(work, hook)
    (best,) = work.glob("best_*.pth")
    forge(best, path.parents[1] / "fired")
    hook.export(str(work / "weights.pth"))


def renamed(path: Path, name: str) -> str:
    """Copy the file to another name, because the command chooses the reader by name."""
    return str(shutil.copy(path, path.with_name(name)))


def command(*words: str) -> None:
    """Run the command; raise an error for a nonzero exit code."""
    if code := run([*words]):
        raise ValueError(f"lightning-hooks {words[0]} ends with {code}")


def by_itself(path: Path) -> None:
    """Resume with FSDP's strategy, which loads the file with Lightning's unsafe reader."""
    trainer = make_trainer(
        path.parent, CheckpointHook(), strategy=FSDPOnCPU(), enable_checkpointing=True, max_epochs=3
    )
    try:
        trainer.fit(TinyModule(), make_loader(), make_loader(1), ckpt_path=str(path))
    finally:
        torch.distributed.destroy_process_group()


def by_url(path: Path) -> Any:
    """Load from a URL whose download is already in torch.hub's folder."""
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "forged.pth")
    return checkpoint.load_checkpoint(TinyModule(), "https://localhost:1/forged.pth")


class Forge(Hook):
    """Replaces a file of the current run, and makes the run reload the file."""

    def __init__(self, path: Path, fired: Path) -> None:
        self.path, self.fired = path, fired

    def before_train_epoch(self, runner: Any) -> None:
        if runner.epoch == 1:
            forge(self.path, self.fired)

    def before_train_iter(self, runner: Any) -> None:
        if runner.epoch == 1 and runner.inner_iter == 2:
            with torch.no_grad():
                runner.module.net.weight.fill_(float("nan"))


def restore(path: Path) -> None:
    work = path.parent / "good"
    forging = Forge(work / "epoch_1.pth", path.parents[1] / "fired")
    fit(work, CheckInvalidLossHook(interval=1, action="restore"), forging)


def listed(path: Path) -> None:
    (path.parent / manifest.NAME).write_bytes(pickle.dumps(Payload(path.parents[1] / "fired")))
    newest_valid(path.parent)


@pytest.mark.filterwarnings("ignore:.*is no list of checkpoints")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_runs(
    way: str, bad: Path, fired: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way.startswith("lightning-hooks"):
        pytest.importorskip("shtab")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "hub"))
    error: Exception | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            WAYS[way](bad)
        except Exception as caught:
            error = caught
    assert not fired.exists()
    # without a read, the test would prove nothing
    assert way == "the list of checkpoints" or isinstance(
        error, (pickle.UnpicklingError, RuntimeError, ValueError)
    ), error
