"""Kills a training 200 times, breaks its disk, feeds it bad input, and prints what came of it.

Run it with ``make torture``. Whatever is lost or differs by a bit is an error.
"""

from __future__ import annotations

import argparse
import platform
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import fault_job
import kills
import lightning as L
import pytest
import test_kill
import torch
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
WAYS = [(background, by_epoch) for background in (False, True) for by_epoch in (True, False)]


def torture_by_kills(folder: Path, number: int, draw: random.Random) -> Iterator[list[str]]:
    """Kill, resume and compare; yield the rows of the table."""
    server = kills.Server()
    for background, by_epoch in WAYS:
        way = f"{'background' if background else 'synchronous'}, by {unit(by_epoch)}"
        (folder / way).mkdir()
        victim = kills.Victim(server, folder / way, background=background, by_epoch=by_epoch)
        kills.kill_again_and_again(victim, number // len(WAYS), draw)
        yield [way, *counts(victim.tally)]
    server.close()


def unit(by_epoch: bool) -> str:
    return "epoch" if by_epoch else "iteration, within epochs"


def counts(tally: Counter[str]) -> list[str]:
    names = ("kills", "in a write", "resumes", "losses", "runs bit-equal")
    return [str(tally[name]) for name in names]


def torture_by_signals(folder: Path, number: int, draw: random.Random) -> Iterator[list[str]]:
    """Interrupt, resume and compare."""
    server = kills.Server()
    for name in ("SIGTERM", "SIGINT"):
        tally: Counter[str] = Counter()
        for background, by_epoch in ((False, True), (True, False)):
            place = folder / f"{name} {background}"
            place.mkdir()
            victim = kills.Victim(server, place, background=background, by_epoch=by_epoch)
            for turn in range(number // 2):
                waits = draw.uniform(0, 0.4) * victim.seconds, draw.uniform(0, 0.004)
                if victim.interrupt(getattr(signal, name), *waits, in_write=turn % 3 == 0):
                    victim.tally["kills"] += 1
                    test_kill.check_interrupted(victim)
            victim.finish()
            tally += victim.tally
        yield [f"{name}, both ways", *counts(tally)]
    server.close()


def torture_by_faults(folder: Path) -> Iterator[list[str]]:
    """Break the disk in each way; what comes is said by the docstrings and checked by the code."""
    if not fault_job.can_mount():
        yield ["(small disks cannot be mounted here)", ""]
        return
    server = kills.Server(fault_job.__file__)
    whole = folder / "nothing happens"
    whole.mkdir()
    server.start(directory=str(whole), background=False, by_epoch=True)
    assert server.answer() == 0
    for name, job in fault_job.FAULTS.items():
        place = folder / name
        place.mkdir()
        place.chmod(0o755)
        server.start(job=name, directory=str(place), whole=str(whole))
        status = server.answer()
        assert status == 0, f"{name}: {status}"
        yield [name.replace("_", " "), str(job.__doc__)]
    server.close()


class Inputs:
    """Counts what pytest's tests of bad input try: each test, and each example of hypothesis's."""

    def __init__(self) -> None:
        self.tried: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: Any, call: Any) -> Any:
        """Note the outcome of a test."""
        report = yield
        file = item.path.name
        told = str(getattr(item, "hypothesis_statistics", ""))
        examples = [int(n) for n in re.findall(r"(\d+) (?:passing|failing|invalid)", told)]
        if report.when == "teardown":
            self.tried[file] += max(sum(examples), 1)
        self.failed[file] += bool(report.failed)
        return report


def torture_by_input(files: Sequence[Path]) -> Iterator[list[str]]:
    """Run the tests of bad input and payloads."""
    inputs = Inputs()
    for file in files:
        code = pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", str(file)], [inputs])
        assert code == 0, file
        yield [file.stem, str(inputs.tried[file.name]), str(inputs.failed[file.name])]


def show(console: Console, title: str, columns: Sequence[str], rows: Iterator[list[str]]) -> None:
    """Print a table, when all of it is there."""
    start = time.monotonic()
    table = Table(*columns, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    table.caption = f"{time.monotonic() - start:.0f} s"
    console.print(table)


def main() -> None:
    """Do all of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--signals", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(given.seed)
    console = Console(width=110, file=sys.stdout, force_terminal=False)
    versions = f"torch {torch.__version__}, lightning {L.__version__}"
    console.print(f"Python {platform.python_version()}, {versions}; seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        path.chmod(0o755)
        columns = "run", "kills", "in a write", "resumes", "losses", "runs bit-equal"
        killed = torture_by_kills(path, given.kills, draw)
        show(console, "SIGKILL at random moments", columns, killed)
        columns = "run", "signals", "in a write", "resumes", "losses", "runs bit-equal"
        stopped = torture_by_signals(path, given.signals, draw)
        show(console, "SIGTERM and Ctrl-C at random moments", columns, stopped)
        broken = torture_by_faults(path)
        show(console, "Faults", ("fault", "what comes of it, checked"), broken)
    files = sorted([*HERE.glob("test_bad_input*.py"), HERE / "test_payloads.py"])
    columns = "tests", "inputs tried", "failed"
    show(console, "Bad input", columns, torture_by_input([f for f in files if f.exists()]))


if __name__ == "__main__":
    main()
