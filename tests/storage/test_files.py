"""Files are written completely or not at all."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import signal
import threading
import time
import warnings
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import pytest
import torch

from lightning_hooks.storage import files, locks, torch_files
from lightning_hooks.storage.checkpoint_io import AtomicCheckpointIO
from lightning_hooks.utils.plain_types import plain


def write_half(path: str) -> None:
    with files.atomic_write(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("old", [None, b"old"])
def test_an_error_leaves_what_was_there(tmp_path, old):
    path = tmp_path / "a.bin"
    if old:
        path.write_bytes(old)
    with pytest.raises(KeyboardInterrupt):
        write_half(str(path))
    assert (path.read_bytes() if path.exists() else None) == old
    assert len(os.listdir(tmp_path)) == bool(old)


def test_appears_only_when_complete_in_a_directory_that_is_made(tmp_path):
    path = tmp_path / "a" / "b" / "c.bin"
    with files.atomic_write(f"file://{path}") as file:
        file.write(b"all")
        assert not path.exists()
    assert path.read_bytes() == b"all"
    assert os.listdir(path.parent) == ["c.bin"]


def test_an_object_that_cannot_be_saved_leaves_no_file(tmp_path):
    with pytest.raises(Exception, match=r"Can't (pickle|get) local object"):  # get: Python 3.13
        torch_files.save_torch({"a": lambda: 0}, str(tmp_path / "a.pth"))
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = str(tmp_path / "a.pth")
    torch_files.save_torch({"a": 1}, path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        torch_files.save_torch({"a": 2}, path)
    assert torch_files.load_torch(path) == {"a": 1}
    assert os.listdir(tmp_path) == ["a.pth"]


def test_remote_paths():
    path = "memory://test_files/deep/a.pth"
    torch_files.save_torch({"a": torch.ones(2)}, path)
    assert torch_files.load_torch(path)["a"].tolist() == [1, 1]
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert torch_files.load_torch(path)["a"].tolist() == [1, 1]
    fs = fsspec.filesystem("memory")
    assert [Path(name).name for name in fs.ls("/test_files/deep", detail=False)] == ["a.pth"]


def test_plain_is_what_weights_only_loads(tmp_path):
    value = {
        "numpy": np.float32(0.5),
        "array": np.arange(2),
        "path": tmp_path,
        "ordered": OrderedDict(a=np.int64(1)),
        "tuple": (np.bool_(True), None),
        "set": {1},
        3: torch.ones(1),
    }
    torch_files.save_torch(plain(value), str(tmp_path / "a.pth"))
    loaded = torch_files.load_torch(str(tmp_path / "a.pth"))
    assert loaded.pop(3).tolist() == [1]
    assert loaded == {
        "numpy": 0.5,
        "array": [0, 1],
        "path": str(tmp_path),
        "ordered": {"a": 1},
        "tuple": (True, None),
        "set": [1],
    }


def test_join_and_is_local(tmp_path):
    assert files.join("s3://bucket/x", "a", "b.pth") == "s3://bucket/x/a/b.pth"
    assert files.join(str(tmp_path), "a") == str(tmp_path / "a")
    assert files.is_local(str(tmp_path))
    assert files.is_local(f"file://{tmp_path}")
    assert not files.is_local("s3://bucket/a")


def test_checkpoint_io_refuses_storage_options(tmp_path):
    with pytest.raises(TypeError, match="storage_options"):
        AtomicCheckpointIO().save_checkpoint({}, tmp_path / "a", storage_options={"x": 1})


@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_lock_holds_until_its_process_ends_and_leaves_nothing(
    tmp_path: Path, kind: str, windows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process is killed; on Windows the lock is a separate file."""
    if windows:
        monkeypatch.setattr(locks, "sys", SimpleNamespace(platform="win32"))
    path = tmp_path / "work"
    path.mkdir() if kind == "directory" else path.write_text("mine")
    with warnings.catch_warnings():  # of a fork beside threads: the child only sleeps
        warnings.simplefilter("ignore")
        reads, writes = os.pipe()
        pid = os.fork()
    if pid == 0:
        with locks.locked(str(path)):
            os.write(writes, b"x")
            time.sleep(60)
        os._exit(0)
    try:
        assert os.read(reads, 1) == b"x"
        with locks.locked(str(path), wait=False) as is_locked:
            assert is_locked is False
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    with locks.locked(str(path), wait=False) as is_locked:
        assert is_locked is True
    assert [found.name for found in tmp_path.rglob("*")] == ["work"]


def test_an_error_of_the_disk_that_torch_hides_comes_out_with_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(path: str) -> None:
        with files.atomic_path(path):
            raise RuntimeError("unexpected pos 128 vs 0")

    path = str(tmp_path / "a.pth")
    with pytest.raises(RuntimeError, match="unexpected pos"):
        write(path)  # the disk is in order

    def full(path: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files, "sync", full)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        write(path)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        files.write_bytes(path, b"x")
    assert [*tmp_path.iterdir()] == []


def test_a_wait_for_a_lock_is_told_once_and_can_be_cut(
    tmp_path: Path, caplog: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.05)
    held = os.open(tmp_path, os.O_RDONLY)  # as `flock WORK_DIR python train.py` does
    fcntl.flock(held, fcntl.LOCK_EX)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt), files.exclusive(str(tmp_path / "list.json")):
            pass
    finally:
        signal.signal(signal.SIGINT, before)
    (line,) = [each.getMessage() for each in caplog.records]
    assert re.match(rf"waiting for the lock of {tmp_path}, which (another )?process", line)
    os.close(held)
    with files.exclusive(str(tmp_path / "list.json")):  # nothing of the cut wait is left
        pass
