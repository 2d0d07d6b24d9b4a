"""Odd files in place of a checkpoint: a one-sentence error names each file."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch

from lightning_hooks import CheckpointHook, EMAHook, HookAdapter, newest_valid
from lightning_hooks.storage import files, manifest
from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.storage.verification import load
from support import training

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A checkpoint outside any list."""
    training.fit(tmp_path / "work", CheckpointHook(interval=1, create_symlink=False))
    (tmp_path / "elsewhere").mkdir()
    return Path(shutil.copy(tmp_path / "work" / "epoch_1.pth", tmp_path / "elsewhere" / "a.pth"))


def text(path: Path) -> None:
    path.write_text("epoch 3, loss 0.1\n")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def a_list(path: Path) -> None:
    torch.save([torch.ones(1)], path)


def odd_meta(path: Path) -> None:
    torch.save({**torch.load(path, weights_only=True), "meta": 7}, path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flipped(path: Path) -> None:
    """Flip a bit of a weight in the file."""
    weight = torch.load(path, weights_only=True)["state_dict"]["net.weight"]
    content = path.read_bytes()
    at = content.index(weight.numpy().tobytes())
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


KINDS = {
    text: r"is no checkpoint: it begins with b'epoch 3, loss 0.1",
    empty: "is an empty file",
    odd_meta: "'meta' is damaged: it must be a dict, got 7",
    a_list: "holds a list, and a checkpoint is a dict",
    folder: "is a folder or a pipe, not a file",
    half: "cannot be read: File is not a zip file",
    flipped: "is damaged: its record '.*/data/0' has another CRC-32 than it was written",
}


@pytest.mark.parametrize(
    ("kind", "hosted", "hook"),
    [
        *((kind, number % 2 == 0, CheckpointHook(interval=1)) for number, kind in enumerate(KINDS)),
        (flipped, False, EMAHook()),
        (half, True, EMAHook()),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_file_that_is_no_checkpoint_is_refused_by_what_it_is(
    saved: Path, kind: Any, hosted: bool, hook: Any
) -> None:
    kind(saved)
    with pytest.raises(DamagedCheckpointError, match=f"a.pth(?:'s)? {KINDS[kind]}"):
        training.fit(saved.parent, hook, host=hosted, max_epochs=2, ckpt_path=str(saved))


def test_a_listed_file_that_is_no_checkpoint_names_the_newest_valid_one(tmp_path: Path) -> None:
    training.fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), max_epochs=2)
    folder(tmp_path / "epoch_2.pth")
    with pytest.raises(DamagedCheckpointError, match=r"is a folder.*valid.* is .*epoch_1.pth"):
        load(str(tmp_path / "epoch_2.pth"))


@pytest.mark.parametrize("kind", ["torch's old layout", "without torch's checksums"])
def test_a_file_without_checksums_is_unverified(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.pth"
    torch.serialization.set_crc32_options(kind == "torch's old layout")
    old = kind == "torch's old layout"
    try:
        torch.save({"x": 1}, path, _use_new_zipfile_serialization=not old)
    finally:
        torch.serialization.set_crc32_options(True)
    with pytest.warns(UserWarning, match=r"a.pth has no checksums in it.*not known whether"):
        assert load(str(path)) == {"x": 1}
    again = torch.load(path, weights_only=True)
    torch.save(again, path)  # as the warning advises
    assert load(str(path)) == {"x": 1}


@pytest.mark.parametrize(("by_epoch", "hosted"), [(True, False), (False, True)])
def test_a_folder_in_the_place_of_the_link_does_not_end_the_run(
    tmp_path: Path, by_epoch: bool, hosted: bool
) -> None:
    mine = tmp_path / "latest.pth" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    hook = CheckpointHook(1 if by_epoch else 4, by_epoch)
    with pytest.warns(UserWarning, match=r"latest.pth cannot be pointed at.*create_symlink=False"):
        training.fit(tmp_path, hook, host=hosted, max_epochs=2)
    assert mine.read_text() == "mine"
    assert newest_valid(tmp_path) == str(tmp_path / ("epoch_2.pth" if by_epoch else "iter_8.pth"))
    assert list(tmp_path.glob("*.tmp")) == []


def test_a_name_of_the_best_that_no_file_system_takes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "lightning_hooks")  # a report with the name cannot be sent

    class Logs(training.TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("\ud800", 1.0)

    hook = CheckpointHook(interval=1, save_best="\ud800", rule="greater")
    training.fit(tmp_path, HookAdapter([hook]), module=Logs, val=1)
    assert hook.best_model_path == str(tmp_path / "best___epoch_1.pth")
    assert Path(hook.best_model_path).is_file()
    assert {entry.series for entry in manifest.read(str(tmp_path))} == {
        hook._last._series,
        "best \ud800",
    }


def test_a_local_path_with_colons_is_no_chain_of_urls(tmp_path: Path) -> None:
    folder, begun = tmp_path / "a::b", []

    class Notes(L.Callback):
        def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
            begun.append(trainer.global_step)

    def fit(epochs: int, path: str | None = None) -> None:
        hooks = CheckpointHook(interval=1, create_symlink=False), Notes()
        trainer = training.make_trainer(
            folder, *hooks, max_epochs=epochs, enable_checkpointing=True
        )
        trainer.fit(training.NoValidation(), training.make_loader(4), ckpt_path=path)

    fit(1)
    assert newest_valid(str(folder)) == str(folder / "epoch_1.pth")
    fit(2, "last")
    fit(3, str(folder / "epoch_2.pth"))
    assert begun == [0, 4, 8]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_a_folder_that_cannot_be_synced_is_noted_once(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.warns(UserWarning, match=r"cannot sync a directory") as said:
        training.fit(tmp_path, CheckpointHook(interval=1), max_epochs=3)
    assert len([w for w in said if "cannot sync" in str(w.message)]) == 1
    assert (tmp_path / "epoch_3.pth").exists()


def test_a_file_that_cannot_be_synced_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=r"epoch_1\.pth"):
        training.fit(tmp_path, CheckpointHook(interval=1))


def test_a_directory_of_a_strategy_with_shards_is_answered_by_how_to_write_files(
    tmp_path: Path,
) -> None:
    path = tmp_path / "epoch_1.pth"
    path.mkdir()
    (path / ".metadata").touch()
    with pytest.raises(ValueError, match=r"part of each rank.* save_distributed_checkpoint=False"):
        training.fit(tmp_path, CheckpointHook(interval=1), ckpt_path=path)


def test_a_pipe_is_refused_by_name_and_never_the_newest_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "epoch_1.pth"
    os.mkfifo(path)
    with pytest.raises(DamagedCheckpointError, match=r"epoch_1.pth is a folder or a pipe, not"):
        load(str(path))
    with (
        pytest.warns(UserWarning, match="no last checkpoint available"),
        pytest.raises(FileExistsError, match=r"found no checkpoint to load.*epoch_1\.pth"),
    ):
        training.fit(tmp_path, CheckpointHook(interval=1), ckpt_path="last")


def test_a_list_that_is_a_device_without_end_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "checkpoints.json").symlink_to("/dev/zero")
    with pytest.warns(UserWarning, match=r"checkpoints\.json is no list of checkpoints"):
        training.fit(tmp_path, CheckpointHook(interval=1))
    assert [entry.name for entry in manifest.read(str(tmp_path))] == ["epoch_1.pth"]


def test_a_pipe_by_the_name_of_a_half_written_file_is_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.pth.run.tmp")
    with files.locked_path(str(tmp_path / "a.pth"), "run") as temporary:
        Path(temporary).write_text("whole")
    assert (tmp_path / "a.pth").read_text() == "whole"
