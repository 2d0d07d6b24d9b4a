"""Spool, thread and replay: no backend disturbs the training, and no logged value is lost."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, TextIO

import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks import Hook, HookAdapter, IterTimerHook, TextLoggerHook
from lightning_hooks.cli import main
from lightning_hooks.loggers.base import peak_memory
from lightning_hooks.loggers.delivery.record import Record, from_line, to_line
from lightning_hooks.loggers.delivery.sender import Sender
from lightning_hooks.loggers.delivery.session import UndeliveredError
from lightning_hooks.loggers.delivery.spool import Spool, StoredSpool, exclusive
from lightning_hooks.loggers.replay import replay
from lightning_hooks.loggers.trackers.table import TRACKERS, writer_class
from lightning_hooks.storage import locks
from support import forks, training
from support.device_reads import Reads
from support.logs.kept import KeepHook, Kept, broken, notices, unsent_in
from support.logs.trackers import Tuned
from support.processes import environment
from support.training import TinyModule, make_loader, make_trainer


def fit(folder: Path, *hooks: Any, **arguments: Any) -> Any:
    """Train with an adapter that writes to ``work`` in the folder; return the module."""
    arguments |= {"work_dir": str(folder / "work"), "num_sanity_val_steps": 0, "val": 2}
    return training.fit(folder, *hooks, **arguments).lightning_module


def spools(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "work").glob("spool/*.jsonl"))


def told(caplog: pytest.LogCaptureFixture, level: str = "WARNING") -> list[str]:
    found = [r for r in caplog.records if r.name == "lightning_hooks"]
    return [r.getMessage() for r in found if r.levelname == level and "Hook: " in r.getMessage()]


def fill(path: Path, n: int = 5) -> Spool:
    spool = Spool(str(path), {"writer": "tensorboard"})
    for i in range(n):
        spool.append(float(i), i, scalars={"loss": 0.1 * i})
    return spool


# -- records and the spool ---------------------------------------------------------------------


def test_a_record_is_one_line_of_strict_json_and_comes_back() -> None:
    image = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    scalars = {"a": 1 / 3, "nan": float("nan"), "inf": float("-inf"), "ünì": 1e-300}
    record = Record(3, 12.25, 7, scalars, {"x": image}, {"t": "a\nb"}, {"lr": 0.1, "p": Path("x")})
    line = to_line(record)
    assert line.count(b"\n") == 1
    json.loads(line, parse_constant=pytest.fail)
    back = from_line(line)
    assert (back.seq, back.time, back.step, back.texts) == (3, 12.25, 7, {"t": "a\nb"})
    assert repr(back.scalars) == repr(scalars)
    assert np.array_equal(back.images["x"], image)
    assert back.params == {"lr": 0.1, "p": "x"}


def test_the_torn_last_line_of_a_killed_run_is_left_out(tmp_path: Path) -> None:
    spool = fill(tmp_path / "s.jsonl")
    spool.close(keep=True)
    whole = Path(spool.path).read_bytes()
    for cut in range(1, 40):
        Path(spool.path).write_bytes(whole[:-cut])
        records = StoredSpool(spool.path)
        assert [record.seq for record in records] == [0, 1, 2, 3]
        assert records.failed  # the spool has no record of the end


def test_what_is_acknowledged_is_not_the_rest(tmp_path: Path) -> None:
    spool = fill(tmp_path / "s.jsonl")
    assert len(spool.take(3)) == 3
    spool.acknowledge(2, "a")
    spool.end(failed=False)
    spool.close(keep=True)
    records = StoredSpool(spool.path, rest=True)
    assert records.head["run"] == "a"
    assert [record.seq for record in records] == [2, 3, 4]
    assert not records.failed
    assert len(StoredSpool(spool.path)) == 5


def test_spools_of_the_same_second_do_not_share_a_file(tmp_path: Path) -> None:
    one, two = (fill(tmp_path / "spool" / "s.jsonl", n) for n in (2, 1))
    assert one.path != two.path
    for spool in (one, two):
        spool.close(keep=False)
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_no_spools(tmp_path: Path) -> None:
    for text in ("", "{}\n", '{"seq": 1}\n', "\x00\n"):
        (tmp_path / "x").write_text(text)
        with pytest.raises(ValueError, match="is not the spool of a run"):
            StoredSpool(str(tmp_path / "x"))
    with pytest.raises(FileNotFoundError, match="there is no"):
        replay(str(tmp_path / "y"), Kept())
    with pytest.raises(ValueError, match="neither a spool nor an offline run"):
        replay(str(tmp_path), Kept())


def test_on_a_full_disk_records_wait_in_memory(tmp_path: Path) -> None:
    spool = fill(tmp_path / "s.jsonl", 2)
    os.unlink(spool.path)
    assert spool._file is not None
    spool._file.close()
    with open("/dev/full", "wb", buffering=0) as spool._file:  # a device that is always full
        for i in range(2, 5):
            spool.append(float(i), i, scalars={"loss": 0.1})
    assert isinstance(spool.error, OSError)
    assert [record.seq for record in spool.take(10)] == [0, 1, 2, 3, 4]
    spool.close(keep=False)


# -- the thread --------------------------------------------------------------------------------


def test_a_hook_sends_all_in_order_from_another_thread(tmp_path: Path) -> None:
    hook = KeepHook()
    fit(tmp_path, hook, max_epochs=2)
    records = hook.kept.records
    assert [record.step for record in records] == [1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert [record.seq for record in records] == list(range(10))
    assert hook.kept.thread is not threading.current_thread()
    assert hook.kept.closed == [False]
    assert hook.status() == {"logged": 10, "sent": 10, "refused": 0, "error": None}
    assert not (tmp_path / "work" / "spool").exists()


def test_departure_steps_do_not_wait_for_a_slow_backend(tmp_path: Path) -> None:
    hook = KeepHook(lambda: Kept(lambda writer: time.sleep(0.3)), timeout=10.0)
    start = time.monotonic()

    class Done(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            self.seconds = time.monotonic() - start

    done = Done()
    fit(tmp_path, hook, done)
    assert done.seconds < 1.0
    assert len(hook.kept.records) == 5


def test_errors_that_pass_cost_nothing_but_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trouble(writer: Kept) -> None:
        if writer.calls in (2, 3):
            raise ConnectionError("http://me:s3cret@host/x\n  was reset")

    hook = KeepHook(lambda: Kept(trouble))
    fit(tmp_path, hook)
    assert [record.seq for record in hook.kept.records] == [0, 1, 2, 3, 4]
    (warning,) = told(caplog)
    shown = "ConnectionError: http://host/x was reset"  # a single line, without the password
    assert f"kept cannot be written to ({shown}); training goes on" in warning
    assert any("kept is there again" in text for text in told(caplog, "INFO"))
    assert spools(tmp_path) == []


def hopeless(writer: Kept) -> None:
    if writer.calls > 2:
        raise ValueError("bad")


def hang(writer: Kept) -> None:
    if writer.calls > 2:
        time.sleep(60)


def leave(writer: Kept) -> None:
    if writer.calls > 2:
        raise SystemExit("the client wants to go")


@pytest.mark.parametrize("trouble", [broken, hang, leave])
def test_what_a_bad_backend_has_not_taken_can_be_sent_later(
    trouble: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = KeepHook(lambda: Kept(trouble), timeout=0.7)
    start = time.monotonic()
    module = fit(tmp_path, hook)
    assert time.monotonic() - start < 5
    assert len(module.losses) == 4
    (warning,) = told(caplog)
    (path,) = spools(tmp_path)
    command = f"lightning-hooks replay {path} --to kept"
    assert any(command in text for text in [warning, *told(caplog, "INFO")])
    later = Kept()
    assert replay(str(path), to=later) == 5
    assert [record.seq for record in later.records] == [0, 1, 2, 3, 4]
    if trouble is not hang:  # a hang also blocks the rest
        assert [record.seq for record in StoredSpool(str(path), rest=True)] == [2, 3, 4]


def test_a_refused_record_is_set_aside_and_the_rest_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def picky(writer: Kept) -> None:
        if writer.calls == 2:
            raise ValueError("bad")

    hook = KeepHook(lambda: Kept(picky))
    fit(tmp_path, hook)
    assert hook.status() == {"logged": 5, "sent": 4, "refused": 1, "error": None}
    assert [record.seq for record in hook.kept.records] == [0, 2, 3, 4]
    (path,) = spools(tmp_path)
    assert path.name.endswith(".refused.jsonl")
    assert [record.seq for record in StoredSpool(str(path))] == [1]
    assert told(caplog) == [
        "KeepHook: kept does not want a record (ValueError: bad); it is set aside in "
        f"{path}, and the rest goes on"
    ]
    assert "has taken 4 of 5 records (ValueError: bad), and refused 1" in told(caplog, "INFO")[-1]
    later = Kept()
    assert replay(str(path), to=later) == 1


def test_the_run_is_known_before_the_first_record_is_there(tmp_path: Path) -> None:
    class Opened(Kept):
        def run_id(self) -> str:
            return "a"

    def lost(writer: Kept) -> None:
        raise ConnectionError("nobody there")

    fit(tmp_path, KeepHook(lambda: Opened(lost), timeout=0.3))
    (path,) = spools(tmp_path)
    assert StoredSpool(str(path), rest=True).head["run"] == "a"


class Few(Kept):
    """A backend that stores repeated records twice, so the chunks are small."""

    chunk = 8


def test_after_a_kill_at_most_a_chunk_is_sent_twice(tmp_path: Path) -> None:
    killed, seen = threading.Event(), threading.Event()

    def kill(writer: Kept) -> None:
        if writer.calls == 21:  # simulates the end of the process
            seen.set()
            killed.wait(10)

    spool = fill(tmp_path / "s.jsonl", 30)
    few = Few(kill)
    sender = Sender(Few, lambda: few, spool, notices())
    sender.close(60.0)
    assert seen.wait(10)
    taken = [record.seq for record in few.records]
    rest = [*StoredSpool(spool.path, rest=True)]
    killed.set()
    sender.wait()
    spool.close(keep=False)
    assert (taken, [record.seq for record in rest]) == ([*range(20)], [*range(16, 30)])


# docs/families/writers.md lists the behavior of each backend for a repeated record
LEAVES_OUT = {"mlflow", "visdom", "dvclive"}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_backend_that_doubles_gets_few_records_twice(name: str) -> None:
    assert writer_class(name).chunk <= 8 or name in LEAVES_OUT


def test_a_backend_that_takes_nothing_is_given_up(
    tmp_path: Path,
) -> None:
    def refuse(writer: Kept) -> None:
        raise ValueError("nothing")

    fit(tmp_path, KeepHook(lambda: Kept(refuse)))
    (path,) = spools(tmp_path)
    assert [record.seq for record in StoredSpool(str(path), rest=True)] == [0, 1, 2, 3, 4]


def refused_request() -> Exception:
    requests = pytest.importorskip("requests")
    response = requests.Response()
    response.status_code = 400
    error: Exception = requests.HTTPError("bad value", response=response)
    return error


@pytest.mark.parametrize(
    "make",
    [
        lambda: NotADirectoryError("train/loss"),
        lambda: OSError(errno.ENAMETOOLONG, "long"),
        refused_request,
    ],
    ids=["NotADirectoryError", "OSError", "HTTPError"],
)
def test_an_error_that_cannot_pass_costs_its_record_alone(
    tmp_path: Path, make: Callable[[], Exception]
) -> None:
    error = make()

    def refuse(writer: Kept) -> None:
        if writer.calls == 2:
            raise error

    hook = KeepHook(lambda: Kept(refuse), timeout=30.0)
    fit(tmp_path, hook)
    assert [record.seq for record in hook.kept.records] == [0, 2, 3, 4]
    (path,) = spools(tmp_path)
    assert [record.seq for record in StoredSpool(str(path))] == [1]
    assert path.name.endswith(".refused.jsonl")


def test_a_run_tells_of_what_earlier_ones_have_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fit(tmp_path, KeepHook(lambda: Kept(hopeless)))
    (path,) = spools(tmp_path)
    going_on = Spool(str(tmp_path / "work" / "spool" / "other.jsonl"), {"writer": "kept"})
    going_on.append(0.0, 1, scalars={"loss": 0.1})  # of a run in progress
    caplog.clear()
    fit(tmp_path, KeepHook())
    (warning,) = told(caplog)
    assert warning == (
        "KeepHook: earlier runs have left 3 records that kept has not taken; to send them: "
        f"lightning-hooks replay {path} --to kept"
    )
    going_on.close(keep=False)


def test_a_spool_without_records_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "work" / "spool"
    going_on = Spool(str(folder / "other.jsonl"), {"writer": "kept"})  # without a record so far
    for name in ("killed", "damaged"):
        Spool(str(folder / f"{name}.jsonl"), {"writer": "kept"}).close(keep=True)
    with (folder / "damaged.jsonl").open("ab") as file:
        file.write(b"no record\n")
    fit(tmp_path, KeepHook())
    assert [path.name for path in spools(tmp_path)] == ["damaged.jsonl", "other.jsonl"]
    assert "earlier runs have left 1 records" in " ".join(told(caplog))
    going_on.close(keep=False)


def test_a_backend_that_does_not_start_costs_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def connect() -> Kept:
        raise ConnectionError("nobody there")

    hook = KeepHook(connect, timeout=0.5)
    fit(tmp_path, hook)
    assert len(told(caplog)) == 1
    assert hook.status()["sent"] == 0
    assert len(StoredSpool(str(spools(tmp_path)[0]))) == 5


def test_a_deleted_spool_is_not_named_as_one_to_send(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Deleting(Hook):
        def after_run(self, runner: Any) -> None:
            shutil.rmtree(runner.work_dir)

    caplog.set_level("INFO", "lightning_hooks")
    fit(tmp_path, KeepHook(lambda: Kept(broken), timeout=0.5), Deleting())
    said = told(caplog) + told(caplog, "INFO")
    (last,) = (one for one in said if "the rest is lost, for " in one)
    assert last.endswith("-kept.jsonl was deleted")
    assert not any("lightning-hooks replay" in one for one in said)


def test_what_an_evaluation_has_left_does_not_make_a_failed_run(tmp_path: Path) -> None:
    def dead() -> Kept:
        raise ConnectionError("nobody there")

    hook = KeepHook(dead, timeout=0.2)
    trainer = make_trainer(tmp_path, HookAdapter([hook], work_dir=str(tmp_path / "work")))
    trainer.validate(TinyModule(), make_loader(1), verbose=False)
    (path,) = spools(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: whole.rindex(b'{"end"')])  # as after a kill
    assert StoredSpool(str(path)).failed is False


@pytest.mark.parametrize("trouble", [broken, hang])
def test_a_close_that_times_out_prints_the_command(
    trouble: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "lightning_hooks")
    hooks = [KeepHook(lambda: Kept(trouble), timeout=0.4), KeepHook()]
    adapter = HookAdapter(hooks, work_dir=str(tmp_path / "work"))
    trainer = make_trainer(tmp_path, adapter, num_sanity_val_steps=0)
    trainer.fit(TinyModule(), make_loader(4), make_loader(1))
    (spool,) = spools(tmp_path)
    (line,) = (text for text in caplog.messages if "kept has taken 2 of " in text)
    assert line.endswith(f"; to send the rest: lightning-hooks replay {spool} --to kept")
    assert "could not hold" not in caplog.text
    caplog.clear()
    trainer.validate(TinyModule(), make_loader(1), verbose=False)  # tries once more
    (spool,) = spools(tmp_path)
    (line,) = (text for text in caplog.messages if "kept has taken " in text)
    assert line.endswith(f"; to send the rest: lightning-hooks replay {spool} --to kept")
    assert "could not hold" not in caplog.text


class Clinging(Kept):
    """A client that records its abandonment."""

    gone: ClassVar[list[str]] = []

    @staticmethod
    def on_abandoned() -> None:
        Clinging.gone.append("gone")


@pytest.mark.parametrize(("trouble", "times"), [(None, 0), (hopeless, 0), (broken, 1), (hang, 1)])
def test_a_client_that_is_given_up_holds_up_no_process(
    trouble: Any, times: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clinging, "gone", [])
    hook = KeepHook(lambda: Clinging(trouble or (lambda writer: None)), timeout=0.7)
    monkeypatch.setattr(hook, "_writer_class", Clinging)
    fit(tmp_path, hook)
    assert Clinging.gone == ["gone"] * times


def test_the_late_end_of_an_abandoned_client_spares_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end_late() -> None:  # as W&B's teardown() on a busy machine
        time.sleep(1.5)
        events.append("the abandoned client has ended")

    def connect() -> Clinging:
        events.append("the next run has started")
        return Clinging()

    events: list[str] = []
    monkeypatch.setattr(Clinging, "on_abandoned", staticmethod(end_late))
    for hook in (KeepHook(lambda: Clinging(hang), timeout=0.2), KeepHook(connect)):
        monkeypatch.setattr(hook, "_writer_class", Clinging)
        fit(tmp_path, hook)
    assert events == ["the abandoned client has ended", "the next run has started"]
    assert hook.status()["sent"] == hook.status()["logged"]


def test_strict_raises(tmp_path: Path) -> None:
    hook = KeepHook(lambda: Kept(hopeless), strict=True)
    with pytest.raises(UndeliveredError, match=r"kept has taken 2 of . records \(ValueError: bad"):
        fit(tmp_path, hook)


def test_the_end_of_a_run_waits_for_no_start_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_late() -> Kept:
        time.sleep(1.0)
        raise ConnectionError("not there")

    monkeypatch.setattr(Kept, "slow_start", 60.0)
    start = time.monotonic()
    fit(tmp_path, KeepHook(fail_late, timeout=0.5))
    assert time.monotonic() - start < 30


def test_dead_backends_are_waited_for_at_once(tmp_path: Path) -> None:
    hooks = [KeepHook(lambda: Kept(broken), timeout=1.0) for _ in range(5)]
    start = time.monotonic()
    fit(tmp_path, *hooks)
    assert time.monotonic() - start < 4
    assert len(spools(tmp_path)) == 5


def test_a_failed_training_is_told_to_the_backend(
    tmp_path: Path,
) -> None:
    class Crash(Hook):
        def after_train_epoch(self, runner: Any) -> None:
            raise RuntimeError("crash")

    hook = KeepHook()
    with pytest.raises(RuntimeError, match="crash"):
        fit(tmp_path, hook, Crash())
    assert len(hook.kept.records) == 4
    assert hook.kept.closed == [True]


def test_a_session_left_open_by_an_error_is_closed_later(tmp_path: Path) -> None:
    class FailsTwice(Callback):
        def on_train_batch_end(self, *given: Any) -> None:
            raise ValueError("bad")

        def on_exception(self, *given: Any) -> None:  # Lightning calls no later callback
            raise ValueError("worse")

    hook = KeepHook()
    trainer = make_trainer(tmp_path, FailsTwice(), hook, max_epochs=1)
    with pytest.raises(ValueError, match="worse"):
        trainer.fit(TinyModule(), make_loader(), make_loader(1))
    left = hook.kept
    assert not left.closed
    make_trainer(tmp_path, hook, max_epochs=1).fit(TinyModule(), make_loader(), make_loader(1))
    assert (left.closed, hook.kept.closed) == ([True], [False])
    assert hook.kept is not left


def test_there_is_no_thread_before_the_run_nor_after_it(tmp_path: Path) -> None:
    before = threading.enumerate()  # other tests leave hanging threads
    hook = pickle.loads(pickle.dumps(KeepHook()))
    assert threading.enumerate() == before
    fit(tmp_path, hook)
    assert threading.enumerate() == before
    del hook.kept  # the stub holds a reference to its thread
    pickle.loads(pickle.dumps(hook))


def test_only_the_last_records_are_kept_in_memory(tmp_path: Path) -> None:
    spool = Spool("/dev/null/spool/s.jsonl", {})  # no folder at all
    for i in range(10_003):
        spool.append(0.0, i, scalars={"a": 1.0})
    assert spool.dropped == 3
    assert spool.take(1)[0].seq == 3
    sender = Sender(Kept, Kept, spool, notices())
    sender.close(5.0)
    sender.wait()
    assert sender.error is None
    assert isinstance(sender.writer, Kept)
    assert len(sender.writer.records) == 10_000


# -- real trouble ------------------------------------------------------------------------------


JOB = """
import sys, time
from lightning_hooks import Hook
from support.logs.kept import KeepHook, Kept, broken, notices, unsent_in
from support.training import fit
from pathlib import Path

