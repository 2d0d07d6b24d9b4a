"""mmcv's base of storages."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["BaseStorageBackend", "FileBackend", "check_suffix"]


class BaseStorageBackend:
    """Base of storages: a subclass defines ``get`` and ``get_text``."""

    _allow_symlink = False

    @property
    def name(self) -> str:
        """The class's name."""
        return type(self).__name__

    @property
    def allow_symlink(self) -> bool:
        """Whether the storage has symbolic links."""
        return self._allow_symlink

    def get(self, filepath: Any) -> Any:
        """Return a file's bytes."""
        raise NotImplementedError(f"{self.name} must define get(filepath)")

    def get_text(self, filepath: Any, encoding: Any = None) -> Any:
        """Return a file's text."""
        raise NotImplementedError(f"{self.name} must define get_text(filepath)")


class FileBackend(BaseStorageBackend):
    """A storage that also writes; a subclass defines ``get`` and ``put``."""

    def put(self, obj: bytes, filepath: Any) -> None:
        """Write a file."""
        raise NotImplementedError(f"{type(self).__name__} must define put(obj, filepath)")

    def get_text(self, filepath: Any, encoding: str = "utf-8") -> str:
        """Return a file's text."""
        return str(self.get(filepath), encoding)

    def put_text(self, obj: str, filepath: Any, encoding: str = "utf-8") -> None:
        """Write a text."""
        self.put(obj.encode(encoding), filepath)

    @contextlib.contextmanager
    def get_local_path(self, filepath: Any) -> Iterator[str]:
        """Yield the path of a local copy of a file, deleted after the block."""
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, os.path.basename(str(filepath)))
            Path(path).write_bytes(self.get(filepath))
            yield path


def check_suffix(suffix: Any, list_dir: bool) -> None:
    """Raise TypeError for a suffix that does not go with the listing of a directory."""
    if suffix is not None and list_dir:
        raise TypeError(
            "`list_dir` should be False when `suffix` is not None: "
            "`suffix` should be None when `list_dir` is True"
        )
    if not (suffix is None or isinstance(suffix, (str, tuple))):
        raise TypeError(f"`suffix` must be a string or tuple of strings, got {suffix!r}")
