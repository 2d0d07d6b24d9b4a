"""A hostile list of checkpoints neither loads nor deletes foreign files."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from lightning_hooks import CheckpointHook, newest_valid
from lightning_hooks.storage import manifest
from lightning_hooks.storage.checkpoints import OWNER
from lightning_hooks.storage.checksum import checksum
from lightning_hooks.storage.entry import Entry
from support import training
from support.training import NoValidation, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def fit(work: Path, *, hosted: bool, by_epoch: bool, **arguments: Any) -> None:
    hook = CheckpointHook(1 if by_epoch else 4, by_epoch, max_keep_ckpts=1)
    training.fit(work, hook, host=hosted, **arguments)


def tree(folder: Path) -> dict[Path, Any]:
    """Everything in a folder, with the contents of files and links."""

    def content(path: Path) -> Any:
        if path.is_symlink():
            return os.readlink(path)
        return None if path.is_dir() else path.read_bytes()

    return {path: content(path) for path in folder.rglob("*")}


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """Create foreign files inside and outside the work dir."""
    work = tmp_path / "work"
    for folder in (tmp_path / "victim" / "vdir", work / "mine"):
        folder.mkdir(parents=True)
        (folder / "precious.txt").write_text("mine")
    (tmp_path / "victim" / "file").write_text("mine")
    (work / "notes.txt").write_text("mine")
    (work / "link").symlink_to(tmp_path / "victim")
    (work / "linked.txt").symlink_to(work / "notes.txt")
    (work / "half").mkdir()
    for name in (".metadata", "__0_0.distcp", "thesis.tex"):
        (work / "half" / name).write_text("mine")
    (work / "empty").mkdir()
    (work / "shards").mkdir()
    (work / "shards" / ".metadata").mkdir()
    return work


SIZED = ["notes.txt", "mine/precious.txt", "linked.txt", "link/file", "link/vdir/precious.txt"]
NAMES = [
    *(*SIZED, "link", "link/vdir", ".", "./", "", "mine", "mine/", "mine/.", "./notes.txt", ".."),
    *("mine/../notes.txt", "link/..", "half", "empty", "shards", "\ud800", "a\0b", "x" * 999, "//"),
]


@pytest.mark.parametrize(
    ("crc32", "hosted", "by_epoch"),
    [("right", False, True), ("wrong", True, False), (None, False, True)],
)
def test_no_name_in_a_list_deletes_what_is_not_ours(
    mine: Path, crc32: str | None, hosted: bool, by_epoch: bool
) -> None:
    fit(mine, hosted=hosted, by_epoch=by_epoch, max_epochs=1)
    mine = mine.resolve()
    listed = mine / manifest.NAME
    table = json.loads(listed.read_text())
    (real,) = table["files"]
    table["files"] = []
    for name in NAMES:
        size, crc = None, None
        if name in SIZED:
            size = 4
            crc = checksum(str(mine / name)) if crc32 == "right" else crc32 and "0" * 8
            if crc32 == "right" and "link" not in name:
                crc = "12345678"  # otherwise the list would match the file
        table["files"].append({**real, "name": name, "size": size, "crc32": crc, "iter": 0})
    table["files"].append(real)
    listed.write_text(json.dumps(table))
    ours = {mine / manifest.NAME, mine / "latest.pth", mine / real["name"]}
    before = {path: held for path, held in tree(mine.parent).items() if path not in ours}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(
            mine, hosted=hosted, by_epoch=by_epoch, max_epochs=2, ckpt_path=str(mine / real["name"])
        )
    after = tree(mine.parent)
    newest = mine / ("epoch_2.pth" if by_epoch else "iter_8.pth")
    assert newest_valid(mine) == str(newest)
    assert {path: after.get(path) for path in before} == before
    assert not (mine / real["name"]).exists(), "what is ours goes"
    said = {str(one.message) for one in caught}
    assert any("link/vdir is behind a symbolic link" in one for one in said)
    assert any("half is a folder with more in it than the shards" in one for one in said)
    assert any("'mine/.' is no name of a file" in one for one in said)


def listed(name: str, path: Path | None = None) -> Entry:
    size, crc32 = (path.stat().st_size, checksum(str(path))) if path else (None, None)
    return Entry(name, size, crc32, 1, 1, "", "0123456789ab", "s")


def test_listed_files_are_deleted_and_links_are_not(mine: Path) -> None:
    mine = mine.resolve()
    for name in ("linked.txt", "link/file"):
        assert "is behind a symbolic link" in listed(name, mine / name).remove(str(mine))
        assert "is behind a symbolic link" in listed(name, mine / name).flaw(str(mine))
    (mine / "3").mkdir()
    (mine / "3" / ".metadata").write_text("shards")
    (mine / "3" / "__0_0.distcp").write_text("a part")
    for name in ("notes.txt", "mine/precious.txt"):
        assert listed(name, mine / name).remove(str(mine)) == ""
        assert not (mine / name).exists()
    assert listed("3").flaw(str(mine)) == ""
    assert listed("3").remove(str(mine)) == ""
    assert not (mine / "3").exists()
    for name in ("half", "empty", "shards", "mine"):
        assert "is a folder with more in it" in listed(name).remove(str(mine))
    assert listed("nothing").remove(str(mine)) == ""
    os.mkfifo(mine / "pipe")
    assert "no regular file" in listed("pipe", mine / "half" / "thesis.tex").remove(str(mine))
    assert "no regular file" in listed("pipe", mine / "half" / "thesis.tex").flaw(str(mine))


def test_a_link_by_the_name_of_a_temporary_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for epochs, resumed in ((1, None), (2, tmp_path / "epoch_1.pth")):
        options = {"enable_checkpointing": True, "max_epochs": epochs}
        trainer = make_trainer(tmp_path, CheckpointHook(interval=1), **options)
        trainer.fit(NoValidation(), make_loader(), ckpt_path=resumed)
        (run,) = {entry.run for entry in manifest.read(str(tmp_path))}  # the run in the checkpoint
        if resumed is None:
            os.symlink(victim, tmp_path / f"epoch_2.pth.{run}.{OWNER}.tmp")
    assert victim.read_text() == "mine"
    assert not (tmp_path / "epoch_2.pth").is_symlink()


def test_in_a_remote_directory_the_size_decides() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/lists/a.pth": b"ours", "/lists/dir/x": b"mine"})
    known = dataclasses.replace(listed("a.pth"), size=5)
    assert known.remove("memory://lists") == "has 4 bytes of 5"
    assert listed("a.pth").remove("memory://lists") == "has no size in the list"
    assert dataclasses.replace(listed("dir"), size=4).remove("memory://lists") == "is a folder"
    assert memory.find("/lists") == ["/lists/a.pth", "/lists/dir/x"]
    assert dataclasses.replace(known, size=4).remove("memory://lists") == ""
    assert memory.find("/lists") == ["/lists/dir/x"]
    memory.rm("/lists", recursive=True)


def swap_for_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def swap_for_link(path: Path) -> None:
    path.rename(path.parent.parent / "moved.pth")
    path.symlink_to(path.parent.parent / "moved.pth")


@pytest.mark.parametrize(
    ("damage", "says"),
    [(swap_for_folder, "is a folder"), (swap_for_link, "is behind a symbolic link")],
)
def test_a_folder_or_a_link_is_never_the_newest_checkpoint(
    tmp_path: Path, damage: Callable[[Path], None], says: str
) -> None:
    work = tmp_path / "work"
    training.fit(work, CheckpointHook(interval=1, create_symlink=False), max_epochs=2)
    damage(work / "epoch_2.pth")
    with pytest.warns(UserWarning, match=f"epoch_2.pth {says}.*epoch_1.pth is taken instead"):
        assert newest_valid(work) == str(work / "epoch_1.pth")


def test_a_folder_that_no_list_knows_is_not_taken_for_a_checkpoint(tmp_path: Path) -> None:
    hook = CheckpointHook(interval=1, create_symlink=False)
    training.fit(tmp_path, hook, max_epochs=1)
    (tmp_path / manifest.NAME).unlink()
    (tmp_path / "epoch_7.pth").mkdir()
    with pytest.warns(UserWarning, match=r"epoch_1.pth is in no checkpoints.json"):
        assert hook.last_checkpoint == str(tmp_path / "epoch_1.pth")


def test_a_name_in_a_list_does_not_steer_the_terminal(tmp_path: Path) -> None:
    training.fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), max_epochs=1)
    path = tmp_path / manifest.NAME
    table = json.loads(path.read_text())
    table["files"].append({**table["files"][0], "name": "\x1b[2J\nforged"})
    path.write_text(json.dumps(table))
    with pytest.warns(UserWarning, match=re.escape(r"\x1b[2J\nforged is missing")):
        assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")


ODD: list[Any] = [None, 3, "x", [], {}, {"name": "a.pth"}, {"name": 3}]


def test_a_bad_entry_costs_itself_alone(tmp_path: Path) -> None:
    training.fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), max_epochs=1)
    path = tmp_path / manifest.NAME
    table = json.loads(path.read_text())
    (real,) = table["files"]
    fields = ["name", "size", "crc32", "epoch", "time", "run", "series"]
    bad = [*ODD, {**real, "more": 1}, *({**real, field: {"odd": 1}} for field in fields)]
    table["files"] = [*bad, real, {**real, "more": 1}]
    path.write_text(json.dumps(table))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")
        assert len(manifest.read(str(tmp_path))) == 1
    said = [str(one.message) for one in caught]
    assert len(said) == 2 * (len(bad) + 1)
    assert all("lists what is no checkpoint of this directory" in one for one in said)
    for field in fields:
        assert any(f"{field} is {{'odd': 1}}" in one for one in said)


OTHERS: list[dict[str, Any]] = [{}, {"size": 1}, {"crc32": None}, {"name": "gone.pth"}]


@pytest.mark.filterwarnings("ignore:.*gone.pth is missing")
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_a_long_list_costs_time_in_proportion(tmp_path: Path, other: dict[str, Any]) -> None:
    training.fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), max_epochs=1)
    path = tmp_path / manifest.NAME
    table = json.loads(path.read_text())
    (real,) = table["files"]
    seconds = {}
    for count in (2_500, 10_000):
        rows = [{**real, "crc32": f"{i:08x}", **(other if i % 2 else {})} for i in range(count)]
        table["files"] = [*rows, real]
        path.write_text(json.dumps(table))
        gc.collect()
        gc.disable()  # a collection looks at all objects of the other tests
        begin = time.process_time()
        with manifest.opened(str(tmp_path)) as listed:
            listed.match_entries_to_files(real["run"])
            listed.prune(real["run"], real["series"], lambda entries: entries[:-1], real["iter"])
        seconds[count] = time.process_time() - begin
        gc.enable()
    assert seconds[10_000] < 8 * seconds[2_500] + 0.2
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_1.pth")


def test_a_list_without_end_is_refused_before_training(tmp_path: Path) -> None:
    training.fit(tmp_path, CheckpointHook(interval=1, create_symlink=False), max_epochs=1)
    path = tmp_path / manifest.NAME
    table = json.loads(path.read_text())
    table["files"] *= manifest.MOST_FILES + 1
    path.write_text(json.dumps(table))
    with pytest.raises(ValueError, match=r"lists 100001 checkpoints, and 100000 is the most"):
        training.fit(tmp_path, CheckpointHook(interval=1), max_epochs=1)
