"""Raise an error in a hook on one of two ranks, for test_failing_rank.py.

python -m support.jobs.failing_rank DIRECTORY RANK POINT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch

from lightning_hooks import Hook
from support.processes import write_rank
from support.training import NoValidation, fit, two_ranks


class Fails(Hook):
    """Raises an error at one point of the second epoch on one rank."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def _fail(self, runner: Any) -> None:
        if runner.rank == self.rank and runner.epoch == 1:
            raise KeyError("the label 'cat'")


def main(out: Path, rank: int, point: str) -> None:
    torch.set_num_threads(1)
    hook = type("Fails", (Fails,), {point: Fails._fail})(rank)
    try:
        fit(out, hook, module=NoValidation, max_epochs=3, **two_ranks())
    except BaseException as error:
        notes = getattr(error, "__notes__", [])
        write_rank(out, {"error": type(error).__name__, "notes": notes, "time": time.time()})
        raise


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
