"""SIGKILL at any moment: a whole checkpoint is left, foreign files stay, the run goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kill_job
import pytest
import torch

from lightning_hooks import manifest, newest_valid

FOREIGN = {"epoch_0.pth": "mine", "notes.txt": "mine too", "epoch_3.pth.0123456789ab.tmp": "theirs"}


class Server:
    """Starts training processes, one at a time."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, kill_job.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def start(self, **arguments: Any) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(arguments) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def answer(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    assert found.process.stdin is not None
    assert found.process.stdout is not None
    found.process.stdin.close()
    found.process.wait(60)
    found.process.stdout.close()


def is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def check_survivors(directory: Path, saved_before: int) -> int:
    """What a kill may have left; return the iterations of the newest valid file."""
    files = [p for p in directory.glob("*_*.pth") if p.name not in FOREIGN and not p.is_symlink()]
    # the old one goes when the new one is there: between the two is one more
    assert len(files) <= kill_job.KEPT + 1
    with warnings.catch_warnings():  # of the file that was being written
        warnings.simplefilter("ignore")
        newest = newest_valid(str(directory))
    if newest is None:
        assert saved_before == 0
        return 0
    checkpoint = torch.load(newest, weights_only=True)
    done = checkpoint["meta"]["iter"]
    assert done >= saved_before
    assert torch.all(checkpoint["state_dict"]["big"] == done)  # not of another moment
    for name, text in FOREIGN.items():
        assert (directory / name).read_text() == text
    return int(done)


def kill_again_and_again(
    server: Server, tmp_path: Path, kills: int, seed: int, **arguments: Any
) -> int:
    """Return how many kills came in the middle of a write."""
    draw = random.Random(seed)
    directory = tmp_path / "killed"
    whole = tmp_path / "whole"
    for path in (directory, whole):
        path.mkdir()
    server.start(directory=str(whole), **arguments)
    assert server.answer() == 0
    end = last_of(whole)
    killed = in_write = saved = 0
    while killed < kills:
        for name, text in FOREIGN.items():
            (directory / name).write_text(text)
        pid = server.start(directory=str(directory), **arguments)
        start = time.monotonic()
        wait = draw.uniform(0.0, 0.8)
        if killed % 3 == 0:  # in the middle of a write
            while is_running(pid) and (time.monotonic() - start < wait or not tmp_of(directory)):
                time.sleep(0.0002)
            time.sleep(draw.uniform(0, 0.004))
        else:
            time.sleep(wait)
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
        status = server.answer()
        if status == signal.SIGKILL:
            killed += 1
            in_write += bool(tmp_of(directory))
            saved = check_survivors(directory, saved)
        else:
            assert status == 0, (directory / "error.txt").read_text()
            saved = check_end(directory, end)
    server.start(directory=str(directory), **arguments)
    assert server.answer() == 0, (directory / "error.txt").read_text()
    check_end(directory, end)
    return in_write


def tmp_of(directory: Path) -> list[Path]:
    return [p for p in directory.glob("*.tmp") if p.name not in FOREIGN]


def check_end(directory: Path, end: Any) -> int:
    """The run that went on is the one that was never killed; begin anew."""
    found = last_of(directory)
    assert found.keys() == end.keys()
    assert all(torch.equal(found[key], end[key]) for key in end)
    left = {p.name for p in directory.glob("*_*.pth")} - FOREIGN.keys()
    # killed in the very last clean-up, the run has nothing to do when it is resumed
    assert kill_job.KEPT <= len(left) <= kill_job.KEPT + 1
    assert {entry.name for entry in manifest.read(str(directory))} >= left
    for path in directory.iterdir():
        path.unlink()
    return 0


def last_of(directory: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(str(newest_valid(directory)), weights_only=True)
    assert checkpoint["meta"]["epoch"] == kill_job.EPOCHS
    parts = ("state_dict", "ema_state_dict", "optimizer_states")
    return flatten({part: checkpoint[part] for part in parts})


def flatten(value: Any, name: str = "") -> dict[str, torch.Tensor]:
    if isinstance(value, dict):
        return {k: v for key, x in value.items() for k, v in flatten(x, f"{name}.{key}").items()}
    if isinstance(value, list):
        return flatten(dict(enumerate(value)), name)
    return {name: value} if isinstance(value, torch.Tensor) else {}


@pytest.mark.parametrize(
    ("background", "by_epoch"), [(False, True), (True, False)], ids=["sync", "background"]
)
def test_ten_kills(server, tmp_path, background, by_epoch):
    seed = random.randrange(10**6)
    print("seed", seed)
    found = kill_again_and_again(
        server, tmp_path, 5, seed, background=background, by_epoch=by_epoch
    )
    assert found >= 1


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
@pytest.mark.parametrize("by_epoch", [False, True], ids=["iterations", "epochs"])
def test_two_hundred_kills(server, tmp_path, background, by_epoch):
    found = kill_again_and_again(server, tmp_path, 50, 0, background=background, by_epoch=by_epoch)
    assert found >= 50 // 4
