"""Visdom with its real client: what was logged is read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lightning_hooks import VisdomLoggerHook
from lightning_hooks.loggers.replay import read
from support.logs.trackers import (
    Pictures,
    Sent,
    Tuned,
    fit,
    quiet,
    read_visdom_log,
    read_visdom_server,
)

pytestmark = [
    pytest.mark.usefixtures("nothing_elsewhere"),
    # the client's own, and Python's
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


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
    assert len(read(str(path))[1]) == 5


def test_visdom_uses_a_client_that_is_given(work: Path, tmp_path: Path) -> None:
    visdom = pytest.importorskip("visdom")
    (tmp_path / "mine").mkdir()
    client = visdom.Visdom(offline=True, log_to_filename=str(tmp_path / "mine" / "x.log"))
    fit(work, VisdomLoggerHook(interval=2, run=client), epochs=1)
    assert read_visdom_log(tmp_path / "mine").keys() == {2, 4, 5}
    assert not (work / "visdom").exists()
