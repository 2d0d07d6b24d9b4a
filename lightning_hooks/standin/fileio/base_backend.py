"""mmcv's base of storages."""

from __future__ import annotations

from typing import Any

__all__ = ["BaseStorageBackend", "check_suffix"]


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


def check_suffix(suffix: Any, list_dir: bool) -> None:
    """Raise TypeError for a suffix that does not go with the listing of a directory."""
    if suffix is not None and list_dir:
        raise TypeError(
            "`list_dir` should be False when `suffix` is not None: "
            "`suffix` should be None when `list_dir` is True"
        )
    if not (suffix is None or isinstance(suffix, (str, tuple))):
        raise TypeError(f"`suffix` must be a string or tuple of strings, got {suffix!r}")