class Slow(Hook):
    def after_train_iter(self, runner):
        print(runner.iter, flush=True)
        time.sleep(0.01)

folder = Path(sys.argv[1])
hooks = [KeepHook(lambda: Kept(broken)), Slow()]
options = {"work_dir": str(folder / "work"), "num_sanity_val_steps": 0, "max_epochs": 500}
fit(folder, *hooks, val=2, **options)
"""


def started(program: str, folder: Path) -> tuple[BaseProcess, TextIO]:
    """Start a program in a forked process; return the process and its output."""
    pipe = folder / "printed"
    os.mkfifo(pipe)
    job = forks.start(["-c", program, str(folder)], environment(), pipe, folder)
    return job, pipe.open()


BUSY = """
import sys, time
from pathlib import Path
from lightning_hooks import Hook, TensorboardLoggerHook
from support.logs.trackers import fit

class Slow(Hook):
    def after_train_iter(self, runner):
        print(runner.iter, flush=True)
        time.sleep(0.05)

fit(Path(sys.argv[1]), TensorboardLoggerHook(interval=1), Slow(), epochs=500)
"""


@pytest.mark.slow
def test_what_a_run_still_sends_is_not_sent_by_a_replay_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("jsonargparse", "rich", "tensorboard"):
        pytest.importorskip(package)
    work = tmp_path / "work"
    work.mkdir()
    (work / "tf_logs").write_text("no folder")  # keeps all records in the spool
    command = ["replay", "--to", "tensorboard", "--dir", str(work / "tf_logs")]
    job, lines = started(BUSY, work)
    try:
        assert any(line.strip().isdigit() and int(line) >= 9 for line in lines)
        (path,) = spools(tmp_path)
        with pytest.raises(SystemExit, match="2"):
            main([*command, str(path)])
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"lightning-hooks: BlockingIOError: {path} is in use: its run goes")
        copy = Kept()
        assert replay(str(path), to=copy) >= 9  # a copy may be sent to another place
        assert path.exists()
    finally:
        job.kill()
        job.join()
        lines.close()
    (work / "tf_logs").unlink()
    count = len(StoredSpool(str(path)))
    with pytest.raises(SystemExit, match="0"):
        main([*command, str(path)])
    assert capsys.readouterr().out == f"{count} records sent\n"
    assert count >= len(copy.records)
    assert not path.exists()


@pytest.mark.parametrize("windows", [False, True])
def test_a_spool_in_use_is_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, windows: bool
) -> None:
    """On Windows the lock is a separate file beside the spool."""
    if windows:
        monkeypatch.setattr(locks, "sys", SimpleNamespace(platform="win32"))
    spool = fill(tmp_path / "spool/s.jsonl")
    for _ in range(2):  # the first attempt does not take the lock away
        with pytest.raises(BlockingIOError, match=r"s\.jsonl is in use: its run goes on"):
            replay(spool.path, "tensorboard")
        assert unsent_in(tmp_path / "spool", "tensorboard") == {}
    spool.close(keep=True)
    assert unsent_in(tmp_path / "spool", "tensorboard") == {spool.path: (None, 5)}
    assert os.listdir(tmp_path / "spool") == ["s.jsonl"]


def test_a_killed_run_loses_nothing(tmp_path: Path) -> None:
    job, lines = started(JOB, tmp_path)
    assert any(line.strip().isdigit() and int(line) >= 40 for line in lines)
    job.kill()
    job.join()
    lines.close()
    (path,) = spools(tmp_path)
    records = StoredSpool(str(path))
    steps = [record.step for record in records if "train/loss" in record.scalars]
    assert steps == list(range(1, steps[-1] + 1))
    assert steps[-1] >= 40
    assert records.failed


FULL = """
import json, resource, signal, sys, time
from pathlib import Path
from lightning_hooks import Hook
from support.logs.kept import KeepHook, Kept
from support.training import fit

