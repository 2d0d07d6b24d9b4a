"""A signal at any moment leaves a complete checkpoint and foreign files, and the run resumes."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from support.torture import kill_job
from support.torture.kills import Victim, check_interrupted, kill_again_and_again


@pytest.fixture
def draw() -> random.Random:
    seed = random.randrange(10**6)
    print("seed", seed)
    return random.Random(seed)


ways = pytest.mark.parametrize("background", [False, True], ids=["sync", "background"])
units = pytest.mark.parametrize("by_epoch", [True, False], ids=["epochs", "iterations"])


@pytest.mark.parametrize(
    ("background", "by_epoch"),
    [pytest.param(False, True, marks=pytest.mark.slow), (True, False)],
    ids=["sync", "background"],
)
def test_six_kills(tmp_path: Path, draw: random.Random, background: bool, by_epoch: bool) -> None:
    victim = Victim(tmp_path, background=background, by_epoch=by_epoch)
    kill_again_and_again(victim, 3, draw)
    assert victim.tally["in a write"] >= 1


@pytest.mark.slow
@ways
@units
def test_two_hundred_kills(tmp_path: Path, background: bool, by_epoch: bool) -> None:
    victim = Victim(tmp_path, background=background, by_epoch=by_epoch)
    kill_again_and_again(victim, 50, random.Random(0))
    assert victim.tally["in a write"] >= 50 // 4


@pytest.mark.parametrize(
    ("name", "background"),
    [
        ("SIGTERM", True),
        pytest.param("SIGTERM", False, marks=pytest.mark.slow),
        pytest.param("SIGINT", True, marks=pytest.mark.slow),
        pytest.param("SIGINT", False, marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_raw_weights_flushed_logs_and_a_state_to_resume_from(
    tmp_path: Path, draw: random.Random, name: str, background: bool
) -> None:
    victim = Victim(tmp_path, background=background, by_epoch=background)
    for turn in range(2):
        waits = draw.uniform(0, 0.4) * victim.seconds, draw.uniform(0, 0.004)
        if victim.interrupt(getattr(signal, name), *waits, in_write=turn % 2 == 0):
            check_interrupted(victim)
    victim.finish()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "background"), [("SIGTERM", False), ("SIGINT", True)], ids=["SIGTERM", "SIGINT"]
)
def test_a_signal_at_the_start_in_a_save_and_in_a_validation(
    tmp_path: Path, name: str, background: bool
) -> None:
    victim = Victim(tmp_path, background=background, by_epoch=True)
    # the second start goes on from a file
    for place in ("fit start", "save", "fit start", "validation"):
        victim.interrupt_at(place, getattr(signal, name))
        check_interrupted(victim)
    assert victim.saved >= 3 * kill_job.BATCHES
    victim.finish()


def test_a_signal_in_the_last_validation_leaves_the_files_of_an_uninterrupted_run(
    tmp_path: Path,
) -> None:
    """The resumed run repeats the interrupted validation and writes the file again."""
    victim = Victim(tmp_path, background=True, by_epoch=True)
    victim.interrupt_at("last validation", signal.SIGTERM)
    assert victim.saved == kill_job.EPOCHS * kill_job.BATCHES
    victim.finish()
