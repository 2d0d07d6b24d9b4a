"""CheckpointHook(background=True): what is written while the training goes on."""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import TinyModule, make_loader, make_trainer

from lightning_hooks import CheckpointHook, EMAHook, Hook, HookAdapter, newest_valid

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def hook_of(**kwargs: Any) -> CheckpointHook:
    return CheckpointHook(**{"interval": 1, "background": True, "create_symlink": False, **kwargs})


def fit(tmp_path: Path, *hooks: Any, epochs: int = 3, host: bool = False) -> Any:
    given = [HookAdapter(list(hooks))] if host else hooks
    trainer = make_trainer(tmp_path, *given, max_epochs=epochs, enable_checkpointing=not host)
    trainer.fit(TinyModule(), make_loader())
    return trainer


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.glob("*.pth")}


@pytest.fixture
def slow_disk(monkeypatch: Any) -> list[float]:
    """Have each fsync wait, and note when it was called."""
    calls, sync = [], os.fsync

    def wait(descriptor: int) -> None:
        calls.append(time.monotonic())
        time.sleep(0.1)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", wait)
    return calls


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_the_files_are_those_of_the_other_way(tmp_path, host):
    for background in (False, True):
        hooks = [EMAHook(momentum=0.1), hook_of(background=background, max_keep_ckpts=2)]
        fit(tmp_path / str(background), *hooks, host=host)
    ours, others = ({p.name: p for p in (tmp_path / n).glob("*.pth")} for n in ("True", "False"))
    assert ours.keys() == others.keys() == {"epoch_2.pth", "epoch_3.pth"}
    for name in ours:
        a, b = (torch.load(files[name], weights_only=True) for files in (ours, others))
        assert a.keys() == b.keys()
        for part in ("state_dict", "ema_state_dict"):
            assert all(torch.equal(a[part][k], b[part][k]) for k in b[part])
        assert str(a["optimizer_states"]) == str(b["optimizer_states"])
        assert a["loops"] == b["loops"]


@pytest.mark.usefixtures("slow_disk")
def test_training_goes_on_and_the_next_save_waits(tmp_path):
    seen: list[Any] = []

    class Looks(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            writing = any(t.name.startswith("save ") for t in threading.enumerate())
            seen.append((runner.epoch, writing, names(tmp_path)))

    fit(tmp_path, hook_of(max_keep_ckpts=1), Looks(), epochs=4)
    # nothing is deleted before its successor is there
    assert [(epoch, writing) for epoch, writing, _ in seen[1:]] == [(1, True), (2, True), (3, True)]
    assert [files for *_, files in seen] == [set(), set(), {"epoch_1.pth"}, {"epoch_2.pth"}]
    assert names(tmp_path) == {"epoch_4.pth"}  # the end of the fit waits


@pytest.mark.parametrize("fails_at", [1, 2])
def test_an_error_comes_up_at_the_next_save_or_the_end(tmp_path, monkeypatch, fails_at):
    class FillsUp(Hook):
        epochs = 0

        def after_train_epoch(self, runner: Any) -> None:
            self.epochs += 1
            if runner.epoch + 1 == fails_at:
                hook._background.wait()
                monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    fills, hook = FillsUp(), hook_of(max_keep_ckpts=1)
    with pytest.raises(OSError, match="No space") as caught:
        fit(tmp_path, hook, fills, epochs=2)
    if sys.version_info >= (3, 11):
        assert f"epoch_{fails_at}.pth was written in the background" in caught.value.__notes__[0]
    assert fills.epochs == 2
    assert names(tmp_path) == ({"epoch_1.pth"} if fails_at == 2 else set())
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.usefixtures("slow_disk")
def test_an_exception_waits_for_the_file(tmp_path):
    class Fails(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                raise RuntimeError("x")

    with pytest.raises(RuntimeError, match="x"):
        fit(tmp_path, hook_of(), Fails())
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")


def test_an_exceptions_own_error_is_raised_and_the_writers_logged(tmp_path, monkeypatch, caplog):
    class Fails(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            if runner.epoch == 1:
                raise RuntimeError("x")
            monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(RuntimeError, match="x"):
        fit(tmp_path, hook_of(), Fails())
    assert "A checkpoint was not written" in caplog.text
    assert "No space" in caplog.text
