"""The list of checkpoints: owners, complete files, and concurrent writers."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import CheckpointHook, HookAdapter, newest_valid
from lightning_hooks.storage import checkpoints, files, manifest
from lightning_hooks.storage.checkpoints import clean_up, link_latest, superseded
from lightning_hooks.storage.entry import Entry, parse
from lightning_hooks.storage.layout import DamagedCheckpointError
from lightning_hooks.storage.locks import locked
from lightning_hooks.storage.manifest import Manifest
from lightning_hooks.storage.verification import WeightsOnlyError
from support import training
from support.training import TinyModule, make_loader, make_trainer

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no")


def run(tmp_path: Path, hook: Any, epochs: int = 3, **options: Any) -> Any:
    return training.fit(tmp_path, hook, max_epochs=epochs, **options)


def test_the_list_describes_each_file(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, max_keep_ckpts=2))
    table = json.loads((tmp_path / manifest.NAME).read_text())
    assert [entry["name"] for entry in table["files"]] == ["epoch_2.pth", "epoch_3.pth"]
    last = table["files"][-1]
    assert last["size"] == (tmp_path / "epoch_3.pth").stat().st_size
    assert (last["epoch"], last["iter"]) == (3, 12)
    assert len(last["crc32"]) == 8
    assert last["time"][:2] == "20"


def entry(name: str, crc32: str = "0") -> Entry:
    return Entry(name, 1, crc32, 0, 0, "", "run", "series")


@pytest.mark.parametrize(
    ("names", "limit", "old"),
    [
        ("abc", -1, ""),
        ("abc", 1, "ab"),
        ("abc", 5, ""),
        ("abca", -1, "a"),  # written anew: the older entry goes
        ("abca", 2, "ab"),
        ("", 1, ""),
    ],
)
def test_superseded_entries(names, limit, old):
    entries = [entry(name, str(i)) for i, name in enumerate(names)]
    found = superseded(entries, limit)
    assert "".join(e.name for e in found) == old
    assert all(e is entries[names.index(e.name)] for e in found)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


damages = pytest.mark.parametrize(
    ("damage", "says"),
    [(truncate, r"bytes of \d+"), (flip, "CRC-32"), (Path.unlink, "missing|not found")],
    ids=["truncated", "flipped", "missing"],
)


@damages
def test_the_last_is_the_newest_that_is_whole(tmp_path, damage, says):
    run(tmp_path, CheckpointHook(interval=1, create_symlink=False))
    damage(tmp_path / "epoch_3.pth")
    with pytest.warns(UserWarning, match=says):
        assert newest_valid(tmp_path) == str(tmp_path / "epoch_2.pth")
    module = TinyModule()
    trainer = make_trainer(tmp_path, CheckpointHook(), max_epochs=4, enable_checkpointing=True)
    with pytest.warns(UserWarning, match="epoch_2.pth is taken instead"):
        trainer.fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 8
    assert trainer.checkpoint_callback.last_model_path == str(tmp_path / "epoch_4.pth")


@damages
def test_a_damaged_file_by_its_path_is_an_error_that_names_another(tmp_path, damage, says):
    run(tmp_path, CheckpointHook(interval=1))
    damage(tmp_path / "epoch_3.pth")
    error = FileNotFoundError if damage is Path.unlink else DamagedCheckpointError
    # the link also points to the file
    for name in ("epoch_3.pth", "latest.pth"):
        with pytest.raises(error, match=f"{says}.*valid.*epoch_2.pth"):
            run(tmp_path, CheckpointHook(), ckpt_path=tmp_path / name)


def test_all_damaged(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, create_symlink=False), 2)
    for path in tmp_path.glob("*.pth"):
        flip(path)
    with pytest.warns(UserWarning, match="no valid checkpoint is left"):
        assert newest_valid(str(tmp_path)) is None


def test_half_a_file_that_no_manifest_knows(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, create_symlink=False), 2)
    (tmp_path / "copy.pth").write_bytes((tmp_path / "epoch_2.pth").read_bytes()[:2000])
    with pytest.raises(DamagedCheckpointError, match=r"cannot be read.*valid.*epoch_2.pth"):
        run(tmp_path, CheckpointHook(), ckpt_path=tmp_path / "copy.pth")


def test_no_manifest_and_a_broken_one(tmp_path):
    assert newest_valid(tmp_path) is None
    assert newest_valid(tmp_path / "nowhere") is None
    for broken in ("{", "[" * 100_000):
        (tmp_path / manifest.NAME).write_text(broken)
        with pytest.warns(UserWarning, match="is no list of checkpoints"):
            assert newest_valid(tmp_path) is None


def test_departure_a_file_without_the_optimizer_is_not_resumed_from(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, save_optimizer=False), 2)
    for path in (tmp_path / "epoch_2.pth", "last"):
        with pytest.raises(WeightsOnlyError, match=r"cannot be resumed.*load_state_dict"):
            run(tmp_path, CheckpointHook(), ckpt_path=path)
    trainer = make_trainer(tmp_path, CheckpointHook(), enable_checkpointing=True)
    trainer.validate(TinyModule(), make_loader(), ckpt_path="last", verbose=False)


def test_among_files_of_weights_the_last_to_resume_from_is_found(tmp_path):
    hooks = [
        CheckpointHook(interval=2, save_last=False),
        CheckpointHook(interval=1, save_optimizer=False, filename_tmpl="weights_{}.pth"),
    ]
    make_trainer(tmp_path, *hooks, max_epochs=3, enable_checkpointing=True).fit(
        TinyModule(), make_loader()
    )
    module = TinyModule()
    trainer = make_trainer(tmp_path, CheckpointHook(), max_epochs=3, enable_checkpointing=True)
    trainer.fit(module, make_loader(), ckpt_path="last")
    assert len(module.losses) == 4


def test_a_save_opens_the_list_once_and_writes_it_again_after_a_deletion(tmp_path, monkeypatch):
    seen = []

    def noted(name: str, call: Any) -> Any:
        def note(*args: Any) -> Any:
            seen.append(name)
            return call(*args)

        return note

    for name in ("exclusive", "locked_path", "write_bytes"):
        monkeypatch.setattr(files, name, noted(name, getattr(files, name)))
    target = checkpoints.Target(str(tmp_path), "a.pth", "0123456789ab", "series")
    for done in (1, 2):
        seen.clear()
        content = {"meta": {"epoch": done, "iter": done}}
        keep_one = partial(superseded, limit=1)
        target = dataclasses.replace(target, name=f"{done}.pth", choose_old=keep_one)
        old = checkpoints.save(content, target)
        assert old == ["1.pth"][: done - 1]
        assert seen == ["locked_path", "exclusive", *["write_bytes"] * done]
    assert [entry.name for entry in manifest.read(str(tmp_path))] == ["2.pth"]
    assert {path.name for path in tmp_path.iterdir()} == {"2.pth", manifest.NAME}


# -- owners of deleted files -------------------------------------------------------------------


def test_another_run_in_the_directory_keeps_its_files(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, filename_tmpl="a_{}.pth"), 2)
    run(tmp_path, CheckpointHook(interval=1, filename_tmpl="b_{}.pth", max_keep_ckpts=1), 3)
    # the same names: files that are not overwritten stay
    run(tmp_path, CheckpointHook(interval=1, filename_tmpl="a_{}.pth", max_keep_ckpts=1), 1)
    assert {p.name for p in tmp_path.glob("*_*.pth")} == {"a_1.pth", "a_2.pth", "b_3.pth"}


def test_a_replaced_file_is_not_deleted(tmp_path):
    hook = CheckpointHook(interval=1, max_keep_ckpts=1, create_symlink=False)
    run(tmp_path, hook, 1)
    (tmp_path / "epoch_1.pth").write_text("mine")
    trainer = make_trainer(tmp_path, hook, max_epochs=1, enable_checkpointing=True)
    trainer.fit(TinyModule(), make_loader())  # a run with other names next
    (tmp_path / "epoch_1.pth").write_text("mine")
    trainer.fit_loop.max_epochs = 2
    with pytest.warns(UserWarning, match=r"epoch_1.pth has 4 bytes of \d+, so it is not deleted"):
        trainer.fit(trainer.lightning_module, make_loader())
    assert (tmp_path / "epoch_1.pth").read_text() == "mine"
    assert [e.name for e in manifest.read(str(tmp_path))] == ["epoch_2.pth"]


def test_a_file_that_is_gone_is_none_of_those_that_are_kept(tmp_path):
    target = checkpoints.Target(str(tmp_path), "1.pth", "0123456789ab", "series")
    keep_two = partial(superseded, limit=2)
    for done in (1, 2, 3):
        target = dataclasses.replace(target, name=f"{done}.pth", choose_old=keep_two)
        checkpoints.save({"meta": {"epoch": done, "iter": done}}, target)
        if done == 2:
            (tmp_path / "2.pth").unlink()
    assert {"1.pth", "3.pth"} <= {path.name for path in tmp_path.iterdir()}


def test_a_resumed_run_owns_the_files_in_a_new_process_too(tmp_path):
    arguments = {"interval": 1, "max_keep_ckpts": 2, "create_symlink": False}
    run(tmp_path, CheckpointHook(**arguments), 3)
    (first,) = {e.run for e in manifest.read(str(tmp_path))}
    for epochs in (4, 5):
        run(tmp_path, CheckpointHook(**arguments), epochs, ckpt_path="last")
    entries = manifest.read(str(tmp_path))
    assert [e.name for e in entries] == ["epoch_4.pth", "epoch_5.pth"]
    assert {e.run for e in entries} == {first}
    assert len(list(tmp_path.glob("*.pth"))) == 2


def test_resumed_from_an_older_file_the_newer_ones_are_replaced(tmp_path):
    arguments = {"interval": 1, "max_keep_ckpts": 3, "create_symlink": False}
    run(tmp_path, CheckpointHook(**arguments), 4)
    run(tmp_path, CheckpointHook(**arguments), 3, ckpt_path=tmp_path / "epoch_2.pth")
    assert newest_valid(tmp_path) == str(tmp_path / "epoch_3.pth")
    assert [e.name for e in manifest.read(str(tmp_path))] == [
        *("epoch_2.pth", "epoch_4.pth", "epoch_3.pth")
    ]


def test_a_damaged_newest_is_not_kept_instead_of_the_one_resumed_from(tmp_path):
    hook = CheckpointHook(interval=1, max_keep_ckpts=2, create_symlink=False)
    run(tmp_path, hook, 2)
    flip(tmp_path / "epoch_2.pth")
    one = CheckpointHook(interval=5, max_keep_ckpts=1, save_last=False)
    with pytest.warns(UserWarning, match="is taken instead"):
        run(tmp_path, one, 3, ckpt_path="last")
    assert (tmp_path / "epoch_1.pth").exists()


def test_a_template_with_a_directory(tmp_path):
    hook = CheckpointHook(interval=1, max_keep_ckpts=2, filename_tmpl="e{}/model.pth")
    run(tmp_path, hook, 3)
    assert hook.last_checkpoint == str(tmp_path / "e3" / "model.pth")
    assert not (tmp_path / "e1" / "model.pth").exists()
    flip(tmp_path / "e3" / "model.pth")
    with pytest.raises(DamagedCheckpointError, match=r"valid.*e2.model.pth"):
        run(tmp_path, hook, 4, ckpt_path=tmp_path / "e3" / "model.pth")


def add_many(directory: str, run_id: str) -> None:
    for i in range(25):
        new = Entry(f"{run_id}_{i}.pth", 1, "0", i, i, "", run_id, "s")
        path = os.path.join(directory, manifest.NAME)
        with files.exclusive(path) as contents:
            table = Manifest(path, contents)
            table.entries.append(new)
            table.write()


def test_processes_and_threads_do_not_lose_each_others_entries(tmp_path):
    spawn = multiprocessing.get_context("fork" if os.name == "posix" else "spawn")
    with warnings.catch_warnings():  # of a fork beside threads: the children only write files
        warnings.simplefilter("ignore")
        others = [spawn.Process(target=add_many, args=(str(tmp_path), n)) for n in "ab"]
        for process in others:
            process.start()
    add_many(str(tmp_path), "c")
    for process in others:
        process.join(60)
        assert process.exitcode == 0
    found = [e.name for e in manifest.read(str(tmp_path))]
    assert len(found) == len(set(found)) == 75


def test_two_link_the_latest_at_once_and_touch_nothing_else(tmp_path):
    (tmp_path / "latest.pth.tmp").write_text("mine")
    with ThreadPoolExecutor(2) as pool:
        links = [pool.submit(link_latest, str(tmp_path), f"epoch_{i}.pth") for i in range(200)]
    for link in links:
        link.result()
    assert os.readlink(tmp_path / "latest.pth").startswith("epoch_")
    assert (tmp_path / "latest.pth.tmp").read_text() == "mine"
    (tmp_path / "latest.pth.0123abcd.tmp").symlink_to("epoch_9.pth")  # left by a kill
    (tmp_path / "latest.pth.0123abce.tmp").write_text("mine")
    clean_up(str(tmp_path), "0123456789ab", "epoch_{}.pth", None, resumed_at=0)
    assert {path.name for path in tmp_path.glob("latest*")} == {
        *("latest.pth", "latest.pth.tmp", "latest.pth.0123abce.tmp"),
    }


def test_a_process_forked_meanwhile_does_not_keep_the_lock(tmp_path):
    def fork() -> int:
        with warnings.catch_warnings():  # of a fork beside threads: the child only sleeps
            warnings.simplefilter("ignore")
            pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        return pid

    with files.exclusive(str(tmp_path / manifest.NAME)):
        pid = fork()
    try:  # as a loader's workers are while a thread saves
        with locked(str(tmp_path), wait=False) as held:
            assert held
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


# -- files left by a killed process ------------------------------------------------------------


def save_for_ever(directory: str, run_id: str, pipe: Any) -> None:
    def wait(*_: Any) -> None:
        pipe.send(0)
        time.sleep(60)

    checkpoints.record = wait  # type: ignore[assignment]  # only in this process
    target = checkpoints.Target(directory, "epoch_1.pth", run_id, "series")
    checkpoints.save({"meta": {}}, target)


@pytest.mark.parametrize("resumes", [False, True], ids=["another run", "the same run"])
def test_the_next_run_deletes_the_leftovers_of_a_kill_in_the_first_save(tmp_path, resumes):
    (tmp_path / "epoch_1.pth.0123456789ab.tmp").write_text("of a run that is not known here")
    if resumes:
        run(tmp_path, CheckpointHook(interval=1), 1)
        run_id = manifest.read(str(tmp_path))[0].run
    else:
        run_id = "ba9876543210"
    before = {path.name for path in tmp_path.iterdir()}
    ours, theirs = multiprocessing.Pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fork = multiprocessing.get_context("fork")
        other = fork.Process(target=save_for_ever, args=(str(tmp_path), run_id, theirs))
        other.start()
    assert ours.poll(60)
    (left,) = {*tmp_path.glob("epoch_1.pth.*.tmp")} - {tmp_path / name for name in before}
    how: dict[str, Any] = {"ckpt_path": "last"} if resumes else {}
    run(tmp_path, CheckpointHook(interval=1), 2, **how)
    assert left.exists(), "somebody was writing it"
    other.kill()
    other.join(60)
    run(tmp_path, CheckpointHook(interval=1), 3, **how)
    assert not left.exists()
    assert before <= {path.name for path in tmp_path.iterdir()}


def test_leftovers_in_subdirectories_are_deleted_if_the_list_has_their_run(tmp_path):
    run(tmp_path, CheckpointHook(interval=1, filename_tmpl="e{}/model.pth"), 1)
    listed, other = manifest.read(str(tmp_path))[0].run, "0123456789ab"
    (tmp_path / "elsewhere").mkdir()
    names = [f"e1/model.pth.{listed}", f"elsewhere/a.pth.{other}", f"a.pth.{other}"]
    paths = [tmp_path / f"{name}.{checkpoints.OWNER}.tmp" for name in names]
    for path in paths:
        path.write_text("half")
    run(tmp_path, CheckpointHook(interval=1), 1)
    assert [path.exists() for path in paths] == [False, True, False]


def test_a_malformed_run_name_deletes_nothing(tmp_path):
    run(tmp_path, CheckpointHook(interval=1), 1)
    path, foreign = tmp_path / "epoch_1.pth", tmp_path / "mine.pth.tmp"
    foreign.write_text("mine")
    forged = torch.load(path, weights_only=True)
    forged["lightning_hooks"]["run"] = "pth"
    torch.save(forged, path)
    table = json.loads((tmp_path / manifest.NAME).read_text())
    table["begun"] = ["pth", 3, None, [], {}]
    odd = {**table["files"][0], "size": None, "crc32": None}
    table["files"] = [{**odd, "run": ["pth"], "name": "x.pth"}, {**odd, "run": "pth"}]
    (tmp_path / manifest.NAME).write_text(json.dumps(table))
    with pytest.warns(UserWarning, match=r"lists what is no checkpoint.*run is \['pth'\]"):
        run(tmp_path, CheckpointHook(interval=1), 2, ckpt_path=path)
    assert foreign.read_text() == "mine"
    assert manifest.is_run(manifest.read(str(tmp_path))[-1].run)


# -- hosted ------------------------------------------------------------------------------------


def test_an_adapter_finds_the_last_file_in_a_new_process_too(tmp_path):
    def make() -> HookAdapter:
        return HookAdapter([CheckpointHook(interval=1)], work_dir=tmp_path)

    adapter = make()
    assert adapter.last_checkpoint is None
    assert adapter.best_checkpoint is None
    make_trainer(tmp_path / "root", adapter, max_epochs=2).fit(TinyModule(), make_loader())
    assert adapter.last_checkpoint == str(tmp_path / "epoch_2.pth")
    again = make()
    assert again.last_checkpoint == str(tmp_path / "epoch_2.pth")
    flip(tmp_path / "epoch_2.pth")
    with pytest.warns(UserWarning, match="CRC-32"):
        assert again.last_checkpoint == str(tmp_path / "epoch_1.pth")
    module = TinyModule()
    trainer = make_trainer(tmp_path / "root", again, max_epochs=2)
    trainer.fit(module, make_loader(), ckpt_path=str(tmp_path / "epoch_1.pth"))
    assert len(module.losses) == 4
    with pytest.raises(FileNotFoundError, match=r"the newest valid checkpoint.*epoch_2"):
        trainer.fit(module, make_loader(), ckpt_path=str(tmp_path / "epoch_7.pth"))


@pytest.mark.filterwarnings("ignore:.*exists and is not empty")
def test_lightnings_default_beside_a_hosted_hook_is_warned_of_once(tmp_path):
    adapter = HookAdapter([CheckpointHook(interval=1)])
    trainer = make_trainer(tmp_path, adapter, enable_checkpointing=True)
    with pytest.warns(UserWarning, match=r"switch it off with Trainer\(enable_checkpointing=F"):
        trainer.fit(TinyModule(), make_loader())
    trainer.fit_loop.max_epochs = 2
    trainer.fit(trainer.lightning_module, make_loader())


def test_two_adapters_hooks_by_the_newest(tmp_path):
    hooks = [
        CheckpointHook(interval=2, save_last=False, out_dir=str(tmp_path / "a")),
        CheckpointHook(interval=3, out_dir=str(tmp_path / "b"), save_last=False),
    ]
    adapter = HookAdapter(hooks, work_dir=tmp_path / "w")
    make_trainer(tmp_path, adapter, max_epochs=3).fit(TinyModule(), make_loader())
    assert adapter.last_checkpoint == str(tmp_path / "b" / "w" / "epoch_3.pth")


def test_a_model_of_weights_only_is_all_that_is_ever_executed(tmp_path):
    class Runs:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    torch.save({"state_dict": {}, "x": Runs()}, tmp_path / "bad.pth")
    with pytest.raises(Exception, match=r"[Ww]eights"):
        run(tmp_path, CheckpointHook(), ckpt_path=tmp_path / "bad.pth")
    assert not (tmp_path / "ran").exists()


def test_a_kill_before_a_file_gets_its_name_leaves_the_one_before_it(tmp_path: Path) -> None:
    run(tmp_path, CheckpointHook(interval=1, max_keep_ckpts=1), epochs=2)
    listed = Manifest(str(tmp_path / manifest.NAME), (tmp_path / manifest.NAME).read_bytes())
    (last,) = listed.entries
    listed.entries.append(dataclasses.replace(last, crc32="00000000"))
    listed.write()  # as a process killed before the rename
    path = str(tmp_path / "epoch_2.pth")
    assert newest_valid(str(tmp_path)) == path
    keep_one = partial(superseded, limit=1)
    clean_up(str(tmp_path), last.run, last.series, keep_one, resumed_at=last.iter)
    assert newest_valid(str(tmp_path)) == path
    assert len(manifest.read(str(tmp_path))) == 1


def test_settling_a_list_compares_each_entry_a_few_times(tmp_path: Path) -> None:
    compared = []

    class Checksum(str):
        def __eq__(self, other: object) -> bool:
            compared.append(other)
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    listed = Manifest(str(tmp_path / manifest.NAME), None)
    base = {"size": 1, "epoch": 1, "time": "", "run": "0" * 12, "series": "s"}
    listed.entries = [
        Entry(name=f"{n % 500}.pth", crc32=Checksum(f"{n:08x}"), iter=n, **base)
        for n in range(1000)
    ]
    listed.match_entries_to_files("0" * 12)
    assert len(listed.entries) == 1000
    assert len(compared) < 10_000


def test_a_save_parses_no_entry_that_the_process_has_written(tmp_path, monkeypatch):
    parsed: list[str] = []

    def counted(fields: Any) -> Entry:
        parsed.append(fields["name"])
        return parse(fields)

    monkeypatch.setattr(manifest, "parse", counted)
    run(tmp_path, CheckpointHook(interval=1), epochs=5)
    assert not parsed
    text = (tmp_path / manifest.NAME).read_text().replace('"epoch": 5', '"epoch": 6')
    (tmp_path / manifest.NAME).write_text(text)  # another process
    assert manifest.read(tmp_path)[-1].epoch == 6
    assert len(parsed) == 5
