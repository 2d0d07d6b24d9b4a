"""Send undelivered records: ``lightning-hooks replay FILE --to TRACKER``."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool import (
    discard_delivered,
    exclusive,
    read_head,
    read_spool,
)
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.neptune import is_neptune_run, read_neptune
from lightning_hooks.loggers.trackers.packages import require, tolerant
from lightning_hooks.loggers.trackers.table import TRACKERS, arguments_of, writer_class
from lightning_hooks.utils.default_logger import default_logger

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
        raise ValueError(f"to must be one of {', '.join(TRACKERS)}, got {name!r}")
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
    on_sent: Callable[[int, int], None] | None = None,
    **options: Any,
) -> int:
    """Send the records of a file to a run named by the caller; the file names no destination.

    A spool of the same tracker is delivered: undelivered records are sent, and the spool is removed
    unless some lines are damaged. Another tracker gets a copy of all records, and the file stays;
    the copy of a run in progress has the records written so far.

    Args:
        path: A spool, or a folder ``run__...`` below ``.neptune/offline``.
        to: The name of a tracker; or a writer, which gets a copy of all records and is left open.
        everything: Whether the same tracker gets a copy of all records too.
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
    if is_neptune_run(path):
        records, failed, left = read_neptune(path)
        if left:
            default_logger(0).warning("%s: left out, as no numbers: %s", path, left)
    elif os.path.isdir(path):
        raise ValueError(f"{path} is neither a spool nor an offline run of Neptune's")
    elif everything or read_head(path)[0].get("writer") != to:
        _, records, failed = read_spool(path)
    else:
        with exclusive(path):
            head, records, failed = read_spool(path, rest=True)
            _send_to(to, records, failed, on_sent, options)
            for upload in (each for record in records for each in record.uploads):
                upload.discard()
            discard_delivered(path, head)
        return len(records)
    _send_to(to, records, failed, on_sent, options)
    return len(records)


def _send_to(
    to: Writer | str,
    records: Sequence[Record],
    failed: bool,
    on_sent: Callable[[int, int], None] | None,
    options: dict[str, Any],
) -> None:
    if isinstance(to, Writer):
        _send(to, records, on_sent)
        return
    writer = open_writer(to, **options)
    with tolerant():
        try:
            _send(writer, records, on_sent)
        except BaseException:
            writer.close(failed=True)
            raise
        writer.close(failed)


def _send(
    writer: Writer, records: Sequence[Record], on_sent: Callable[[int, int], None] | None
) -> None:
    records = [*map(_with_files, records)]
    refused = {kind for record in records for kind in writer.left_out(record)}
    if refused:
        text = f"{writer.name} cannot hold {' and '.join(sorted(refused))}: they are left out"
        default_logger(0).warning(text)
        without: dict[str, Any] = {kind: {} for kind in refused}
        records = [dataclasses.replace(record, **without) for record in records]
    for start in range(0, len(records), writer.batch):
        writer.write([*map(writer.new_points, records[start : start + writer.batch])])
        if on_sent is not None:
            on_sent(min(start + writer.batch, len(records)), len(records))
    writer.flush()


def _with_files(record: Record) -> Record:
    """Return a record without checkpoints whose files beside the spool are gone, with a warning."""
    left = record.without_lost_files()
    if gone := record.checkpoints.keys() - left.checkpoints.keys():
        default_logger(0).warning(
            "%s: checkpoints that were sent or deleted before are left out", ", ".join(sorted(gone))
        )
    return left
