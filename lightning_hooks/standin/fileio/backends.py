"""mmcv's storages with a client library of their own: Petrel, Ceph, Memcached and LMDB.

Each needs its library, which the constructor imports.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Iterator
from typing import Any

from lightning_hooks.standin.fileio.base_backend import (
    BaseStorageBackend,
    FileBackend,
    check_suffix,
)

__all__ = ["CephBackend", "LmdbBackend", "MemcachedBackend", "PetrelBackend"]


def _library(name: str, backend: BaseStorageBackend) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{backend.name} needs the library {name.partition('.')[0]}, which is not installed; "
            'for s3 without it install fsspec and s3fs, and give paths ("s3://bucket/file") alone'
        ) from error


class _MappedBackend(BaseStorageBackend):
    """Paths whose local start is replaced by a remote one."""

    def __init__(self, path_mapping: dict[str, str] | None) -> None:
        if not (path_mapping is None or isinstance(path_mapping, dict)):
            raise AssertionError(f"path_mapping must be a dict or None, got {path_mapping!r}")
        self.path_mapping = path_mapping

    def _map_path(self, filepath: Any) -> str:
        path = str(filepath)
        for local, remote in (self.path_mapping or {}).items():
            path = path.replace(local, remote, 1)
        return path


class CephBackend(_MappedBackend):
    """Ceph, through ``ceph.S3Client``; it reads only.

    Args:
        path_mapping: Starts of local paths, with the remote ones that replace them.
    """

    def __init__(self, path_mapping: dict[str, str] | None = None) -> None:
        self._client = _library("ceph", self).S3Client()
        super().__init__(path_mapping)

    def get(self, filepath: Any) -> memoryview:
        """Return a file's bytes."""
        return memoryview(self._client.Get(self._map_path(filepath)))


class PetrelBackend(_MappedBackend, FileBackend):
    """Petrel, through ``petrel_client``.

    Args:
        path_mapping: Starts of local paths, with the remote ones that replace them.
        enable_mc: Whether the client uses memcached.
        conf_path: The client's file of configuration.
    """

    def __init__(
        self,
        path_mapping: dict[str, str] | None = None,
        enable_mc: bool = True,
        conf_path: str | None = None,
    ) -> None:
        client = _library("petrel_client.client", self)
        self._client = client.Client(conf_path=conf_path, enable_mc=enable_mc)
        super().__init__(path_mapping)

    def _format_path(self, filepath: str) -> str:
        return re.sub(r"\\+", "/", filepath)

    def _path(self, filepath: Any) -> str:
        return self._format_path(self._map_path(filepath))

    def _method(self, name: str) -> Any:
        found = getattr(self._client, name, None)
        if not callable(found):
            raise NotImplementedError(
                f"this release of petrel_client has no {name}(): take a newer one"
            )
        return found

    def get(self, filepath: Any) -> memoryview:
        """Return a file's bytes."""
        return memoryview(self._client.Get(self._path(filepath)))

    def put(self, obj: bytes, filepath: Any) -> None:
        """Write a file."""
        self._client.put(self._path(filepath), obj)

    def remove(self, filepath: Any) -> None:
        """Delete a file."""
        self._method("delete")(self._path(filepath))

    def exists(self, filepath: Any) -> bool:
        """Return whether a path exists."""
        return self.isfile(filepath) or self.isdir(filepath)

    def isdir(self, filepath: Any) -> bool:
        """Return whether a path is a directory."""
        return bool(self._method("isdir")(self._path(filepath)))

    def isfile(self, filepath: Any) -> bool:
        """Return whether a path is a file."""
        return bool(self._method("contains")(self._path(filepath)))

    def join_path(self, filepath: Any, *filepaths: Any) -> str:
        """Join the parts of a path."""
        return "/".join([self._path(filepath).removesuffix("/"), *map(self._path, filepaths)])

    @contextlib.contextmanager
    def get_local_path(self, filepath: Any) -> Iterator[str]:
        """Yield the path of a local copy of a file, deleted after the block."""
        if not self.isfile(filepath):
            raise AssertionError(f"there is no file {filepath}")
        with super().get_local_path(filepath) as path:
            yield path

    def list_dir_or_file(
        self,
        dir_path: Any,
        list_dir: bool = True,
        list_file: bool = True,
        suffix: Any = None,
        recursive: bool = False,
    ) -> Iterator[str]:
        """Return the entries of a directory as relative paths."""
        entries = self._method("list")
        check_suffix(suffix, list_dir)

        def scan(folder: str, start: str = "") -> Iterator[str]:
            for name in entries(folder):
                if not name.endswith("/"):
                    if list_file and name.endswith(suffix or ""):
                        yield start + name
                    continue
                if list_dir:
                    yield start + name.removesuffix("/")
                if recursive:
                    yield from scan(folder + name, start + name)

        return scan(f"{self._path(dir_path).removesuffix('/')}/")


class MemcachedBackend(BaseStorageBackend):
    """Memcached, through ``mc``; it reads only.

    Args:
        server_list_cfg: The file with the list of servers.
        client_cfg: The client's file of configuration.
        sys_path: A folder added to ``sys.path``, in which ``mc`` is.
    """

    def __init__(self, server_list_cfg: str, client_cfg: str, sys_path: str | None = None) -> None:
        if sys_path is not None:
            sys.path.append(sys_path)
        self.server_list_cfg = server_list_cfg
        self.client_cfg = client_cfg
        self._mc = _library("mc", self)
        self._client = self._mc.MemcachedClient.GetInstance(server_list_cfg, client_cfg)
        self._mc_buffer = self._mc.pyvector()

    def get(self, filepath: Any) -> Any:
        """Return a file's bytes."""
        self._client.Get(str(filepath), self._mc_buffer)
        return self._mc.ConvertBuffer(self._mc_buffer)


class LmdbBackend(BaseStorageBackend):
    """A database of LMDB, opened at the first access; it reads only.

    Args:
        db_path: Its path.
        readonly: Whether it is opened for reading only.
        lock: Whether readers lock it.
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
        _library("lmdb", self)
        self.db_path = str(db_path)
        self.readonly, self.lock, self.readahead = readonly, lock, readahead
        self.kwargs = kwargs
        self._client: Any = None

    def _get_client(self) -> Any:
        flags = {"readonly": self.readonly, "lock": self.lock, "readahead": self.readahead}
        return _library("lmdb", self).open(self.db_path, **flags, **self.kwargs)

    def get(self, filepath: Any) -> Any:
        """Return the value of a key.

        Args:
            filepath: The key.
        """
        if self._client is None:
            self._client = self._get_client()
        with self._client.begin(write=False) as transaction:
            return transaction.get(str(filepath).encode())
