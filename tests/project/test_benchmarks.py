"""Every bench can be run: that it still finds what it takes from us and from the others."""

from __future__ import annotations

import importlib
import inspect
import json

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
    results = ROOT / "docs" / "results"
    found = json.loads((results / "results.json").read_text(encoding="utf-8"))["benches"]
    tables = (results / "tables.md").read_text(encoding="utf-8")
    assert report.tables(found) == tables
    goals = (results / "goals.md").read_text(encoding="utf-8").splitlines()[2:]
    rows = [line.rpartition(" | ")[0] + " |" for line in goals if line.startswith("| ")]
    assert rows
    assert set(rows) <= set(tables.splitlines())
