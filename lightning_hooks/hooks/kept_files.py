"""The last k files that a hook has written."""

from __future__ import annotations

import fsspec

from lightning_hooks import files

__all__ = ["KeptFiles", "exists", "remove"]


class KeptFiles:
    """Remembers own files, oldest first, and deletes those beyond the last ``limit``.

    Args:
        limit: How many to keep; -1 for all.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.paths: list[str] = []

    @property
    def last(self) -> str:
        """The newest, or an empty string."""
        return self.paths[-1] if self.paths else ""

    def add(self, path: str) -> None:
        """Own a file that is about to be written."""
        self.paths = [*(p for p in self.paths if p != path), path]

    def delete_old(self, directory: str) -> None:
        """Delete the files beyond the limit and disown them; those elsewhere are left alone.

        Where a writer in the background has not finished the newest file, nothing is deleted.
        """
        if self._limit < 1 or not exists(self.last):
            return
        old, self.paths = self.paths[: -self._limit], self.paths[-self._limit :]
        for path in old:
            if path.startswith(files.join(directory, "")):
                remove(path)


def exists(path: str) -> bool:
    """Whether there is such a file, local or remote."""
    fs, target = fsspec.core.url_to_fs(path)
    return bool(fs.exists(target))


def remove(path: str) -> None:
    """Delete a file, or the directory of a sharded checkpoint, unless it is gone already."""
    fs, target = fsspec.core.url_to_fs(path)
    if fs.exists(target):
        fs.rm(target, recursive=True)
