"""Neptune's offline files, read without Neptune: what was logged can go elsewhere."""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Iterator
from typing import Any

from lightning_hooks.writers.records import Record

__all__ = ["is_neptune_run", "read_neptune"]

_VALUES = ("AssignFloat", "AssignInt", "AssignBool", "AssignString")
_OWN = ("sys/", "source_code/")


def is_neptune_run(path: str) -> bool:
    """Whether a folder is an offline run of Neptune's: ``.neptune/offline/run__...``."""
    return os.path.isdir(path) and bool(_data_files(path))


def read_neptune(path: str) -> tuple[list[Record], bool]:
    """Return the records of an offline run, by step, and whether the run has failed.

    Series of numbers become scalars, single values parameters. A point without a step has that
    of its place in its series. What is below ``sys`` and ``source_code`` is Neptune's own.

    Args:
        path: The folder of the run, or of its data files.
    """
    steps: dict[int, dict[str, float]] = {}
    times: dict[int, float] = {}
    params: dict[str, Any] = {}
    lengths: dict[str, int] = {}
    failed = False
    for operation in _operations(path):
        name = "/".join(operation.get("path", ()))
        if operation["type"] == "LogFloats":
            for point in operation["values"]:
                place = lengths[name] = lengths.get(name, 0) + 1
                step = place if point.get("step") is None else int(point["step"])
                steps.setdefault(step, {})[name] = float(point["value"])
                times.setdefault(step, float(point["ts"]))
        elif operation["type"] in _VALUES and not name.startswith(_OWN):
            params[name.removeprefix("parameters/")] = operation["value"]
        elif name == "sys/failed":
            failed = bool(operation["value"])
    start = min(times.values(), default=0.0)
    records = [Record(0, start, min(steps, default=0), params=params)] if params else []
    for step in sorted(steps):
        records.append(Record(len(records), times[step], step, steps[step]))
    return records, failed


def _operations(path: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    for file in _data_files(path):
        with open(file, encoding="utf-8") as opened:
            text = opened.read()
        at = 0
        while at < len(text):
            try:
                entry, at = decoder.raw_decode(text, at)
            except json.JSONDecodeError:  # torn by a kill
                break
            yield entry["obj"]
            while at < len(text) and text[at].isspace():
                at += 1


def _data_files(path: str) -> list[str]:
    found = glob.glob(os.path.join(glob.escape(path), "data-*.log"))
    return sorted(found, key=lambda name: int(name.rpartition("-")[2].removesuffix(".log")))
