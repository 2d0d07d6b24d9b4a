"""Whose a spool is: the run that writes it holds it, and so does who sends it afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import IO, Any

try:
    import fcntl
except ImportError:  # on Windows nobody holds anything
    fcntl = None  # type: ignore[assignment]

__all__ = ["held", "hold", "let_go"]


def hold(file: IO[Any]) -> bool:
    """Say that a spool is in use, until the file is closed; False if somebody else has said so."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a network file system without locks
        return True
    return True


def let_go(file: IO[Any]) -> None:
    """Say that a spool is in use no more; worker processes may have the file open for longer."""
    if fcntl is not None:
        with contextlib.suppress(OSError, ValueError):  # ValueError: it is closed
            fcntl.flock(file, fcntl.LOCK_UN)


@contextlib.contextmanager
def held(path: str) -> Iterator[None]:
    """Hold a spool for a while.

    Raises:
        BlockingIOError: if somebody else does.
    """
    with open(path, "rb") as file:
        if not hold(file):
            raise BlockingIOError(
                f"{path} is in use: its run goes on, or somebody else sends it; "
                "a copy of what is in it can go to another backend meanwhile"
            )
        yield
