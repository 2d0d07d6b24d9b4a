"""The CRC-32 of a checkpoint, put together from those that are in it."""

from __future__ import annotations

import errno
import os
import threading
import zlib
from typing import Any

import numpy as np
import pytest
import torch

from lightning_hooks.storage import checkpoints, checksum, files, manifest, torch_files

SHARED = torch.arange(10.0)
OBJECTS: dict[str, Any] = {
    "nothing": None,
    "plain types": {"a": [1, 2.5, "text"]},
    "an empty tensor": torch.empty(0),
    "views of one storage": [SHARED, SHARED[3:7], SHARED.view(2, 5)],
    "many sizes": [torch.randn(n) for n in range(64)],
    "megabytes": {"x": torch.randn(2**20 + 1), "y": torch.zeros(2**20, dtype=torch.uint8)},
}


def crc32_of(path: Any) -> str:
    return f"{zlib.crc32(path.read_bytes()):08x}"


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("name", ["a.pth", "dé/epoch_1.pth"])
def test_it_is_that_of_the_bytes(tmp_path, kind, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    found = torch_files.write_synced(OBJECTS[kind], str(path))
    assert found == (path.stat().st_size, crc32_of(path))
    assert checksum.checksum(str(path)) == crc32_of(path)


def test_without_the_checksums_of_torch(tmp_path):
    path = tmp_path / "a.pth"
    torch.serialization.set_crc32_options(False)
    try:
        found = torch_files.write_synced(SHARED, str(path))
    finally:
        torch.serialization.set_crc32_options(True)
    assert found == (path.stat().st_size, crc32_of(path))


def test_parts_in_a_row():
    random = np.random.default_rng(0)
    for _ in range(20):
        parts = [random.bytes(int(n)) for n in random.integers(0, 3000, int(random.integers(1, 9)))]
        joined = checksum.joined([*map(zlib.crc32, parts)], [*map(len, parts)])
        assert joined == zlib.crc32(b"".join(parts))


def test_parts_of_many_gigabytes():
    values, lengths = [0x12345678, 0x9ABCDEF0, 0x0FEDCBA9], [5 * 2**30, 3, 7 * 2**40 + 1]
    first = checksum.joined(values[:2], lengths[:2])
    last = checksum.joined(values[1:], lengths[1:])
    whole = checksum.joined(values, lengths)
    assert whole == checksum.joined([first, values[2]], [sum(lengths[:2]), lengths[2]])
    assert whole == checksum.joined([values[0], last], [lengths[0], sum(lengths[1:])])


@pytest.mark.parametrize("when", ["in the middle", "at the end"])
def test_a_disk_that_fails_leaves_no_file(tmp_path, monkeypatch, when):
    """Also when it is a sync in the middle of the writing that is told, which is told once."""
    failed = threading.Event()
    sync = files.sync

    def fail_once(path: str) -> None:
        if failed.is_set():
            sync(path)
            return
        failed.set()
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    class Waits:
        def __reduce__(self) -> Any:
            assert failed.wait(60)
            return dict, ()

    path = tmp_path / manifest.NAME
    manifest.Manifest(str(path), b'{"files": [], "begun": ["0123456789ab"]}').write()
    monkeypatch.setattr(files, "sync", fail_once)
    if when == "in the middle":
        monkeypatch.setattr(torch_files, "SYNC_INTERVAL", 0)
    obj = Waits() if when == "in the middle" else SHARED
    target = checkpoints.Target(str(tmp_path), "a.pth", "0123456789ab", "series")
    with pytest.raises(OSError, match="Input/output error"):
        checkpoints.save({"meta": obj}, str(tmp_path / "a.pth"), target)
    assert [path.name for path in tmp_path.iterdir()] == [manifest.NAME]
