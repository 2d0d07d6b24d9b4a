"""Train with all trackers while the real clients fail in one way after another.

python -m support.torture.bad_backends_job DIRECTORY writes the logged, reported and delivered
values to ``found.json``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import clearml

from lightning_hooks import (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    Hook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
from lightning_hooks.loggers.delivery import spool
from lightning_hooks.loggers.trackers.base import TrackerHook
from support.logs.trackers import Sent, fit

TRACKERS: tuple[type[TrackerHook], ...] = (
    ClearMLLoggerHook,
    DvcliveLoggerHook,
    MlflowLoggerHook,
    NeptuneLoggerHook,
    TensorboardLoggerHook,
    VisdomLoggerHook,
    WandbLoggerHook,
)
PATIENCE = {"start": 0.7, "write": 2.0, "hang": 2.0}
FOREVER = 600.0  # more than the whole job takes


def dead(*args: Any, **kwargs: Any) -> Any:
    """Raise the error of a lost connection."""
    raise ConnectionError("dead")


def spoil(writer: type[Any], trouble: str) -> type[Any]:
    """Return a writer class that fails at the start, after the first record, or at the end."""

    def write(self: Any, records: Any) -> None:
        if records[0].seq > 0:
            time.sleep(FOREVER) if trouble == "hang" else dead()
        writer.write(self, records)

    def close(self: Any, failed: bool = False) -> None:
        writer.close(self, failed)
        dead()

    methods: dict[str, dict[str, Any]] = {
        "start": {"connect": classmethod(dead)},
        "write": {"write": write, "batch": 1},
        "hang": {"write": write, "batch": 1},
        "close": {"close": close},
        "full": {},
    }
    return type(writer.__name__, (writer,), methods[trouble])


def on_a_full_disk(path: str) -> tuple[str, Any]:
    """Open a spool file on a full disk, where every write fails."""
    return real_open(path)[0], open("/dev/full", "wb", buffering=0)


class FirstTaken(Hook):
    """Waits in the first iteration until each backend has taken the first record."""

    priority = "LOWEST"

    def __init__(self, hooks: list[TrackerHook]) -> None:
        self.hooks = hooks

    def after_train_iter(self, runner: Any) -> None:
        """Wait: a client needs many seconds to start on a busy machine."""
        end = time.monotonic() + 120
        while time.monotonic() < end and not all(hook.status()["sent"] for hook in self.hooks):
            time.sleep(0.05)


def train(work: Path, trouble: str) -> dict[str, Any]:
    """Train an epoch of four steps; return the results."""
    patience = PATIENCE.get(trouble, 60.0)
    hooks = [kind(interval=1, by_epoch=False, timeout=patience) for kind in TRACKERS]
    for hook in hooks:
        hook._writer_class = spoil(hook._writer_class, trouble)
    spool._open_new = on_a_full_disk if trouble == "full" else real_open
    sent = Sent(interval=1, by_epoch=False)
    told.lines.clear()
    waits = [FirstTaken(hooks)] if trouble in ("write", "hang") else []
    module = fit(work, sent, *hooks, *waits, epochs=1)
    return {
        "steps": len(module.losses),
        "rows": sent.rows,
        "told": list(told.lines),
        "sent": {hook._package: hook.status()["sent"] for hook in hooks},
    }


class Told(logging.Handler):
    """Keeps messages."""

    lines: list[str] = []  # noqa: RUF012 - one job, one list

    def emit(self, record: logging.LogRecord) -> None:
        """Store a log record."""
        self.lines.append(f"{record.levelname} {record.getMessage()}")


if __name__ == "__main__":
    real_open = spool._open_new
    told = Told()
    logging.getLogger("lightning_hooks").addHandler(told)
    root = Path(sys.argv[1])
    # otherwise ClearML reads every Python file of the repository and of nested environments
    clearml.Task.force_requirements_env_freeze(requirements_file=os.devnull)
    # a hanging client stays behind, so last
    found = {name: train(root / name, name) for name in ("start", "close", "full", "write", "hang")}
    (root / "found.json").write_text(json.dumps(found))
