"""Damaged or hostile spools lose only the bad records and stop nothing else."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lightning_hooks.cli import main
from lightning_hooks.loggers.delivery import spool
from lightning_hooks.loggers.delivery.record import Record, seal, to_line
from lightning_hooks.loggers.delivery.session import Session
from lightning_hooks.loggers.delivery.spool import (
    Spool,
    StoredSpool,
    count_records,
    shared_folder,
    write_ack,
)
from lightning_hooks.loggers.delivery.tracked_run import TrackedRun
from lightning_hooks.loggers.delivery.upload import Upload
from lightning_hooks.loggers.replay import replay
from lightning_hooks.utils.secrets import without_secrets
from support import training
from support.logs.kept import KeepHook, Kept, notices, unsent_in
from support.training import TinyModule


def fit(folder: Path, *hooks: Any, **options: Any) -> None:
    """Train in a work dir."""
    training.fit(folder, *hooks, **{"work_dir": str(folder), "val": 2, **options})


HEAD = {"writer": "kept", "key": "1f"}


def spool_of(folder: Path, count: int = 5) -> Path:
    """Create the spool of a killed run; return its path."""
    spool = Spool(str(folder / "spool" / "old-kept.jsonl"), HEAD)
    for step in range(count):
        spool.append(1.0, step, scalars={"loss": 0.5 * step})
    spool.close(keep=True)
    return Path(spool.path)


def taken_over(folder: Path) -> list[Record]:
    """Resume the run of the spools in a folder; return the records delivered first."""
    kept, run = Kept(), TrackedRun("1f", after=10)
    session = Session(Kept, lambda: kept, str(folder / "new.jsonl"), {}, notices(), 0.0, run)
    session.close(5.0, failed=False)
    session.wait()
    return kept.records


ACKS = [
    {"offset": None},
    {"offset": 10**9},
    {"offset": -5},
    {"offset": "1"},
    {"offset": True},
    {"offset": 90},  # in the middle of a line
    {"run": 5},
    [1, 2],
    "null",
]


@pytest.mark.parametrize("ack", ACKS, ids=repr)
def test_an_acknowledgement_that_cannot_be_right_counts_as_none(tmp_path: Path, ack: Any) -> None:
    path = spool_of(tmp_path)
    Path(f"{path}.ack").write_text(json.dumps(ack))
    assert count_records(str(path), rest=True) == 5
    assert [record.step for record in StoredSpool(str(path), rest=True)] == [0, 1, 2, 3, 4]


LINES = [
    b'{"end": {"faimed": true}}',
    b'{"end": null}',
    b'{"seq": Infinity, "time": 1.0, "step": 1}',
    b'{"seq": 1, "time": NaN, "step": 1}',
    b'{"seq": 1, "time": 1.0, "step": 1e400}',
    b'{"seq": 1, "time": 1.0, "step": 1, "scalars": {"a": ' + b"9" * 500 + b"}}",
    b'{"seq": 1, "time": 1.0, "step": 1, "scalars": [1]}',
    b'{"seq": 1, "time": 1.0, "step": 1, "texts": {"a": 1}}',
    b'{"seq": 1, "time": 1.0, "step": 1, "images": {"a": {"shape": [1, 99999999, 9999999]}}}',
    b"[" * 100_000,
    b"9" * 10_000,
    b"\xff\xfe",
    b"",
]


@pytest.mark.parametrize("line", LINES, ids=lambda line: repr(line[:40]))
def test_a_damaged_line_costs_itself_alone(tmp_path: Path, line: bytes) -> None:
    path = spool_of(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line + b"\n", *lines[3:]]))
    records = StoredSpool(str(path), rest=True)
    assert [record.step for record in records] == [0, 1, 2, 3, 4]
    assert records.damaged == (not line.startswith(b'{"end": {'))
    fit(tmp_path, KeepHook())  # the next training starts


@pytest.mark.parametrize("head", ['{"run": null}', "[]", "", "{"])
def test_a_file_without_a_head_is_no_spool_and_stops_nothing(tmp_path: Path, head: str) -> None:
    path = spool_of(tmp_path)
    path.write_text(head + "\n")
    with pytest.raises(ValueError, match="is not the spool of a run"):
        StoredSpool(str(path))
    assert unsent_in(path.parent) == {}
    fit(tmp_path, KeepHook())
    assert path.exists()


@pytest.mark.parametrize("pipe", ["other.jsonl", "old-kept.jsonl.ack"])
def test_a_pipe_beside_a_spool_stops_nothing(tmp_path: Path, pipe: str) -> None:
    path = spool_of(tmp_path)
    os.mkfifo(path.with_name(pipe))
    assert [record.step for record in taken_over(tmp_path / "spool")] == [0, 1, 2, 3, 4]


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    line = bytearray(to_line(Record(1, 2.0, 3, {"loss": 0.5})))
    path = spool_of(tmp_path, count=0)
    line[line.index(b"0.5") + 2] ^= 1  # 0.4
    path.write_bytes(path.read_bytes() + line)
    assert StoredSpool(str(path)).damaged == 1


def test_a_spool_with_damaged_lines_is_sent_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = spool_of(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"step": 2', b'"step": 9'))
    kept = Kept()
    monkeypatch.setattr("lightning_hooks.loggers.replay.open_writer", lambda *a, **k: kept)
    for options in ({"everything": True}, {}):
        kept.records.clear()
        caplog.clear()
        assert replay(str(path), "kept", **options) == 4
        assert f"{path}: 1 damaged lines are left out" in caplog.text
    assert [record.step for record in kept.records] == [0, 1, 3, 4]
    assert path.exists()
    assert unsent_in(path.parent) == {}  # no unsent records
    path.unlink()
    path = spool_of(tmp_path)
    assert replay(str(path), "kept") == 5
    assert not path.exists()


def test_damaged_lines_are_not_taken_over(tmp_path: Path) -> None:
    path = spool_of(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"step": 2', b'"step": 9'))
    assert [record.step for record in taken_over(path.parent)] == [0, 1, 3, 4]
    assert path.exists()
    assert count_records(str(path), rest=True) == 0


@settings(
    max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.floats(0, 1), bit=st.integers(0, 7), cut=st.floats(0, 1), junk=st.binary())
def test_any_damage_is_survived(
    tmp_path: Path, where: float, bit: int, cut: float, junk: bytes
) -> None:
    path = spool_of(tmp_path)
    content = bytearray(path.read_bytes())
    content[int(where * (len(content) - 1))] ^= 1 << bit
    at = int(cut * len(content))
    for damaged in (bytes(content), bytes(content[:at]), bytes(content[:at]) + junk):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(damaged)
        Path(f"{path}.ack").write_bytes(junk)
        found = unsent_in(path.parent)
        assert all(0 <= n <= 5 + junk.count(b"\n") + 1 for _, n in found.values())
        assert {record.step for record in taken_over(path.parent)} <= {0, 1, 2, 3, 4}
    path.unlink(missing_ok=True)
    Path(f"{path}.ack").unlink(missing_ok=True)


def test_an_old_spool_without_checksums_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    lines = [json.dumps({"run": HEAD}), '{"seq": 0, "time": 1.0, "step": 3, "scalars": {"a": 1}}']
    path.write_text("\n".join([*lines, '{"end": {"failed": false}}', ""]))
    stored = StoredSpool(str(path))
    (record,) = stored
    assert (record.scalars, stored.failed) == ({"a": 1.0}, False)


def test_counting_what_is_left_reads_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_of(tmp_path)
    path.write_bytes(path.read_bytes() + to_line(Record(5, 1.0, 5, {"loss": 0.1})) * 200)
    read: list[bytes] = []
    monkeypatch.setattr(spool, "from_line", read.append)
    assert unsent_in(path.parent) == {str(path): ("1f", 205)}
    assert not read


# -- file permissions -----------------------------------------------------------------------


def test_only_the_user_can_read_a_spool(tmp_path: Path) -> None:
    path = spool_of(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    spool = Spool(str(tmp_path / "spool" / "x.jsonl"), HEAD)
    os.symlink(victim, f"{spool.path}.ack.tmp")
    spool.append(1.0, 1, scalars={"loss": 1.0})
    spool.take(5)
    spool.acknowledge(1, None)
    spool.close(keep=True)
    assert victim.read_text() == "mine"


def test_a_refused_record_does_not_follow_a_planted_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    spool = Spool(str(tmp_path / "spool" / "x.jsonl"), HEAD)
    os.symlink(victim, spool.refused_path)
    spool.refuse(Record(0, 1.0, 1, {"loss": 1.0}))
    spool.close(keep=True)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("by", ["replay", "resume"])
def test_a_link_in_the_place_of_an_upload_deletes_nothing(tmp_path: Path, by: str) -> None:
    pytest.importorskip("tensorboard")
    mine = tmp_path / "documents" / "thesis.pdf"
    mine.parent.mkdir()
    mine.write_text("mine")
    folder = tmp_path / "spool"
    writer = "tensorboard" if by == "replay" else "kept"  # a backend without checkpoints
    spool = Spool(str(folder / "old.jsonl"), {**HEAD, "writer": writer})
    upload = Upload(str(folder / "upload_abcdefgh" / mine.name))
    spool.append(1.0, 99, scalars={"loss": 1.0}, checkpoints={mine.name: upload})
    spool.close(keep=True)
    os.symlink(mine.parent, folder / "upload_abcdefgh")
    if by == "replay":
        assert replay(spool.path, "tensorboard", dir=str(tmp_path / "tb")) == 1
    else:
        assert taken_over(folder) == []  # of a step after the checkpoint
    assert not Path(spool.path).exists()
    assert mine.read_text() == "mine"


def test_the_shared_folder_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ours = shared_folder()
    assert stat.S_IMODE(os.stat(ours).st_mode) == 0o700
    assert shared_folder() == ours
    os.rename(ours, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", ours)  # whoever was first
    assert os.path.basename(shared_folder()).startswith("lightning_hooks-")
    assert shared_folder() != ours


def test_no_argument_whose_name_is_that_of_a_secret_is_kept() -> None:
    secret = dict.fromkeys(
        ["api_key", "token", "PWD", "password", "client_secret", "auth", "Authorization", "cookie"],
        "s3cret",
    )
    given = {**secret, "headers": [secret, {"nested": (secret, "ftp://me:s3cret@host/x")}]}
    left = {"headers": [{}, {"nested": [{}, "ftp://host/x"]}]}
    assert without_secrets({**given, "author": "me"}) == {**left, "author": "me"}


def test_a_full_disk_leaves_no_half_of_an_acknowledgement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = spool_of(tmp_path)
    write_ack(str(path), path.stat().st_size, None)

    def no_space(*paths: str) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.replace", no_space)
        with pytest.raises(OSError, match="No space"):
            write_ack(str(path), 0, None)
    assert not Path(f"{path}.ack.tmp").exists()
    assert count_records(str(path), rest=True) == 0  # the previous acknowledgement holds


def test_a_replay_to_a_server_that_is_dead_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow")
    spool = Spool(str(tmp_path / "x.jsonl"), {**HEAD, "writer": "mlflow"})
    spool.append(1.0, 1, scalars={"loss": 1.0})
    spool.close(keep=True)
    before = Path(spool.path).read_bytes()
    with pytest.raises(SystemExit) as stopped:
        main(["replay", spool.path, "--to", "mlflow", "--tracking-uri", "http://127.0.0.1:9"])
    assert stopped.value.code == 1
    said = capsys.readouterr().err.strip()
    assert len(said.splitlines()) == 1
    assert said.startswith(f"lightning-hooks: {spool.path} stays as it is: MlflowException")
    assert Path(spool.path).read_bytes() == before


def test_a_name_that_is_no_text_costs_no_training(tmp_path: Path) -> None:
    class Odd(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("loss\ud800", 1.0)
            return self.loss(batch)

    hook = KeepHook()
    fit(tmp_path, hook, module=Odd)
    assert "train/loss\ud800" in hook.kept.records[0].scalars


def test_the_end_of_a_run_is_a_sealed_line(tmp_path: Path) -> None:
    path = spool_of(tmp_path)
    path.write_bytes(path.read_bytes() + seal('{"end": {"failed": false}}'))
    assert StoredSpool(str(path)).failed is False


def test_a_line_as_long_as_a_video_is_searched_for_its_end_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[int] = []

    class Block(bytes):
        def split(self, *arguments: Any) -> list[bytes]:
            searched.append(len(self))
            return super().split(*arguments)

    class File(io.BytesIO):
        def read(self, size: int | None = -1) -> Block:
            return Block(super().read(size))

    monkeypatch.setattr(spool, "_BLOCK", 10)
    contents = b"one\n" + b"x" * 1000 + b"\n\ntwo\nthree\ntorn"
    lines = [*spool.lines_of(File(contents), 0, len(contents))]
    assert [line for line, _ in lines] == [b"one", b"x" * 1000, b"", b"two", b"three"]
    ends = [end for end, byte in enumerate(contents, 1) if byte == ord("\n")]
    assert [end for _, end in lines] == ends
    assert sum(searched) == len(contents)
