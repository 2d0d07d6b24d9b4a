"""Visdom with the real client: the tests read the logged values back."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import Hook, VisdomLoggerHook
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import StoredSpool
from lightning_hooks.loggers.trackers.visdom import VisdomWriter
from support import visdom_server
from support.logs.trackers import (
    REAL_CLIENTS,
    Pictures,
    Sent,
    Tuned,
    fit,
    quiet,
    read_visdom_log,
    read_visdom_server,
)

pytestmark = REAL_CLIENTS


CLIENT = {"raise_exceptions": True, "use_incoming_socket": False}


class Outage(Hook):
    """Kills the server after the first records and restarts it later."""

    def __init__(self, server: visdom_server.Server, tracker: VisdomLoggerHook) -> None:
        self.server, self.tracker = server, tracker

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter == 1:
            end = time.monotonic() + 30
            while not self.tracker.status()["sent"] and time.monotonic() < end:
                time.sleep(0.02)
            self.server.kill()
        if runner.iter == 6:
            self.server.start()


def test_visdom_draws_on_a_server(
    work: Path, tmp_path: Path, visdom_server: int, caplog: pytest.LogCaptureFixture
) -> None:
    sent = Sent(interval=2)
    server = {"server": "http://127.0.0.1", "port": visdom_server, "env": "digits"}
    hook = VisdomLoggerHook(server, interval=2)
    fit(work, hook, Pictures(), sent, module=Tuned(0.2))
    windows = json.loads((tmp_path / "digits.json").read_text())["jsons"]
    assert read_visdom_server(tmp_path / "digits.json") == {
        step: {k: v for k, v in row.items() if sent.is_scalar(v)} for step, row in sent.rows.items()
    }
    assert windows["val/sample"]["type"] == "image"
    assert "<td>lr<td>0.2" in windows["parameters"]["content"]
    assert quiet(caplog)


def test_a_dead_visdom_server_costs_one_warning(
    work: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("visdom")
    hook = VisdomLoggerHook({"server": "http://127.0.0.1", "port": 9}, interval=1, timeout=0.5)
    fit(work, hook, epochs=1)
    assert not quiet(caplog)
    (path,) = work.glob("spool/*.jsonl")
    assert len(StoredSpool(str(path))) == 5


def test_visdom_uses_a_client_that_is_given(work: Path, tmp_path: Path) -> None:
    visdom = pytest.importorskip("visdom")
    (tmp_path / "mine").mkdir()
    client = visdom.Visdom(offline=True, log_to_filename=str(tmp_path / "mine" / "x.log"))
    fit(work, VisdomLoggerHook(interval=2, run=client), epochs=1)
    assert read_visdom_log(tmp_path / "mine").keys() == {2, 4, 5}
    assert not (work / "visdom").exists()


def test_a_killed_and_restarted_server_has_each_point_once(work: Path, tmp_path: Path) -> None:
    pytest.importorskip("visdom")
    sent = Sent(interval=1)
    with visdom_server.serve(tmp_path) as server:
        init = {"server": "http://127.0.0.1", "port": server.port, "env": "digits"}
        hook = VisdomLoggerHook(init, interval=1, timeout=30.0)
        fit(work, hook, sent, Outage(server, hook))
        assert hook.status()["error"] is None
    assert read_visdom_server(tmp_path / "digits.json") == sent.rows


def test_points_that_a_killed_server_lacks_are_drawn_again(tmp_path: Path) -> None:
    pytest.importorskip("visdom")
    records = [Record(seq, 0.0, seq, scalars={"loss": float(seq)}) for seq in range(1, 7)]
    with visdom_server.serve(tmp_path) as server:
        init = {"server": "http://127.0.0.1", "port": server.port, "env": "digits"}
        writer = VisdomWriter.connect(init={**init, **CLIENT})
        writer.write(records[:3])
        save, writer.run.save = writer.run.save, lambda envs: server.kill()
        with pytest.raises(ConnectionError):
            writer.write(records[3:])
        server.start()
        writer.run.save = save
        writer.write(records[3:])
        writer.run.save = lambda envs: None  # drawn, but the answer is lost
        more = [Record(7, 0.0, 7, scalars={"loss": 7.0})]
        with pytest.raises(ConnectionError):
            writer.write(more)
        writer.run.save = save
        writer.write(more)
    rows = read_visdom_server(tmp_path / "digits.json")
    assert rows == {step: {"loss": float(step)} for step in range(1, 8)}
