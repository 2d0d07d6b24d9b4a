"""A signal at any moment: a whole checkpoint is left, foreign files stay, the run goes on."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import kill_job
import pytest
import torch
from kills import Server, Victim, kill_again_and_again
from text_logs import read_logs

pytest.importorskip("torchdata")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    found = Server()
    yield found
    found.close()


@pytest.fixture
def draw() -> random.Random:
    seed = random.randrange(10**6)
    print("seed", seed)
    return random.Random(seed)


ways = pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
units = pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])


@pytest.mark.parametrize(
    ("background", "by_epoch"), [(False, True), (True, False)], ids=["sync", "background"]
)
def test_six_kills(
    server: Server, tmp_path: Path, draw: random.Random, background: bool, by_epoch: bool
) -> None:
    victim = Victim(server, tmp_path, background=background, by_epoch=by_epoch)
    kill_again_and_again(victim, 3, draw)
    assert victim.tally["in a write"] >= 1


@pytest.mark.slow
@ways
@units
def test_two_hundred_kills(
    server: Server, tmp_path: Path, background: bool, by_epoch: bool
) -> None:
    victim = Victim(server, tmp_path, background=background, by_epoch=by_epoch)
    kill_again_and_again(victim, 50, random.Random(0))
    assert victim.tally["in a write"] >= 50 // 4


def check_interrupted(victim: Victim) -> None:
    """Raw weights, of before or after the step it came in, and all that was logged."""
    path = victim.directory / "weights.pt"
    if not path.exists():  # it came before the fit, or after
        return
    found = torch.load(path, weights_only=True)
    if not found["started"]:  # the weights are still to be loaded
        return
    done = found["iter"]
    for index, value in enumerate(found["now"]):
        steps = victim.witness[max(done - 1, 0) : done + 1]
        assert any(torch.equal(value, step[index]) for step in steps), (done, index)
    rows, lines = read_logs(victim.directory)
    assert rows == victim.logs[0][: len(rows)]
    assert abs(len(rows) - len(lines)) <= 1  # Ctrl-C between the two
    logged = [row for row in rows if row["mode"] == "train"]
    per_epoch = kill_job.BATCHES // 3
    epoch, batch = divmod(max(done - 1, 0), kill_job.BATCHES)
    assert len(logged) >= epoch * per_epoch + batch // 3


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_signal_leaves_raw_weights_flushed_logs_and_a_state_to_resume_from(
    server: Server, tmp_path: Path, draw: random.Random, name: str
) -> None:
    for background in (False, True):
        (tmp_path / str(background)).mkdir()
        victim = Victim(
            server, tmp_path / str(background), background=background, by_epoch=background
        )
        for turn in range(2):
            waits = draw.uniform(0, 0.4) * victim.seconds, draw.uniform(0, 0.004)
            number = getattr(signal, name)
            if victim.interrupt(number, *waits, in_write=turn % 2 == 0):
                check_interrupted(victim)
        victim.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "background"), [("SIGTERM", False), ("SIGINT", True)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_at_the_start_in_a_save_and_in_a_validation(
    server: Server, tmp_path: Path, name: str, background: bool
) -> None:
    victim = Victim(server, tmp_path, background=background, by_epoch=True)
    # the second start goes on from a file
    for place in ("fit start", "save", "fit start", "validation"):
        victim.interrupt_at(place, getattr(signal, name))
        check_interrupted(victim)
    assert victim.saved >= 3 * kill_job.BATCHES
    victim.finish()