class Full(Hook):
    def after_train_iter(self, runner):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))

folder = Path(sys.argv[1])
hook = KeepHook(lambda: Kept(lambda writer: time.sleep(0.05)))
fit(folder, hook, Full(), val=2, work_dir=str(folder / "work"), num_sanity_val_steps=0)
print("sent", [record.seq for record in hook.kept.records], flush=True)
"""
"""Stops files of the process from growing, as a full disk does."""


def test_a_full_disk_costs_one_warning_and_no_record(tmp_path: Path) -> None:
    job, lines = started(FULL, tmp_path)  # a separate process, because the limit is for all threads
    printed = lines.read()
    lines.close()
    assert forks.wait([job], 60) == [0], printed
    assert "sent [0, 1, 2, 3, 4]" in printed
    (warning,) = [line for line in printed.splitlines() if "cannot be written" in line]
    assert "kept in memory until it is sent" in warning


def test_the_spool_of_a_remote_work_dir_is_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    hook = KeepHook(lambda: Kept(broken), timeout=0.3)
    adapter = HookAdapter([hook], work_dir="memory://work")
    make_trainer(tmp_path, adapter, num_sanity_val_steps=0).fit(
        TinyModule(), make_loader(4), make_loader(1)
    )
    (path,) = tmp_path.glob("lightning_hooks-*/spool/*.jsonl")
    assert len(StoredSpool(str(path))) == 5


# -- sent records ------------------------------------------------------------------------------


class Pictures(Hook):
    """Reports an image, a text and a list."""

    priority = "LOW"

    def after_train_epoch(self, runner: Any) -> None:
        image = torch.linspace(0, 1, 48).reshape(3, 4, 4)
        runner.log_buffer.output.update(sample=image, best="cat", recalls=[0.1])
        runner.log_buffer.ready = True


def test_departure_images_and_hyper_parameters_are_sent_too(tmp_path: Path) -> None:
    hook = KeepHook(interval=9)
    fit(tmp_path, hook, Pictures(), module=Tuned(0.2, {"size": 8}))
    assert hook.kept.records[0].params == {"lr": 0.2, "data/size": 8}
    (image,) = [record.images for record in hook.kept.records if record.images]
    assert image["val/sample"].shape == (3, 4, 4)
    assert image["val/sample"].max() == 255
    assert not any(record.texts for record in hook.kept.records)


def test_passwords_in_hyper_parameters_are_not_kept(tmp_path: Path) -> None:
    hook = KeepHook(lambda: Kept(broken), interval=1, timeout=0.3)
    data: dict[str, Any] = {"api_key": "s3cret", "Authorization": "s3cret"}
    data["uri"] = "http://me:s3cret@host/x"
    data |= {"auth": {"user": "s3cret"}, "headers": [{"password": "s3cret"}]}
    data["args"] = Namespace(password="s3cret")
    fit(tmp_path, hook, module=Tuned(0.2, data))
    (path,) = spools(tmp_path)
    assert b"s3cret" not in path.read_bytes()
    assert hook.kept.records[0].params == {
        "lr": 0.2,
        "data/api_key": "***",
        "data/Authorization": "***",
        "data/uri": "http://***@host/x",
        "data/auth": "***",
        "data/headers": "[{'password': '***'}]",
        "data/args": "Namespace(password='***')",
    }


class Grouped(TinyModule):
    """A module with two parameter groups; the first group has a name."""

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": [self.net.weight], "name": "body"}, {"params": [self.net.bias]}]
        groups[1]["lr"] = 0.5
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)


def test_departure_all_groups_and_timings_are_sent_on_request(tmp_path: Path) -> None:
    usual, more = KeepHook(), KeepHook(all_groups=True, timings=True)
    fit(tmp_path, IterTimerHook(), usual, more, module=Grouped())
    little, much = usual.kept.records[0].scalars, more.kept.records[0].scalars
    assert not {"train/time", "learning_rate/1"} & little.keys()
    added = {k: v for k, v in much.items() if k not in little}
    assert added.pop("train/time") > 0
    assert added.pop("train/data_time") > 0
    assert added == {
        "learning_rate/body": 0.1,
        "learning_rate/1": 0.5,
        "momentum/body": 0.9,
        "momentum/1": 0.9,
    }


def test_the_groups_rates_are_in_lines_of_steps_alone(tmp_path: Path) -> None:
    class Logs(Grouped):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.log("epoch_only", 1.0, on_step=False, on_epoch=True)
            return self.loss(batch)

        def test_step(self, batch: Any, batch_idx: int) -> None:
            self.log("hits", 1.0)

    hook = KeepHook(interval=2, all_groups=True)
    trainer = make_trainer(tmp_path, hook, limit_val_batches=0)
    trainer.fit(Logs(), make_loader(), make_loader())
    records = hook.kept.records
    trainer.test(Logs(), make_loader(), verbose=False)
    lines = [{*record.scalars} for record in (*records, *hook.kept.records)]
    assert ["learning_rate/body" in line for line in lines] == [True, True, False, False]
    assert (lines[2], lines[3]) == ({"train/epoch_only", "epoch"}, {"test/hits"})


def test_memory_is_sent_with_the_timings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_hooks.loggers.trackers.base.peak_memory", lambda runner: 512)
    usual, more = KeepHook(), KeepHook(timings=True)
    fit(tmp_path, IterTimerHook(), usual, more)
    assert "train/memory" not in usual.kept.records[0].scalars
    assert more.kept.records[0].scalars["train/memory"] == 512.0
    assert more.kept.records[-1].scalars["val/memory"] == 512.0


def test_memory_is_the_peak_where_there_is_cuda(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def runner(device: str) -> Any:
        return SimpleNamespace(module=SimpleNamespace(device=torch.device(device)), world_size=1)

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: 3 * 2**20 + 5)
    assert peak_memory(runner("cuda:0")) == 3
    assert peak_memory(runner("cpu")) is None


class Still(TinyModule):
    """A module that logs tensors without reading the device."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        loss = self.loss(batch)
        for name in "abcd":
            self.log(name, loss)
        return loss


