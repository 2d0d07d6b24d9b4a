"""Every benchmark runs with the current package and peers."""

from __future__ import annotations

import importlib
import inspect
import json
import statistics

import pytest

from support.paths import ROOT

pytest.importorskip("rich")

SHARED = {"__main__", "alternation", "by_hand", "loops", "measure", "report", "task"}
NAMES = sorted({path.stem for path in (ROOT / "benchmarks").glob("*.py")} - SHARED)


def test_every_bench_imports_and_runs_without_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    for name in NAMES:
        bench = importlib.import_module(f"benchmarks.{name}")
        inspect.signature(bench.run).bind()


def test_the_command_knows_all_benches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    assert sorted(importlib.import_module("benchmarks.__main__").NAMES) == NAMES


def test_the_pages_have_the_numbers_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    report = importlib.import_module("benchmarks.report")
    ratio = importlib.import_module("benchmarks.measure").Ratio
    results = ROOT / "docs" / "results"
    written = json.loads((results / "results.json").read_text(encoding="utf-8"))
    found = written["benches"]
    assert report.tables(found) == (results / "tables.md").read_text(encoding="utf-8")
    ratios = [
        ratio(**kept) for benches in found.values() for one in benches for kept in one["ratios"]
    ]
    goals = (results / "goals.md").read_text(encoding="utf-8")
    assert report.goals(ratios, written["machine"]) == goals


def test_the_table_of_trackers_has_the_costs_of_the_results() -> None:
    results = json.loads((ROOT / "docs/results/results.json").read_text(encoding="utf-8"))
    ratios = [ratio for bench in results["benches"]["logging"] for ratio in bench["ratios"]]
    medians = {ratio["what"]: statistics.median(ratio["ratios"]) for ratio in ratios}
    names = [f"5 scalars, {name}LoggerHook" for name in ("Mlflow", "Wandb")]
    page = (ROOT / "docs/families/writers.md").read_text(encoding="utf-8")
    (row,) = [line for line in page.splitlines() if line.startswith("| a training step at most")]
    cells = [cell.strip() for cell in row.split("|")[2:-1] if cell.strip()]
    assert [cell.startswith("yes") for cell in cells] == [medians[name] <= 1 for name in names]
