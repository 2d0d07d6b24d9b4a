"""Kill a training 200 times, break its disk, feed it bad input, and print the results.

Run with ``make torture``. A lost checkpoint, or a difference of a single bit, is an error. ``--into
docs/results/torture.md`` writes the tables of docs/torture.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import torch

from support.paths import TESTS
from support.torture import fault_job, kills

WAYS = [(background, by_epoch) for background in (False, True) for by_epoch in (True, False)]


Job = Callable[[], list[str]]


def torture_by_kills(folder: Path, number: int, seed: int) -> Iterator[Job]:
    """Yield jobs that kill and resume a run, compare the results and return a table row."""

    def job(background: bool, by_epoch: bool) -> list[str]:
        unit = "epoch" if by_epoch else "iteration, within epochs"
        way = f"{'background' if background else 'synchronous'}, by {unit}"
        victim = victim_of(folder / way, background, by_epoch)
        kills.kill_again_and_again(victim, number // len(WAYS), random.Random(f"{seed}{way}"))
        return [way, *counts(victim.tally)]

    for way in WAYS:
        yield partial(job, *way)


def torture_by_signals(folder: Path, number: int, seed: int) -> Iterator[Job]:
    """Yield jobs that interrupt and resume a run and compare the results."""

    def job(name: str, background: bool) -> list[str]:
        way = f"{name}, {'background' if background else 'synchronous'}"
        draw = random.Random(f"{seed}{way}")
        victim = victim_of(folder / way, background, not background)
        for turn in range(number // 4):
            waits = draw.uniform(0, 0.4) * victim.seconds, draw.uniform(0, 0.004)
            if victim.interrupt(getattr(signal, name), *waits, in_write=turn % 3 == 0):
                victim.tally["kills"] += 1
                kills.check_interrupted(victim)
        victim.finish()
        return [way, *counts(victim.tally)]

    for name in ("SIGTERM", "SIGINT"):
        for background in (False, True):
            yield partial(job, name, background)


def victim_of(folder: Path, background: bool, by_epoch: bool) -> kills.Victim:
    """Return a run to be killed."""
    folder.mkdir()
    return kills.Victim(folder, background=background, by_epoch=by_epoch)


def counts(tally: Counter[str]) -> list[str]:
    """Return the cells of a row."""
    names = ("kills", "in a write", "resumes", "losses", "runs bit-equal")
    return [str(tally[name]) for name in names]


def torture_by_faults(folder: Path) -> Iterator[Job]:
    """Yield jobs that break the disk; each fault's docstring is the result checked by the code."""
    if not fault_job.can_mount():
        yield lambda: ["(small disks cannot be mounted here)", ""]
        return
    starter = kills.JobStarter(fault_job.__name__)
    whole = folder / "nothing happens"
    whole.mkdir()
    starter.start(directory=str(whole), background=False, by_epoch=True)
    assert starter.answer() == 0

    def job(name: str) -> list[str]:
        place = folder / name
        place.mkdir()
        place.chmod(0o755)
        with one_at_a_time:
            starter.start(job=name, directory=str(place), whole=str(whole))
            status = starter.answer()
        assert status == 0, f"{name}: {status}"
        return [name.replace("_", " "), str(fault_job.FAULTS[name].__doc__)]

    one_at_a_time = threading.Lock()
    for name in fault_job.FAULTS:
        yield partial(job, name)


class Outcomes:
    """Counts how pytest's tests end."""

    def __init__(self) -> None:
        self.passed = self.failed = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record the outcome of a test."""
        self.passed += report.when == "call" and report.passed
        self.failed += report.failed


def inputs() -> Counter[str]:
    """Return the number of drawn inputs; pytest must be the first to import ``bad_input``."""
    return Counter(getattr(sys.modules.get("support.torture.bad_input"), "tried", ()))


def torture_with_company() -> Iterator[Job]:
    """Yield a job that kills a run with three trackers and compares the records of each tracker."""

    def job() -> list[str]:
        outcomes = Outcomes()
        file = str(TESTS / "loggers" / "trackers" / "test_tracker_faults.py")
        file += "::test_after_kills_each_backend_has_each_step_once"
        code = pytest.main(
            ["-q", "--no-header", "-p", "no:cacheprovider", "-m", "", file], [outcomes]
        )
        assert code == 0, file
        result = (
            "Each step once in MLflow and TensorBoard, at most once in W&B; the text log of a "
            "whole run."
        )
        return [
            "6 kills while MLflow, TensorBoard, W&B offline and the text log write",
            result if outcomes.passed else "",
        ]

    yield job


def torture_by_input(files: Sequence[Path]) -> Iterator[Job]:
    """Yield jobs that run the tests of bad input and payloads, most of them with drawn inputs."""
    os.environ.setdefault("DATA_FILE_TRIES", "20000")

    def job(file: Path) -> list[str]:
        before, outcomes = inputs(), Outcomes()
        code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", str(file)], [outcomes])
        assert code == 0, file
        tried = [f"{number} {what}" for what, number in sorted((inputs() - before).items())]
        return [file.stem, ", ".join(tried), str(outcomes.passed), str(outcomes.failed)]

    for file in files:
        yield partial(job, file)


def table(title: str, columns: Sequence[str], jobs: Iterator[Job], at_once: int = 4) -> str:
    """Run jobs; print and return the Markdown table of the rows."""
    start = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool:
        rows = [*pool.map(lambda job: job(), jobs)]
    lines = [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]
    text = "\n".join([f"### {title}", "", *lines, ""])
    print(f"{text}\n{time.monotonic() - start:.0f} s\n", flush=True)
    return text


def main() -> None:
    """Run all torture tests."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--signals", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--into", type=Path, help="a file for the tables")
    given = parser.parse_args()
    torch.set_num_threads(1)
    versions = f"torch {torch.__version__}, lightning {L.__version__}"
    parts = [f"Python {platform.python_version()}, {versions}, seed {given.seed}\n"]
    print(*parts, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        columns = "run", "kills", "in a write", "resumes", "losses", "runs bit-equal"
        killed = torture_by_kills(path, given.kills, given.seed)
        parts.append(table("SIGKILL at random moments", columns, killed))
        columns = "run", "signals", "in a write", "resumes", "losses", "runs bit-equal"
        stopped = torture_by_signals(path, given.signals, given.seed)
        parts.append(table("SIGTERM and Ctrl-C at random moments", columns, stopped))
        broken = torture_by_faults(path)
        parts.append(table("Faults", ("fault", "what comes of it, checked"), broken))
    company = torture_with_company()
    parts.append(table("Kills with company", ("run", "what comes of it, checked"), company))
    files = sorted(
        [*TESTS.rglob("test_bad_input*.py"), *TESTS.rglob("test_payloads.py")],
        key=lambda path: path.name,
    )
    columns = "tests", "inputs tried", "passed", "failed"
    parts.append(table("Bad input", columns, torture_by_input(files), 1))
    if given.into:
        given.into.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
