"""Send records that were logged but not delivered: ``lightning-hooks replay FILE``."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lightning_hooks.loggers.delivery.destination import (
    check_loggers,
    check_paths,
    check_server,
    taken_settings,
    work_dir_of,
)
from lightning_hooks.loggers.delivery.record import Record
from lightning_hooks.loggers.delivery.spool_file import (
    discard,
    exclusive,
    read_spool,
    write_ack,
)
from lightning_hooks.loggers.delivery.unsent import is_shared
from lightning_hooks.loggers.delivery.writer import Writer
from lightning_hooks.loggers.trackers.inputs import with_credentials
from lightning_hooks.loggers.trackers.neptune import is_neptune_run, read_neptune
from lightning_hooks.loggers.trackers.packages import require, tolerant
from lightning_hooks.utils.default_logger import default_logger

__all__ = ["WRITERS", "open_writer", "read", "replay", "writer_class"]

WRITERS: Mapping[str, str] = {
    "clearml": "ClearMLWriter",
    "dvclive": "DvcliveWriter",
    "lightning": "LightningWriter",
    "mlflow": "MlflowWriter",
    "neptune": "NeptuneWriter",
    "tensorboard": "TensorboardWriter",
    "visdom": "VisdomWriter",
    "wandb": "WandbWriter",
}
"""The writers by the names of their backends."""


def writer_class(name: str) -> type[Writer]:
    """Return the writer for a backend, a key of ``WRITERS``."""
    home = "lightning_logger" if name == "lightning" else f"trackers.{name}"
    module = importlib.import_module(f"lightning_hooks.loggers.{home}")
    return getattr(module, WRITERS[name])  # type: ignore[no-any-return]


def open_writer(name: str, **arguments: Any) -> Writer:
    """Open a run in a backend.

    Args:
        name: A key of ``WRITERS``.
        arguments: Those of the writer's ``connect``.

    Raises:
        ValueError: for an unknown backend.
        ImportError: if it is not installed.
    """
    if name not in WRITERS:
        raise ValueError(f"to must be one of {', '.join(WRITERS)}, got {name!r}")
    require(name, "replay")
    with tolerant():
        return writer_class(name).connect(**arguments)


def read(path: str, *, rest: bool = False) -> tuple[dict[str, Any], list[Record], bool]:
    """Read a spool or an offline run of Neptune's.

    Args:
        path: A spool, or a folder ``run__...`` below ``.neptune/offline``.
        rest: Whether to return only records that the spool's backend has not taken.

    Returns:
        The description of the run, the records, and whether the run has failed.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is something else.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no {path}")
    if is_neptune_run(path):
        records, failed = read_neptune(path)
        return {}, records, failed
    if os.path.isdir(path):
        raise ValueError(f"{path} is neither a spool nor an offline run of Neptune's")
    return read_spool(path, rest=rest)


def replay(
    path: str,
    to: Writer | str | None = None,
    *,
    on_sent: Callable[[int, int], None] | None = None,
    within: str | None = None,
    **arguments: Any,
) -> int:
    """Send the records of a file to a backend.

    Without ``to`` the rest of a spool goes to the run that it was meant for; the spool is removed
    when all of it is there, and kept if it has damaged lines. With ``to`` all records go to a run
    there, and nothing is removed; of a run that still goes on, these are the records up to now.

    Args:
        path: A spool, or a folder ``run__...`` below ``.neptune/offline``.
        to: A writer, which is left open, or the name of a backend.
        on_sent: Called with the numbers of sent and of all records after each batch.
        within: The folder below which a spool may have files written; by default the work dir that
            it lies in.
        arguments: Those of the backend's ``connect``, such as ``uri=`` of MLflow, ``log_dir=`` of
            TensorBoard or ``init=dict(project=...)`` of W&B.

    Returns:
        The number of records sent.

    Raises:
        ValueError: if the file is no spool, the backend is unknown, files would be written outside
            of ``within``, secrets of the environment would go to a server that it does not name, or
            a logger is in no installed package.
        BlockingIOError: without ``to``, if the run of the spool goes on, or another process sends
            it.
        Exception: whatever the client raises.
    """
    with exclusive(path) if to is None and os.path.isfile(path) else contextlib.nullcontext():
        head, records, failed = read(path, rest=to is None)
        if isinstance(to, Writer):
            _send(to, records, on_sent)
            return len(records)
        if to is None:
            if head.get("writer") not in WRITERS:
                raise ValueError(f"to must be the name of a backend for {path}, which names none")
            arguments = _stored_arguments(path, head, arguments, within)
        writer = open_writer(head["writer"] if to is None else to, **arguments)
        try:
            with tolerant():
                stores_files = any(r.images or r.tables or r.checkpoints for r in records)
                if to is None and stores_files and not is_shared(path):
                    check_paths({"dir": writer.places()}, path, within)
                _send(writer, records, on_sent)
        except BaseException:
            writer.close(failed=True)
            raise
        with tolerant():
            writer.close(failed)
        if to is None:
            for upload in (each for record in records for each in record.uploads):
                upload.discard()
            if head["damaged"]:
                write_ack(path, head["end"], head["resume"])
            else:
                discard(path)
        return len(records)


def _stored_arguments(
    path: str, head: Mapping[str, Any], given: Mapping[str, Any], within: str | None
) -> dict[str, Any]:
    """Return the arguments that open a spool's own run, with those that the user has given."""
    stored = taken_settings({**head.get("arguments", {}), **head["resume"]})
    check_server({name: value for name, value in stored.items() if name not in given}, path)
    check_loggers(stored, path)
    if not is_shared(path):
        stored = writer_class(head["writer"]).placed(stored, work_dir_of(path))
        check_paths({k: v for k, v in stored.items() if k not in given}, path, within)
    if stored.get("after", 0) is None:  # points that are there by now are left out
        stored["after"] = 0
    return {**with_credentials(stored), **given}


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
    """Return a record without checkpoints that no longer wait beside the spool."""
    gone = [upload.path for upload in record.uploads if not os.path.lexists(upload.path)]
    if not gone:
        return record
    default_logger(0).warning(
        "%s: such checkpoints have been sent, or were deleted, and are left out", ", ".join(gone)
    )
    found = record.checkpoints.items()
    left = {name: one for name, one in found if one is None or one.path not in gone}
    return dataclasses.replace(record, checkpoints=left)
