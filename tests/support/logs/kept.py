"""A tracker that keeps its records in memory, and fails on request."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from lightning_hooks.loggers.delivery.record import Record
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
    """Logs to what ``connect`` makes."""

    writer_class = Kept

    def __init__(self, connect: Callable[[], Kept] = Kept, **kwargs: Any) -> None:
        super().__init__(**{"interval": 1, "timeout": 3.0, **kwargs})
        self.connect = connect

    def target(self, runner: Any) -> dict[str, Any]:
        return {}

    def active_run(self) -> Any:
        def connect() -> Kept:
            self.kept = self.connect()
            return self.kept

        return connect


def broken(writer: Kept) -> None:
    if writer.calls > 2:
        raise ConnectionError("dead")
