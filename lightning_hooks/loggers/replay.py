"""Send undelivered records: ``lightning-hooks replay FILE --to TRACKER``."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Any

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import StoredSpool, exclusive, read_head
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.neptune import is_neptune_run, read_neptune
from lightning_hooks.loggers.trackers.packages import tolerant
from lightning_hooks.loggers.trackers.table import TRACKERS, arguments_of, writer_class
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.default_logger import default_logger
from lightning_hooks.utils.packages import require

__all__ = ["open_writer", "replay"]


def open_writer(name: str, /, **options: Any) -> Writer:
    """Open a run in a tracker.

    Args:
        name: A key of ``TRACKERS``; the option ``name`` is the run's.
        options: Server, folder and id of the run; see ``OPTIONS``.

    Raises:
        ValueError: for an unknown tracker, or an option of another tracker.
        ImportError: if the tracker's package is not installed.
    """
    if name not in TRACKERS:
        raise ValueError(f"to must be one of {', '.join(TRACKERS)}, got {shown(name)}")
    known = TRACKERS[name].options
    for option in options:
        if option not in known:
            raise ValueError(f"{name} has no option {option!r}; it has {', '.join(known)}")
    require(name, "replay")
    with tolerant():
        cls = writer_class(name)
        return cls.reopen(**arguments_of(cls, options))


def replay(
    path: str,
    to: Writer | str,
    *,
    everything: bool = False,
    new_run: bool = False,
    on_sent: Callable[[int, int], None] | None = None,
    **options: Any,
) -> int:
    """Send the records of a file to a run; the file names no server and no folder.

    A spool of the same tracker is delivered: undelivered records are sent to the run that has taken
    the others, the run is ended as the process has ended, also as killed, and the spool is removed
    unless some lines are damaged. Another tracker gets a copy of all records, and the file stays;
    the copy of a run in progress has the records written so far.

    Args:
        path: A spool, or a folder ``run__...`` below ``.neptune/offline``.
        to: The name of a tracker; or a writer, which gets a copy of all records and is left open.
        everything: Whether the same tracker gets a copy of all records too.
        new_run: Whether undelivered records begin another run.
        on_sent: Called with the numbers of sent and of all records after each batch.
        options: Server, folder and id of the run, such as ``tracking_uri=`` and ``experiment=`` of
            MLflow, or ``dir=`` of TensorBoard; ``lightning_hooks.loggers.trackers.table`` lists all
            options. The client reads everything else from the environment.

    Returns:
        The number of records sent.

    Raises:
        FileNotFoundError: for a missing file.
        ValueError: for a file that is no spool, an unknown tracker, or another tracker's option.
        BlockingIOError: for a spool in use by the run or by another replay.
        Exception: any error of the client.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no {path}")
    records: list[Record] | StoredSpool
    if is_neptune_run(path):
        records, failed, left = read_neptune(path)
        if left:
            default_logger(0).warning("%s: left out, as no numbers: %s", path, left)
    elif os.path.isdir(path):
        raise ValueError(f"{path} is neither a spool nor an offline run of Neptune's")
    elif everything or read_head(path)[0].get("writer") != to:
        records = _read(path)
        failed = records.failed
    else:
        with exclusive(path):
            return _deliver(path, str(to), new_run, on_sent, options)
    _send_to(to, records, failed, on_sent, options)
    return len(records)


def _read(path: str, *, rest: bool = False) -> StoredSpool:
    """Open a spool; a warning counts the damaged lines."""
    records = StoredSpool(path, rest=rest)
    if records.damaged:
        default_logger(0).warning("%s: %d damaged lines are left out", path, records.damaged)
    return records


def _deliver(
    path: str,
    to: str,
    new_run: bool,
    on_sent: Callable[[int, int], None] | None,
    options: dict[str, Any],
) -> int:
    """Send the undelivered records of a spool, end the run and remove the spool."""
    records = _read(path, rest=True)
    head, failed, killed = records.head, records.failed, records.killed
    finds_runs = to in TRACKERS and "run_id" in TRACKERS[to].options
    if finds_runs and not new_run and head["run"] is not None:
        options.setdefault("run_id", head["run"])
    has_begun = head["run"] != head.get("key")  # the backend has given an id
    if records or (finds_runs and not new_run and has_begun and writer_class(to).shows_state):
        run_id = _send_to(to, records, failed, on_sent, options, killed)
        state = "killed" if killed else "failed" if failed else "finished"
        text = f"{path}: {len(records)} records sent to {to}"
        text += "" if run_id is None else f", run {run_id}, which has ended as {state}"
        default_logger(0).info(text)
    for upload in (each for record in records for each in record.uploads):
        upload.discard()
    records.discard()
    return len(records)


def _send_to(
    to: Writer | str,
    records: list[Record] | StoredSpool,
    failed: bool,
    on_sent: Callable[[int, int], None] | None,
    options: dict[str, Any],
    killed: bool = False,
) -> str | None:
    """Send records and end the run; return the run's id."""
    if isinstance(to, Writer):
        _send(to, records, on_sent)
        return None
    writer = open_writer(to, **options)
    writer.killed = killed
    with tolerant():
        try:
            _send(writer, records, on_sent)
        except BaseException:
            writer.close(failed=True)
            raise
        writer.close(failed)
    return writer.run_id()


def _send(
    writer: Writer,
    records: list[Record] | StoredSpool,
    on_sent: Callable[[int, int], None] | None,
) -> None:
    refused: set[str] = set()

    def accepted(record: Record) -> Record:
        record = writer.new_points(_with_files(record))
        without: dict[str, Any] = {kind: {} for kind in writer.left_out(record)}
        if new := sorted(without.keys() - refused):
            refused.update(new)
            text = f"{writer.name} cannot hold {' and '.join(new)}: they are left out"
            default_logger(0).warning(text)
        return dataclasses.replace(record, **without) if without else record

    left, done = map(accepted, records), 0
    while batch := [*itertools.islice(left, writer.batch)]:
        writer.write(batch)
        done += len(batch)
        if on_sent is not None:
            on_sent(done, len(records))
    writer.flush()


def _with_files(record: Record) -> Record:
    """Return a record without checkpoints whose files beside the spool are gone, with a warning."""
    left = record.without_lost_files()
    if gone := record.checkpoints.keys() - left.checkpoints.keys():
        default_logger(0).warning(
            "%s: checkpoints that were sent or deleted before are left out", ", ".join(sorted(gone))
        )
    return left
