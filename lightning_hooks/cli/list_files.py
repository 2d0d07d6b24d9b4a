"""``lightning-hooks files``: list the checkpoints of a run, and which is the last and the best."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from lightning_hooks.storage import find_checkpoints, manifest

__all__ = ["COLUMNS", "listed_files"]

COLUMNS = "file", "epochs", "iterations", "score", "size", "what"


def listed_files(directory: str) -> list[dict[str, Any]]:
    """Return the listed checkpoints of a directory, oldest first, each compared with its checksum.

    Raises:
        FileNotFoundError: if no checkpoint is listed; with what is there.
    """
    entries = manifest.by_name(manifest.read(directory))
    if not entries:
        raise find_checkpoints.nothing_found(directory, "checkpoint")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of damaged files, which have a word of their own
        kinds = {"last": find_checkpoints.newest_valid(directory)}
        for key in {entry.metric for entry in entries.values() if entry.score is not None}:
            kinds[f"best {key}"] = find_checkpoints.best_valid(directory, key)
    rows = []
    for entry in entries.values():
        flaw = entry.flaw(directory)
        what = [kind for kind, path in kinds.items() if path and Path(path).name == entry.name]
        what += [f"damaged: {flaw}"] if flaw else []
        what += [] if entry.resumable else ["weights alone"]
        numbers = entry.epoch, entry.iter, entry.score, entry.size
        rows.append(dict(zip(COLUMNS, (entry.name, *numbers, ", ".join(what)), strict=True)))
    return rows
