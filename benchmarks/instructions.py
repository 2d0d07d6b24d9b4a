"""The instructions that a usual set of hooks adds to a step; load does not change them.

The sets are those of ``defaults``; valgrind's callgrind counts what the processor executes between
two steps of an epoch. One round is enough: it comes out the same to a few thousand. Without
valgrind this bench does not take part.

    python -m benchmarks instructions
"""

from __future__ import annotations

import gc
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

from benchmarks.defaults import FIRST, LAST, Meter, cases, compare
from benchmarks.measure import Bench, Figures


class Counted(Meter):
    """Makes callgrind, under which this process runs, write its counts to a file."""

    def mark(self, step: int) -> None:
        """Forget what was counted at the first mark, write it down at the last."""
        if step in (FIRST, LAST):
            subprocess.run(command(step), check=True, stdout=subprocess.DEVNULL)


def command(step: int) -> list[str]:
    """Return the command by which callgrind begins to count, or writes down what it counted."""
    return ["callgrind_control", "--zero" if step == FIRST else "--dump", str(os.getpid())]


def has_callgrind() -> bool:
    """Return whether valgrind is installed."""
    return bool(shutil.which("valgrind") and shutil.which("callgrind_control"))


def count(module: str, runs: int) -> Figures:
    """Run a program under callgrind; return the thousands of instructions of a step.

    Args:
        module: The program, which has callgrind write down as many runs.
        runs: Their number.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "counted")
        valgrind = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
        program = [sys.executable, "-W", "ignore", "-m", module]
        subprocess.run([*valgrind, *program], check=True, capture_output=True)
        found = []
        for number in range(1, runs + 1):
            written = out.with_suffix(f".{number}").read_text()
            summary = re.search(r"^summary: (\d+)$", written, re.MULTILINE)
            assert summary is not None, "callgrind has written no summary"
            found.append(int(summary[1]) / (LAST - FIRST) / 1000)
    return found


def run(rounds: int = 1) -> list[Bench]:
    """Count the instructions of each set."""
    if not has_callgrind():
        return []
    counted = [count("benchmarks.instructions", len(cases())) for _ in range(rounds)]
    figures = dict(zip(cases(), map(list, zip(*counted, strict=True)), strict=True))
    bench = Bench("Default sets, counted", "thousand instructions per step", figures)
    compare(bench)
    return [bench]


def main() -> None:
    """Train with each set; callgrind runs this program."""
    torch.set_num_threads(1)
    logging.disable(logging.WARNING)
    gc.disable()
    for train in cases().values():
        train(Counted())


if __name__ == "__main__":
    main()
