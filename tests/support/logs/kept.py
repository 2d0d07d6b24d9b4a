"""A tracker that stores records in memory and fails on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lightning_hooks.loggers.delivery.notices import Notices
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import count_records, spools_in
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.base import TrackerHook


class Kept(Writer):
    """Keeps records in memory; ``trouble`` is called before each."""

    name = "kept"

    def __init__(self, trouble: Callable[[Kept], None] = lambda writer: None) -> None:
        self.records: list[Record] = []
        self.closed: list[bool] = []
        self.thread = threading.current_thread()
        self.trouble = trouble
        self.calls = 0

    @classmethod
    def connect(cls, *, run: Any = None) -> Kept:
        return run()

    def write(self, records: Any) -> None:
        self.calls += 1
        self.trouble(self)
        self.records += records

    def close(self, failed: bool = False) -> None:
        self.closed.append(failed)


class KeepHook(TrackerHook):
    """A tracker that logs to the writer created by ``connect``."""

    _writer_class = Kept

    def __init__(self, connect: Callable[[], Kept] = Kept, **kwargs: Any) -> None:
        super().__init__(**{"interval": 1, "timeout": 3.0, **kwargs})
        self.connect = connect

    def _target(self, runner: Any) -> dict[str, Any]:
        return {}

    def _active_run(self) -> Any:
        def connect() -> Kept:
            self.kept = self.connect()
            return self.kept

        return connect


def notices() -> Notices:
    """Return the messages of a test's tracker."""
    return Notices(logging.getLogger("lightning_hooks"), "KeepHook", "kept")


def unsent_in(folder: Path, backend: str = "kept") -> dict[str, tuple[str | None, int]]:
    """Return the run and the number of unsent records of each spool of an ended run."""
    counts = {
        path: (head["run"], count_records(path, rest=True))
        for path, head, has_ended in spools_in(str(folder), backend)
        if has_ended
    }
    return {path: found for path, found in counts.items() if found[1]}


def broken(writer: Kept) -> None:
    if writer.calls > 2:
        raise ConnectionError("dead")
