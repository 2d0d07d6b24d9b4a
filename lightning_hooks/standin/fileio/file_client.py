"""mmcv's FileClient and storages: local disk, fsspec, S3 and LMDB."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.packages import require
from lightning_hooks.utils.suggestions import UnknownNameError, suggest
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "BaseStorageBackend",
    "FileClient",
    "FsspecBackend",
    "HardDiskBackend",
    "LmdbBackend",
    "PetrelBackend",
]


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


class FsspecBackend(BaseStorageBackend):
    """Any storage of fsspec, by the protocol in the path."""

    def _call(self, method: str, filepath: Any, **kwargs: Any) -> Any:
        """Call a method of a path's file system, with the path."""
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(self._map_path(filepath))
        return getattr(filesystem, method)(path, **kwargs)

    def _map_path(self, filepath: Any) -> str:
        return str(filepath)

    def get(self, filepath: Any) -> bytes:
        """Return a file's bytes."""
        return bytes(self._call("cat_file", filepath))

    def put(self, obj: bytes, filepath: Any) -> None:
        """Write a file atomically."""
        files.write_bytes(self._map_path(filepath), obj)

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

    def remove(self, filepath: Any) -> None:
        """Delete a file."""
        self._call("rm_file", filepath)

    def exists(self, filepath: Any) -> bool:
        """Return whether a path exists."""
        return bool(self._call("exists", filepath))

    def isdir(self, filepath: Any) -> bool:
        """Return whether a path is a directory."""
        return bool(self._call("isdir", filepath))

    def isfile(self, filepath: Any) -> bool:
        """Return whether a path is a file."""
        return bool(self._call("isfile", filepath))

    def join_path(self, filepath: Any, *filepaths: Any) -> str:
        """Join the parts of a path."""
        return files.join(str(filepath), *map(str, filepaths))

    def list_dir_or_file(
        self,
        dir_path: Any,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Any = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """Return the entries of a directory as relative paths, without hidden files."""
        if suffix is not None and list_dir:
            raise TypeError(
                "`list_dir` should be False when `suffix` is not None: "
                "`suffix` should be None when `list_dir` is True"
            )
        if not (suffix is None or isinstance(suffix, (str, tuple))):
            raise TypeError(f"`suffix` must be a string or tuple of strings, got {shown(suffix)}")
        return self._entries(dir_path, list_dir, list_file, suffix, recursive)

    def _entries(
        self, dir_path: Any, list_dir: bool, list_file: bool, suffix: Any, recursive: bool
    ) -> Iterator[str]:
        for entry in self._call("ls", dir_path, detail=True):
            name = entry["name"].rstrip("/").rpartition("/")[2]
            if entry["type"] == "directory":
                if list_dir:
                    yield name
                if recursive:
                    inner = self.join_path(dir_path, name)
                    for path in self._entries(inner, list_dir, list_file, suffix, True):
                        yield f"{name}/{path}"
            elif list_file and not name.startswith(".") and name.endswith(suffix or ""):
                yield name


class HardDiskBackend(FsspecBackend):
    """The local disk."""

    _allow_symlink = True

    @contextlib.contextmanager
    def get_local_path(self, filepath: Any) -> Iterator[str]:
        """Yield the path itself."""
        yield str(filepath)


class PetrelBackend(FsspecBackend):
    """S3 under mmcv's name ``petrel``, through fsspec and s3fs, without Petrel's client.

    Args:
        path_mapping: Remote prefixes by local prefix; the remote prefix replaces the local prefix.
        enable_mc: Ignored.
        conf_path: Ignored, with a warning: s3fs has its own configuration.
    """

    def __init__(
        self,
        path_mapping: dict[str, str] | None = None,
        enable_mc: bool = True,
        conf_path: str | None = None,
    ) -> None:
        if not (path_mapping is None or isinstance(path_mapping, dict)):
            raise AssertionError(f"path_mapping must be a dict or None, got {shown(path_mapping)}")
        if conf_path is not None:
            rank_zero_warn(f"PetrelBackend reads S3 through s3fs, which does not use {conf_path}")
        self.path_mapping = path_mapping

    def _map_path(self, filepath: Any) -> str:
        path = str(filepath)
        for local, remote in (self.path_mapping or {}).items():
            path = path.replace(local, remote, 1)
        return path


class LmdbBackend(BaseStorageBackend):
    """A database of LMDB, opened at the first access, for reading only.

    Args:
        db_path: The path of the database.
        readonly: Whether the database is opened for reading only.
        lock: Whether readers lock the database.
        readahead: Whether the system reads ahead.
        **kwargs: More arguments of ``lmdb.open``.
    """

    def __init__(
        self,
        db_path: Any,
        readonly: bool = True,
        lock: bool = False,
        readahead: bool = False,
        **kwargs: Any,
    ) -> None:
        require("lmdb", self.name)
        self.db_path = str(db_path)
        self.readonly, self.lock, self.readahead = readonly, lock, readahead
        self.kwargs = kwargs
        self._client: Any = None

    def _get_client(self) -> Any:
        flags = {"readonly": self.readonly, "lock": self.lock, "readahead": self.readahead}
        return importlib.import_module("lmdb").open(self.db_path, **flags, **self.kwargs)

    def get(self, filepath: Any) -> Any:
        """Return the value of a key.

        Args:
            filepath: The key.
        """
        if self._client is None:
            self._client = self._get_client()
        with self._client.begin(write=False) as transaction:
            return transaction.get(str(filepath).encode())


class FileClient:
    """Read and write files of a storage.

    Equal arguments give the same object.

    Args:
        backend: ``"disk"`` (the default), ``"fsspec"``, ``"petrel"``, ``"lmdb"``, or the name of a
            registered backend.
        prefix: The protocol of the paths (``"s3"``), instead of ``backend``.
        **kwargs: Arguments of a registered backend.

    Raises:
        UnknownNameError: for an unknown backend.
        ImportError: if lmdb is not installed, for that backend.

    Note:
        Departures from mmcv: remote paths, those of ``petrel`` too, go through fsspec, and files
        are written atomically; the clients of Ceph and Memcached are not offered.
    """

    _backends: ClassVar[dict[str, type[BaseStorageBackend]]] = {
        "disk": HardDiskBackend,
        "fsspec": FsspecBackend,
        "petrel": PetrelBackend,
        "http": FsspecBackend,
        "lmdb": LmdbBackend,
    }
    _prefix_to_backends: ClassVar[dict[str, type[BaseStorageBackend]]] = {"s3": PetrelBackend}
    _instances: ClassVar[dict[tuple[type, str], FileClient]] = {}

    client: Any
    _arguments: tuple[str | None, str | None, dict[str, Any]]

    def __new__(
        cls, backend: str | None = None, prefix: str | None = None, **kwargs: Any
    ) -> FileClient:
        """Return the client for the arguments."""
        kind = cls._kind(backend, prefix)
        key = kind, repr(kwargs)
        shared = cls._instances.get(key)
        if shared is None:
            shared = super().__new__(cls)
            shared.client = kind(**kwargs)
            shared._arguments = (backend, prefix, kwargs)
            cls._instances[key] = shared
        return shared

    def __reduce__(self) -> tuple[Any, ...]:
        backend, prefix, kwargs = self._arguments
        return functools.partial(type(self), backend, prefix, **kwargs), ()

    @classmethod
    def _kind(cls, backend: str | None, prefix: str | None) -> type[BaseStorageBackend]:
        if prefix is not None and backend is None:
            return cls._prefix_to_backends.get(prefix, FsspecBackend)
        name = backend or "disk"
        if name not in cls._backends:
            hint = suggest(name, cls._backends)
            raise UnknownNameError(
                f"backend {name!r} is not offered; {hint}. For a remote storage give paths "
                'of fsspec\'s ("s3://bucket/file"), or register a backend'
            )
        return cls._backends[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("client", "_arguments"):
            raise AttributeError(name)
        return getattr(self.client, name)

    @property
    def can_write(self) -> bool:
        """Whether ``put`` goes through fsspec, not through a client library or a user's class."""
        return getattr(type(self.client), "put", None) is FsspecBackend.put

    @staticmethod
    def parse_uri_prefix(uri: str | Path) -> str | None:
        """Return the protocol of a path, or None.

        >>> FileClient.parse_uri_prefix("s3://bucket/a"), FileClient.parse_uri_prefix("/a")
        ('s3', None)
        """
        if not isinstance(uri, (str, Path)):
            raise AssertionError(f"uri must be a str or a Path, got {shown(uri)}")
        prefix, separator, _ = str(uri).partition("://")
        return prefix.rpartition(":")[2] if separator else None

    @classmethod
    def infer_client(
        cls, file_client_args: dict[str, Any] | None = None, uri: str | Path | None = None
    ) -> FileClient:
        """Return the client for the arguments, or else for the protocol of a path."""
        if file_client_args is not None:
            return cls(**file_client_args)
        if uri is None:
            raise AssertionError("infer_client needs file_client_args or a uri")
        prefix = cls.parse_uri_prefix(uri)
        return cls(backend="disk") if prefix in (None, "file") else cls(prefix=prefix)

    @classmethod
    def register_backend(
        cls, name: str, backend: Any = None, force: bool = False, prefixes: Any = None
    ) -> Any:
        """Register a storage, as a decorator or by ``backend=``."""
        if backend is None:
            return functools.partial(cls.register_backend, name, force=force, prefixes=prefixes)
        if not isinstance(name, str):
            raise TypeError(f"the backend's name must be a string, got {shown(name)}")
        if not (inspect.isclass(backend) and issubclass(backend, BaseStorageBackend)):
            raise TypeError(
                f"backend must be a subclass of BaseStorageBackend, got {shown(backend)}"
            )
        if not force and name in cls._backends:
            raise KeyError(f"{name} is already registered as a storage backend; force=True")
        cls._backends[name] = backend
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes or ():
            cls._prefix_to_backends[prefix] = backend
        return backend
