"""The processor instructions that a usual set of hooks adds to a step, whatever the machine's load.

The bench has the sets of ``defaults``; valgrind's callgrind counts the instructions between two
steps of an epoch. One round is enough: rounds differ by a few thousand instructions. Without
valgrind the bench is left out.

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
    """Has callgrind, which runs this process, write its counts to a file."""

    def mark(self, step: int) -> None:
        """Start to count at the first mark; write the counts at the last mark."""
        mark(step)


def mark(step: int) -> None:
    """Have callgrind start to count at the first step and write the counts at the last step.

    Outside of the counted steps the program runs ten times as fast.
    """
    actions = {FIRST: ("--instr=on", "--zero"), LAST: ("--dump", "--instr=off")}
    for action in actions.get(step, ()):
        command = ["callgrind_control", action, str(os.getpid())]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def has_callgrind() -> bool:
    """Return whether valgrind is installed."""
    return bool(shutil.which("valgrind") and shutil.which("callgrind_control"))


def count(module: str, runs: int) -> Figures:
    """Run a program under callgrind; return the thousands of instructions of a step.

    Args:
        module: The program.
        runs: The number of runs that the program counts.
    """
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory, "counted")
        valgrind = ["valgrind", "--tool=callgrind", "--instr-atstart=no"]
        valgrind += [f"--callgrind-out-file={out}"]
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
