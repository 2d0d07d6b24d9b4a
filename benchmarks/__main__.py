"""Run all benches, or the named ones, each in a separate process: ``python -m benchmarks``.

Prints the tables and writes the files that the documentation shows: ``results.json`` with every
round's figures, ``goals.md``, ``goals.png`` and ``tables.md``. A peer that is not installed is left
out; ``make bench`` builds an environment with all peers.

    python -m benchmarks [NAME ...] [--rounds N] [--results DIR]
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.measure import Bench, Ratio, show

NAMES = (
    "dispatch",
    "whole",
    "lightning_step",
    "defaults",
    "instructions",
    "parts",
    "ema",
    "precise_bn",
    "checkpoint",
    "logging",
    "device",
    "lr",
    "invalid_loss",
    "imports",
    "growth",
    "loader",
    "norms",
    "memory",
    "ranks",
)
ROOT = Path(__file__).parents[1]
CLIENTS = ROOT / ".venv" / "bin" / "python"
"""Has the clients of all backends, which would not go with the other peers."""


def run_here(name: str, rounds: int | None) -> list[Bench]:
    """Run one bench in this process."""
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    run: Any = importlib.import_module(f"benchmarks.{name}").run
    found = run(**({} if rounds is None else {"rounds": rounds}))
    return [found] if isinstance(found, Bench) else list(found)


def run_apart(name: str, rounds: int | None) -> list[dict[str, Any]]:
    """Run one bench in a new process, where it prints its tables; return its results."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "found.json")
        python = CLIENTS if name == "logging" and CLIENTS.exists() else sys.executable
        command = [str(python), "-m", "benchmarks", name, "--into", str(path)]
        command += [] if rounds is None else ["--rounds", str(rounds)]
        python_path = os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests" / "golden")))
        environment = {**os.environ, "PYTHONPATH": python_path}
        if name != "device":
            environment["CUDA_VISIBLE_DEVICES"] = ""
        subprocess.run(command, check=True, cwd=directory, env=environment)
        found: list[dict[str, Any]] = json.loads(path.read_text())
    return found


def main() -> None:
    """Run the benches named on the command line."""
    parser = argparse.ArgumentParser(description=inspect.cleandoc(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--rounds", type=int, help="instead of each bench's own number")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    unknown = {*arguments.names} - {*NAMES}
    if unknown:
        parser.error(f"no bench is called {', '.join(sorted(unknown))}; there are {NAMES}")
    if arguments.into:
        benches = run_here(arguments.names[0], arguments.rounds)
        for bench in benches:
            show(bench)
        arguments.into.write_text(json.dumps([asdict(bench) for bench in benches]))
        return
    path = arguments.results / "results.json"
    found: dict[str, Any] = json.loads(path.read_text())["benches"] if path.exists() else {}
    failed: list[str] = []
    arguments.results.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or NAMES:
        print(f"{name} ...", flush=True)
        begin = time.monotonic()
        try:
            measured = run_apart(name, arguments.rounds)
        except subprocess.CalledProcessError:  # the process has printed the error
            failed.append(name)
            continue
        print(f"{name} took {time.monotonic() - begin:.0f} s", flush=True)
        # a bench that lacks its tool here finds nothing: what it found elsewhere stays
        found[name] = measured or found.get(name, [])
        kept = {known: found[known] for known in NAMES if known in found}
        path.write_text(json.dumps({"machine": report.machine(), "benches": kept}, indent=1) + "\n")
    ratios = [
        Ratio(**ratio)
        for name in NAMES
        for bench in found.get(name, [])
        for ratio in bench["ratios"]
    ]
    report.write(ratios, arguments.results)
    kept = {known: found[known] for known in NAMES if known in found}
    (arguments.results / "tables.md").write_text(report.tables(kept), encoding="utf-8")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}; the figures of the others are written")


if __name__ == "__main__":
    main()
