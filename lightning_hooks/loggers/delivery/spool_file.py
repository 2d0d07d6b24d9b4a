"""Read and write the files of a spool; nothing that they hold is trusted."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from typing import IO, Any

from lightning_hooks.loggers.delivery.lines import seal, unseal
from lightning_hooks.loggers.delivery.record import Record, from_line
from lightning_hooks.storage.files import locked

__all__ = [
    "count_rest",
    "create",
    "discard",
    "exclusive",
    "is_run_id",
    "lines_of",
    "read_head",
    "read_spool",
    "write_ack",
]

_BLOCK = 1 << 20


def discard(path: str) -> None:
    """Remove a spool, and its folder if there is no other one."""
    for name in (path, f"{path}.ack"):
        with contextlib.suppress(OSError):
            os.unlink(name)
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def write_ack(path: str, offset: int, run_id: str | None) -> None:
    """Store the position up to which a spool needs no sending, and the backend's id of the run."""
    temporary = f"{path}.ack.tmp"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    try:
        with create(temporary) as file:
            file.write(seal(json.dumps({"offset": offset, "run": run_id})))
        os.replace(temporary, f"{path}.ack")
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def read_head(path: str) -> tuple[dict[str, Any], int]:
    """Return the description of a spool's run, with its id as ``run``, and where the rest begins.

    The rest is what the backend has not acknowledged. An ``.ack`` that cannot be right counts as
    none: records that are sent twice are better than records that are lost. Where the backend has
    given no id, ``run`` is the key, under which the run was begun.

    Raises:
        ValueError: if the file is no spool.
    """
    first, start = next(_read_lines(path), (b"", 0))
    head = (unseal(first) or {}).get("run")
    if not isinstance(head, dict):
        raise ValueError(f"{path} is not the spool of a run")
    state = _acknowledged(path)
    offset: Any = state.get("offset")
    found = (each for each in (state.get("run"), head.get("key")) if is_run_id(each))
    head = {**head, "run": next(found, None)}
    if type(offset) is int and start <= offset and _ends_line(path, offset):
        return head, offset
    return head, start


def is_run_id(value: Any) -> bool:
    """Whether a value from a file may be the id of a run: letters, digits, ``_`` and ``-``."""
    return isinstance(value, str) and re.fullmatch(r"[\w-]{1,128}", value) is not None


def count_rest(path: str) -> tuple[dict[str, Any], int]:
    """Return the description of a spool's run, and how many lines are to be sent; none is read.

    Raises:
        ValueError: if the file is no spool.
    """
    head, offset = read_head(path)
    lines = _read_lines(path, offset)
    return head, sum(not line.startswith(b'{"end"') for line, _ in lines)


def read_spool(path: str, *, rest: bool = False) -> tuple[dict[str, Any], list[Record], bool]:
    """Return the description of a spool's run, its records, and whether the run has failed.

    The description has the number of ``damaged`` lines, which are left out, and the ``end`` of the
    file. A last line that a kill has torn is left out too.

    Args:
        path: The file.
        rest: Whether to return only records that the backend has not acknowledged.

    Raises:
        ValueError: if the file is no spool.
    """
    head, offset = read_head(path)
    if not rest:
        offset = 0
    records, failed, head["damaged"], head["end"] = [], True, 0, offset
    for line, head["end"] in _read_lines(path, offset):
        fields = unseal(line) or {}
        if isinstance(fields.get("end"), dict):
            failed = fields["end"].get("failed") is not False
        elif "run" not in fields:
            try:
                records.append(from_line(line, os.path.dirname(path)))
            except ValueError:
                head["damaged"] += 1
    return head, records, failed


def _read_lines(path: str, start: int = 0) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines of a file from a position on, each with the position after it."""
    with open(path, "rb", buffering=0) as file:
        yield from lines_of(file, start, os.path.getsize(path))


def _ends_line(path: str, offset: int) -> bool:
    with open(path, "rb") as file:
        if offset > os.path.getsize(path):
            return False
        file.seek(offset - 1)
        return file.read(1) == b"\n"


def lines_of(file: IO[bytes], start: int, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield the complete lines between two positions of a file, each with that after it."""
    left = b""
    at = start  # of the next block
    while at < end:
        file.seek(at)
        block = file.read(min(_BLOCK, end - at))
        if not block:
            return
        at += len(block)
        *complete, left = (left + block).split(b"\n")
        after = at - len(left) - sum(len(line) + 1 for line in complete)
        for line in complete:
            after += len(line) + 1
            yield line, after


def _acknowledged(path: str) -> dict[str, Any]:
    try:
        with open(f"{path}.ack", "rb") as file:
            return unseal(file.read(_BLOCK)) or {}
    except OSError:
        return {}


def create(path: str) -> IO[bytes]:
    """Open a file that did not exist, nor a link of that name, which only the user can read."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    return open(os.open(path, flags | getattr(os, "O_BINARY", 0), 0o600), "wb", buffering=0)


@contextlib.contextmanager
def exclusive(path: str) -> Iterator[None]:
    """Lock a spool.

    Raises:
        BlockingIOError: if its run goes on, or another process sends it.
    """
    with locked(path, wait=False) as free:
        if free is False:
            raise BlockingIOError(
                f"{path} is in use: its run goes on, or another process sends it; "
                "a copy of its records can go elsewhere meanwhile (--everything)"
            )
        yield
