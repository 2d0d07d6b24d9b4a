"""CheckpointHook(background=True): what is written while the training goes on."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import (
    BestCheckpointHook,
    CheckpointHook,
    EMAHook,
    EvalHook,
    Hook,
    HookAdapter,
    newest_valid,
)
from lightning_hooks.storage import checkpoints
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def hook_of(**kwargs: Any) -> CheckpointHook:
    return CheckpointHook(**{"interval": 1, "background": True, "create_symlink": False, **kwargs})


fit = partial(training.fit, max_epochs=3)


class Counted(TinyModule):
    """Logs the number of the epoch at validation: each is better than the one before."""

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("epoch", float(self.current_epoch))


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
        for part in ("state_dict", "current_model_state"):
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

    fit(tmp_path, hook_of(max_keep_ckpts=1), Looks(), max_epochs=4)
    # nothing is deleted before its successor is there
    assert [(epoch, writing) for epoch, writing, _ in seen[1:]] == [(1, True), (2, True), (3, True)]
    assert [files for *_, files in seen] == [set(), set(), {"epoch_1.pth"}, {"epoch_2.pth"}]
    assert names(tmp_path) == {"epoch_4.pth"}  # the end of the fit waits


@pytest.mark.parametrize(("kind", "fails_at"), [("last", 1), ("last", 2), ("best", 2)])
def test_an_error_comes_up_after_the_next_step_or_at_the_end(tmp_path, monkeypatch, kind, fails_at):
    class FillsUp(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            for thread in threading.enumerate():
                if thread.name.startswith("save "):
                    thread.join()

        def after_train_epoch(self, runner: Any) -> None:
            if runner.epoch + 1 == fails_at:
                hook.teardown(runner.trainer, runner.module, "fit")
                monkeypatch.setattr(os, "fsync", full)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    hook = hook_of(max_keep_ckpts=1)
    if kind == "best":
        hook = BestCheckpointHook("epoch", "greater", background=True)
    module = Counted()
    trainer = make_trainer(tmp_path, hook, FillsUp(), max_epochs=2, enable_checkpointing=True)
    with pytest.raises(OSError, match="No space") as caught:
        trainer.fit(module, make_loader(), make_loader(1))
    if sys.version_info >= (3, 11):
        assert f"epoch_{fails_at}.pth was written in the background" in caught.value.__notes__[0]
    assert len(module.losses) == (5 if fails_at == 1 else 8)
    first = "epoch_1.pth" if kind == "last" else "best_epoch_epoch_1.pth"
    assert names(tmp_path) == ({first} if fails_at == 2 else set())
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


@pytest.mark.usefixtures("slow_disk")
@pytest.mark.parametrize(("kind", "keep"), [(BestCheckpointHook, 2), (EvalHook, 1)])
def test_the_best_is_written_beside_the_training_too(tmp_path, kind, keep):
    seen: list[Any] = []

    class Looks(Hook):
        def before_train_epoch(self, runner: Any) -> None:
            writing = any(t.name.startswith("save ") for t in threading.enumerate())
            seen.append((writing, names(tmp_path)))

    arguments = {"save_best": "epoch", "rule": "greater", "keep_best": keep, "background": True}
    hook = kind(**arguments) if kind is BestCheckpointHook else kind(None, **arguments)
    trainer = make_trainer(tmp_path, HookAdapter([hook, Looks()]), max_epochs=4)
    trainer.fit(Counted(), make_loader(), make_loader(1))
    # nothing is deleted before its successor is there
    files = [{f"best_epoch_epoch_{n}.pth" for n in which} for which in ([], [1], [2], [4])]
    if keep == 2:
        files = [
            {f"best_epoch_epoch_{n}.pth" for n in which} for which in ([], [1], [1, 2], [3, 4])
        ]
    assert [writing for writing, _ in seen] == [False, True, True, True]
    assert [there for _, there in seen[1:]] == files[:3]
    assert names(tmp_path) == files[3]
    runner = next(c for c in trainer.callbacks if hasattr(c, "runner")).runner
    ranking = runner.meta["hook_msgs"]["best_ckpts"]["epoch"]
    assert {Path(path).name for _, path in ranking} == files[3]


@pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
def test_a_function_is_told_of_each_file_that_is_there(tmp_path, background):
    told: list[tuple[str, bool, str]] = []

    def tell(path: str) -> None:
        on_training_thread = threading.current_thread() is threading.main_thread()
        told.append((Path(path).name, on_training_thread, str(newest_valid(tmp_path))))

    last = hook_of(background=background, on_saved=tell, max_keep_ckpts=1)
    fit(tmp_path, last, max_epochs=2)
    assert told == [(n, not background, str(tmp_path / n)) for n in ("epoch_1.pth", "epoch_2.pth")]
    told.clear()
    best = BestCheckpointHook("epoch", "greater", background=background, on_saved=tell)
    trainer = make_trainer(tmp_path, best, max_epochs=2, enable_checkpointing=True)
    trainer.fit(Counted(), make_loader(), make_loader(1))
    assert [name for name, *_ in told] == [f"best_epoch_epoch_{n}.pth" for n in (1, 2)]


def test_an_error_of_the_function_is_the_runs(tmp_path):
    def fail(path: str) -> None:
        raise ConnectionError("no such bucket")

    with pytest.raises(ConnectionError, match="no such bucket"):
        fit(tmp_path, hook_of(on_saved=fail))
    assert names(tmp_path) == {"epoch_1.pth"}


@pytest.mark.parametrize("host", [False, True], ids=["direct", "hosted"])
def test_an_older_file_that_is_written_slowly_is_not_the_last(tmp_path, monkeypatch, host):
    save, newer_is_there = checkpoints.save, threading.Event()

    def save_late(checkpoint: Any, target: checkpoints.Target) -> list[str]:
        if target.name == "epoch_1.pth":
            assert newer_is_there.wait(10)
        old = save(checkpoint, target)
        if target.name == "iter_6.pth":
            newer_is_there.set()
        return old

    monkeypatch.setattr(checkpoints, "save", save_late)
    slow = CheckpointHook(interval=1, background=True, save_last=False)
    hooks = [slow, CheckpointHook(interval=6, by_epoch=False, save_last=False)]
    monkeypatch.setattr(slow, "every_n_epochs", lambda runner, n: runner.epoch == 0)
    fit(tmp_path, *([HookAdapter(hooks)] if host else hooks), max_epochs=2)
    assert names(tmp_path) == {"epoch_1.pth", "iter_6.pth", "latest.pth"}
    assert newest_valid(tmp_path) == str(tmp_path / "iter_6.pth")
    assert (tmp_path / "latest.pth").resolve() == tmp_path / "iter_6.pth"


@pytest.mark.parametrize("fails", [False, True])
def test_the_memory_of_the_copies_is_free_after_the_fit(tmp_path: Path, fails: bool) -> None:
    class Module(TinyModule):
        def make_net(self) -> torch.nn.Module:
            return torch.nn.Sequential(torch.nn.Linear(4, 997), torch.nn.Linear(997, 2))

        def on_train_epoch_start(self) -> None:
            if fails and self.current_epoch == 2:
                raise ValueError("bad")

    def copies() -> int:
        gc.collect()
        tensors = [each for each in gc.get_objects() if type(each) is torch.Tensor]
        return sum(t.dtype == torch.uint8 and t.numel() == 4 * 997 * 4 for t in tensors)

    hook = hook_of(on_exception=True)
    with pytest.raises(ValueError, match="bad") if fails else contextlib.nullcontext():
        fit(tmp_path, hook, module=Module)
    assert hook.last_model_path
    assert copies() == 0
