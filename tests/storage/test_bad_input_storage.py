"""Damaged and foreign files of a work dir: a documented error or a good result, nothing else."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import ZipFile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_hooks.storage import checkpoints, files, find_checkpoints, manifest, verification
from lightning_hooks.storage.checksum import checksum
from lightning_hooks.storage.entry import Entry
from lightning_hooks.storage.layout import DamagedCheckpointError
from support.torture.bad_input import NAMES, odd, tried, tries

CONTENT = {
    "state_dict": {"weight": torch.arange(6.0), "bias": torch.ones(2, dtype=torch.int64)},
    "optimizer_states": [{"state": {0: {"step": 3}}, "param_groups": [{"lr": 0.1}]}],
    "pytorch-lightning_version": "2.6",
    "meta": {"epoch": 1, "iter": 4, "names": ["a", "b"]},
}
REFUSED = (DamagedCheckpointError, pickle.UnpicklingError)


def saved(**how: Any) -> bytes:
    file = io.BytesIO()
    torch.save(CONTENT, file, **how)
    return file.getvalue()


ARCHIVE, LEGACY = saved(), saved(_use_new_zipfile_serialization=False)


def regions() -> dict[str, tuple[int, int]]:
    """The parts of the archive: the head and the content of each record, the directory, the end."""
    found = {}
    with ZipFile(io.BytesIO(ARCHIVE)) as archive:
        records = archive.infolist()
        begins = [*(record.header_offset for record in records), archive.start_dir]
    for record, end in zip(records, begins[1:], strict=True):
        content = end - record.file_size
        found[f"head of {record.filename}"] = record.header_offset, content
        found[record.filename] = content, end
    end = ARCHIVE.rindex(b"PK\5\6")
    return {**found, "directory": (begins[-1], end), "end": (end, len(ARCHIVE))}


REGIONS = {name: place for name, place in regions().items() if place[0] < place[1]}


@st.composite
def flips(draw: Any) -> list[tuple[int, int]]:
    """Draw bits of the archive from one or several regions."""
    places = draw(st.lists(st.sampled_from(sorted(REGIONS.values())), min_size=1, max_size=3))
    return [(draw(st.integers(first, end - 1)), draw(st.integers(0, 7))) for first, end in places]


def with_flips(content: bytes, bits: list[tuple[int, int]]) -> bytes:
    damaged = bytearray(content)
    for place, bit in bits:
        damaged[place % len(damaged)] ^= 1 << bit
    return bytes(damaged)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return type(one) is type(other) and bool(one == other)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files").resolve()


@tries(60, data_file=True)
@given(flips(), st.booleans())
def test_flipped_bits_in_a_checkpoint_that_no_list_knows(
    folder: Path, bits: list[tuple[int, int]], in_half: bool
) -> None:
    tried["checkpoints with flipped bits"] += 1
    path = folder / "a.pth"
    damaged = with_flips(ARCHIVE, bits)
    path.write_bytes(damaged[: max(place for place, _ in bits)] if in_half else damaged)
    with contextlib.suppress(*REFUSED):
        assert same(verification.load(str(path)), CONTENT)


@tries(60, data_file=True)
@given(st.lists(st.tuples(st.integers(0), st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits_in_a_checkpoint_of_the_old_layout(
    folder: Path, bits: list[tuple[int, int]]
) -> None:
    """The old layout has no checksums, so the file is refused or loaded with a warning."""
    tried["old checkpoints with flipped bits"] += 1
    path = folder / "a.pth"
    path.write_bytes(with_flips(LEGACY, bits))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = verification.load(str(path))
        except REFUSED:
            return
    assert isinstance(found, dict)
    assert any("has no checksums in it" in str(one.message) for one in caught)


class Listed(NamedTuple):
    """A work dir with two checkpoints of a run, and foreign files."""

    work: Path
    table: dict[str, Any]
    foreign: dict[Path, Any]


def tree(folder: Path) -> dict[Path, Any]:
    found = {}
    for path in folder.rglob("*"):
        link = os.readlink(path) if path.is_symlink() else None
        found[path] = link or (None if path.is_dir() else path.read_bytes())
    return found


RUN = "0123456789ab"


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Listed:
    above = tmp_path_factory.mktemp("lists").resolve()
    work = above / "work"
    (work / "mine").mkdir(parents=True)
    (above / "victim").mkdir()
    (work / "link").symlink_to(above / "victim")
    for path in (work / "mine" / "x", work / "x", above / "victim" / "x"):
        path.write_bytes(b"mine")
    foreign = tree(above)
    entries = []
    for number, name in enumerate(("a.pth", "b.pth"), 1):
        (work / name).write_bytes(ARCHIVE)
        size, crc32 = len(ARCHIVE), checksum(str(work / name))
        entries.append(vars(Entry(name, size, crc32, number, number, "", RUN, "series")))
    return Listed(work, {"version": 1, "files": entries}, foreign)


ELSEWHERE = ["link/x", "link", "mine", "mine/x", ".", "./x", "mine/.", "x", "../victim/x", "\ud800"]


@st.composite
def tables(draw: Any, table: dict[str, Any]) -> bytes:
    """Draw a list of checkpoints: with odd values and names, cut off, or no list at all."""
    if draw(st.integers(0, 9)) == 0:
        return bytes(draw(st.binary(max_size=60)))
    table = json.loads(json.dumps(table))
    for _ in range(draw(st.integers(1, 3))):
        entry = dict(draw(st.sampled_from(table["files"])))
        field = draw(st.sampled_from(sorted(entry)))
        entry[field] = draw(odd() | st.sampled_from([*ELSEWHERE, *NAMES]))
        if draw(st.booleans()):
            entry.update(
                name=draw(st.sampled_from(ELSEWHERE)), size=draw(st.sampled_from([None, 4]))
            )
        table["files"].insert(draw(st.integers(0, len(table["files"]))), entry)
    if draw(st.integers(0, 4)) == 0:
        table[draw(st.sampled_from(["files", "version"]))] = draw(odd())
    contents = json.dumps(table, default=repr, skipkeys=True).encode()
    if draw(st.integers(0, 4)) == 0:
        return contents[: draw(st.integers(0, len(contents)))]
    return contents


@pytest.fixture(scope="module")
def without_syncs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "sync", lambda path: None)
        yield


@tries(60, data_file=True)
@given(st.data())
def test_a_list_of_checkpoints_of_any_content(
    listed: Listed, without_syncs: None, data: Any
) -> None:
    tried["lists of checkpoints"] += 1
    work, table, foreign = listed
    for name in ("a.pth", "b.pth"):
        (work / name).write_bytes(ARCHIVE)
    (work / manifest.NAME).write_bytes(data.draw(tables(table)))
    keep_one = partial(checkpoints.superseded, limit=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        newest = find_checkpoints.newest_valid(str(work))
        find_checkpoints.best_valid(str(work))
        if newest is not None:
            assert Path(newest).parent in (work, work / "mine")
        checkpoints.clean_up(str(work), RUN, "series", keep_one, resumed_at=2)
        (work / "b.pth").write_bytes(ARCHIVE)
        target = checkpoints.Target(str(work), "b.pth", RUN, "series", choose_old=keep_one)
        checkpoints.record(target, {"epoch": 3, "iter": 3})
        assert find_checkpoints.newest_valid(str(work)) == str(work / "b.pth")
    after = tree(work.parent)
    assert {path: after.get(path) for path in foreign} == foreign
    ours = {work / name for name in ("a.pth", "b.pth", manifest.NAME)}
    assert after.keys() - foreign.keys() <= ours
