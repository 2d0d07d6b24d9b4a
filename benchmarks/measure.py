"""Tools of all benches: run cases in turns, compute ratios within a round, print tables."""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from rich.console import Console
from rich.table import Table

T = TypeVar("T")
Figures = list[float]
"""One figure a round."""


@dataclass(frozen=True)
class Ratio:
    """The cost of a case divided by the cost of a peer, round by round."""

    what: str
    peer: str
    ratios: Figures
    goal: float | None = None

    @property
    def median(self) -> float:
        """The figure that is compared with the goal."""
        return statistics.median(self.ratios)

    @property
    def quartiles(self) -> tuple[float, float]:
        """The spread."""
        if len(self.ratios) < 2:
            return self.median, self.median
        low, _, high = statistics.quantiles(self.ratios, n=4, method="inclusive")
        return low, high


@dataclass
class Bench:
    """The figures of a bench by case, and the ratios that matter."""

    title: str
    unit: str
    figures: dict[str, Figures]
    ratios: list[Ratio] = field(default_factory=list)

    def compare(
        self, what: str, ours: Figures, peer: str, theirs: Figures, goal: float | None = None
    ) -> None:
        """Add the ratio of two rows of figures."""
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        self.ratios.append(Ratio(what, peer, ratios, goal))

    def compare_cases(self, ours: str, peer: str, goal: float | None = None) -> None:
        """Add the ratio of two cases, if the peer has taken part."""
        if peer in self.figures:
            self.compare(ours, self.figures[ours], peer, self.figures[peer], goal)

    def over(self, case: str, base: str) -> Figures:
        """Return the cost of a case minus that of another one, round by round."""
        pairs = zip(self.figures[case], self.figures[base], strict=True)
        return [one - other for one, other in pairs]


def has(*packages: str) -> bool:
    """Return whether peers are installed; missing ones are left out."""
    return all(importlib.util.find_spec(package) for package in packages)


def in_turns(
    cases: Mapping[str, Callable[[], T]], rounds: int, warm_up: int = 1, collecting: bool = False
) -> dict[str, list[T]]:
    """Run all cases in each round; return the results of each case, without the warm-up rounds.

    Args:
        cases: Functions to run, by name.
        rounds: The number of rounds in the result.
        warm_up: The number of rounds before.
        collecting: Whether Python's garbage collection stays on.
    """
    found: dict[str, list[T]] = {case: [] for case in cases}
    if not collecting:
        gc.disable()
    for index in range(rounds + warm_up):
        for case, run in cases.items():
            figure = run()
            if index >= warm_up:
                found[case].append(figure)
        gc.collect()
    gc.enable()
    return found


def keep_freed_memory() -> None:
    """Have glibc keep freed memory, so that a step does not wait for new pages of the system."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        trim_threshold, mmap_threshold, arenas, largest = -1, -3, -8, 32 << 20
        libc.mallopt(trim_threshold, 2**31 - 1)
        libc.mallopt(mmap_threshold, largest)
        libc.mallopt(arenas, 1)  # those of other threads give memory back all the same


def show(bench: Bench) -> None:
    """Print the tables of a bench."""
    console = Console()
    table = Table("case", bench.unit, "least", title=bench.title)
    for case, figures in bench.figures.items():
        table.add_row(case, f"{statistics.median(figures):.4g}", f"{min(figures):.4g}")
    console.print(table)
    if not bench.ratios:
        return
    table = Table("ratio", "of", "median", "quartiles", "goal")
    for row in ratio_rows(bench.ratios):
        table.add_row(*row)
    console.print(table)


def ratio_rows(ratios: Sequence[Ratio]) -> list[list[str]]:
    """Return the cells of a table of ratios."""
    rows = []
    for ratio in ratios:
        low, high = ratio.quartiles
        goal = "" if ratio.goal is None else f"{ratio.goal:g}"
        spread = f"{low:.3f} to {high:.3f}"
        rows.append([ratio.what, ratio.peer, f"{ratio.median:.3f}", spread, goal])
    return rows


def make_loader(data: Any, batch_size: int | None = 1) -> Any:
    """Make a loader of a tensor's rows, or of a data set."""
    from torch.utils.data import DataLoader

    return DataLoader(data, batch_size=batch_size)


def quiet_trainer(directory: Any, *callbacks: Any, **options: Any) -> Any:
    """Make a Trainer on the CPU without output, logger and checkpoints."""
    import lightning as L  # a bench about imports does without

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    options = {"max_epochs": 1, "accelerator": "cpu", **quiet, **options}
    return L.Trainer(callbacks=[*callbacks], default_root_dir=directory, **options)
