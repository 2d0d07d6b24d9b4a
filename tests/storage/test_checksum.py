"""The checksum of a checkpoint, and a failing disk."""

from __future__ import annotations

import errno
import os
import zlib

import pytest
import torch

from lightning_hooks.storage import checkpoints, checksum, files


def save(path, content, **options):
    torch.save(content, path, **options)
    return checksum.checksum(str(path))


def test_a_checksum_depends_on_the_contents_alone(tmp_path):
    weights = {"x": torch.arange(5000.0)}
    first = save(tmp_path / "a.pth", weights)
    assert save(tmp_path / "a.pth", weights) == first
    for other in ({"x": torch.arange(5000.0) + 1}, {"y": weights["x"]}, {"x": torch.zeros(1)}):
        assert save(tmp_path / "a.pth", other) != first


@pytest.mark.parametrize("kind", ["no archive", "without torch's checksums"])
def test_the_checksum_of_another_file_is_the_crc32_of_its_bytes(tmp_path, kind):
    path = tmp_path / "a.pth"
    torch.serialization.set_crc32_options(False)
    try:
        found = save(path, torch.arange(10.0), _use_new_zipfile_serialization=kind != "no archive")
    finally:
        torch.serialization.set_crc32_options(True)
    assert found == f"{zlib.crc32(path.read_bytes()):08x}"


def test_a_disk_that_fails_leaves_no_file(tmp_path, monkeypatch):
    def fail(path: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(files, "sync", fail)
    target = checkpoints.Target(str(tmp_path), "a.pth", "0123456789ab", "series")
    with pytest.raises(OSError, match="Input/output error"):
        checkpoints.save({"meta": {}}, target)
    assert [*tmp_path.iterdir()] == []
