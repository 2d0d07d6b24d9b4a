"""Find records that earlier runs did not deliver."""

from __future__ import annotations

import contextlib
import glob
import os
import shlex
import stat
import tempfile
from collections.abc import Mapping
from typing import Any

from lightning_hooks.loggers.delivery.spool_file import count_rest, exclusive
from lightning_hooks.storage.files import is_local, join

__all__ = ["replay_command", "shared_folder", "spool_path", "unsent_records"]


def shared_folder() -> str:
    """Return the folder for spools of runs without a local work dir; the user's programs share it.

    Nobody else can write there. If another user has taken the name, it is a new folder.
    """
    user = os.getuid() if hasattr(os, "getuid") else ""
    folder = os.path.join(tempfile.gettempdir(), f"lightning_hooks-{user}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    is_ours = stat.S_ISDIR(found.st_mode) and (not user or found.st_uid == user)
    if is_ours and not (user and found.st_mode & 0o077):
        return folder
    return tempfile.mkdtemp(prefix="lightning_hooks-")


def spool_path(runner: Any, backend: str) -> str:
    """Return the path of a run's spool, on this machine."""
    work_dir = runner.work_dir.removeprefix("file://")
    if not is_local(work_dir):  # nothing can be appended there
        work_dir = shared_folder()
    return join(work_dir, "spool", f"{runner.timestamp}-{backend}.jsonl")


def replay_command(path: str, to: str, options: Mapping[str, Any]) -> str:
    """Return the shell command that sends the rest of a spool.

    >>> replay_command("my work/spool/now-wandb.jsonl", "wandb", {"dir": "my work", "mode": None})
    "lightning-hooks replay 'my work/spool/now-wandb.jsonl' --to wandb --dir 'my work'"
    """
    given = {name.replace("_", "-"): str(v) for name, v in options.items() if v is not None}
    words = [word for name, value in given.items() for word in (f"--{name}", value)]
    return shlex.join(["lightning-hooks", "replay", path, "--to", to, *words])


def unsent_records(folder: str, writer: str) -> dict[str, tuple[str | None, int]]:
    """Return each spool with unsent records of a run that has ended: the run's id, the number.

    Args:
        folder: The folder of the spools. The shared one counts as empty, for its spools may belong
            to other programs.
        writer: The backend; spools for others are left out.
    """
    found: dict[str, tuple[str | None, int]] = {}
    here = os.path.abspath(folder)
    if shared_folder() in (here, os.path.dirname(here)):
        return found
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "*.jsonl"))):
        with contextlib.suppress(OSError, ValueError), exclusive(path):  # its run has ended
            head, count = count_rest(path)
            if count and head.get("writer") == writer:
                found[path] = head["run"], count
    return found
