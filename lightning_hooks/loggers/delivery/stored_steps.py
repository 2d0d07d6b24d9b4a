"""Find the steps that a continued run has in its backend by now, for each name."""

from __future__ import annotations

import csv
import glob
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["in_clearml", "in_dvclive", "in_mlflow", "in_visdom", "in_wandb", "wandb_files"]

Steps = dict[str, set[int]]


def in_mlflow(client: Any, run_id: str) -> Steps:
    """Return the steps of a run in MLflow."""
    names = client.get_run(run_id).data.metrics
    return {name: {m.step for m in client.get_metric_history(run_id, name)} for name in names}


def wandb_files(arguments: Mapping[str, Any]) -> list[str]:
    """Return the files in which offline processes have kept a run; a server has none of them."""
    folder = arguments.get("dir") or os.environ.get("WANDB_DIR") or "."
    name = f"run-{arguments.get('id') or os.environ.get('WANDB_RUN_ID')}.wandb"
    return sorted(glob.glob(os.path.join(glob.escape(folder), "wandb", "offline-run-*", name)))


def in_wandb(files: Sequence[str]) -> Steps:
    """Return the steps in offline files of W&B's, as W&B's own command reads them."""
    steps: Steps = {}
    for file in files:
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", file]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        for line in done.stdout.splitlines():
            row = json.loads(line).get("history", {}).get("item", {})
            step = row.get("global_step", row.get("_step"))
            for name in row if step is not None else ():
                steps.setdefault(name, set()).add(int(step))
    return steps


def in_dvclive(folder: str) -> Steps:
    """Return the steps in a folder of DVCLive's."""
    steps: Steps = {}
    for path in glob.glob(os.path.join(glob.escape(folder), "**", "*.tsv"), recursive=True):
        name = os.path.relpath(path, folder).removesuffix(".tsv").replace(os.sep, "/")
        with open(path, encoding="utf-8") as file:
            steps[name] = {int(row["step"]) for row in csv.DictReader(file, delimiter="\t")}
    return steps


def in_clearml(folder: str) -> Steps:
    """Return the steps in the folder of an offline task of ClearML's."""
    steps: Steps = {}
    path = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for event in itertools.chain.from_iterable(map(json.loads, file)):
                steps.setdefault(event["metric"], set()).add(int(event["iter"]))
    return steps


def in_visdom(client: Any, path: str | None) -> Steps:
    """Return the steps that a Visdom client has drawn: on its server, or offline into a file."""
    lines = _lines_in(path) if getattr(client, "offline", False) else _lines_on(client)
    return {name: {*map(int, xs)} for name, xs in lines.items()}


def _lines_on(client: Any) -> dict[str, list[float]]:
    """Return the steps that the server has drawn for each name."""
    windows = json.loads(client.get_window_data() or "{}")
    lines = {name: each for name, each in windows.items() if each.get("type") == "plot"}
    return {name: each["content"]["data"][0]["x"] for name, each in lines.items()}


def _lines_in(path: str | None) -> dict[str, list[float]]:
    """Return the steps of each name in an offline client's file."""
    lines: dict[str, list[float]] = {}
    if path and os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for _, message in map(json.loads, file):
                for data in message.get("data", ()):
                    lines.setdefault(message["win"], []).extend(data.get("x", ()))
    return lines