def test_all_loggers_of_a_run_read_the_device_once_an_interval(tmp_path: Path) -> None:
    hooks = [KeepHook(interval=10), TextLoggerHook(interval=10), KeepHook(interval=10)]
    adapter = HookAdapter(hooks, work_dir=str(tmp_path / "work"))
    trainer = make_trainer(tmp_path, adapter, num_sanity_val_steps=0)
    with Reads() as reads:
        trainer.fit(Still(), make_loader(40), make_loader(1))
    assert len(hooks[0].kept.records) == 4 + 1
    assert [read.method for read in reads.found if read.is_ours] == ["tolist"] * (4 + 1)


def test_bad_arguments_of_every_tracker() -> None:
    with pytest.raises(ValueError, match="timeout must be at least 0, got -1"):
        KeepHook(timeout=-1)
    with pytest.raises(TypeError, match="run must be the client's run or a Lightning Logger"):
        KeepHook(run="digits")


LEFT_BY_A_KILL = """
import os, sys, time
from lightning_hooks.loggers.delivery.spool import Spool

spool = Spool(sys.argv[1], {"writer": "kept"})
child = os.fork()
if child == 0:
    os.close(1)
    time.sleep(60)
else:
    print(child, flush=True)
os._exit(0)
"""


def test_a_forked_process_keeps_no_lock_of_a_spool(tmp_path: Path) -> None:
    path = str(tmp_path / "s.jsonl")
    command = [sys.executable, "-c", LEFT_BY_A_KILL, path]
    child = int(subprocess.check_output(command, env=environment(), text=True))
    try:
        with exclusive(path):
            pass
    finally:
        os.kill(child, signal.SIGKILL)


class NoFolder(KeepHook):
    """A tracker that needs a temporary folder for files."""

    def _files(self, runner: Any, folders: contextlib.ExitStack) -> list[tuple[str, str]]:
        folders.enter_context(tempfile.TemporaryDirectory())
        return []


@pytest.mark.parametrize("hook", [KeepHook, NoFolder])
def test_a_full_temporary_folder_costs_a_warning_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, hook: Any
) -> None:
    def full(*args: Any, **kwargs: Any) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    made = hook()
    fit(tmp_path, made)
    assert made.kept.closed == [False]
    assert ("cannot be given the run's files" in caplog.text) == (hook is NoFolder)


def test_a_figure_may_be_made_while_a_client_imports_ipython(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each new figure reads ``IPython.version_info``, once IPython is among the modules."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    (tmp_path / "IPython.py").write_text("import time\ntime.sleep(1)\nversion_info = 9, 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "IPython", None)  # monkeypatch restores the entry afterward
    del sys.modules["IPython"]
    monkeypatch.setattr(Kept, "imports_ipython", True)

    def connect() -> Kept:
        importlib.import_module("IPython")
        return Kept()

    class Draws(TinyModule):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            Figure()

    fit(tmp_path, KeepHook(connect), module=Draws(), batches=3)
