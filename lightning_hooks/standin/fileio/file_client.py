"""mmcv's FileClient and storages: local disk, fsspec, Petrel, Ceph, Memcached and LMDB."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import inspect
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from lightning_hooks.standin.fileio.path import is_filepath
from lightning_hooks.storage import files
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "BaseStorageBackend",
    "CephBackend",
    "FileClient",
    "FsspecBackend",
    "HardDiskBackend",
    "LmdbBackend",
    "MemcachedBackend",
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


class FileBackend(BaseStorageBackend):
    """A storage for reading and writing; a subclass defines ``get`` and ``put``."""

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
    """Raise TypeError for a wrong suffix, or a suffix together with ``list_dir``."""
    if suffix is not None and list_dir:
        raise TypeError(
            "`list_dir` should be False when `suffix` is not None: "
            "`suffix` should be None when `list_dir` is True"
        )
    if not (suffix is None or isinstance(suffix, (str, tuple))):
        raise TypeError(f"`suffix` must be a string or tuple of strings, got {suffix!r}")


class FsspecBackend(FileBackend):
    """Any storage of fsspec, by the protocol in the path."""

    def _call(self, method: str, filepath: Any, **kwargs: Any) -> Any:
        """Call a method of a path's file system, with the path."""
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(str(filepath))
        return getattr(filesystem, method)(path, **kwargs)

    def get(self, filepath: Any) -> bytes:
        """Return a file's bytes."""
        return bytes(self._call("cat_file", filepath))

    def put(self, obj: bytes, filepath: Any) -> None:
        """Write a file atomically."""
        files.write_bytes(str(filepath), obj)

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
        check_suffix(suffix, list_dir)
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


# -- storages with a client library -----------------------------------------------------------


def _library(name: str, backend: BaseStorageBackend) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{backend.name} needs the library {name.partition('.')[0]}, which is not installed; "
            'for s3 without it install fsspec and s3fs, and give paths ("s3://bucket/file") alone'
        ) from error


class _MappedBackend(BaseStorageBackend):
    """A storage with ``path_mapping``."""

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
    """Ceph, through ``ceph.S3Client``, for reading only.

    Args:
        path_mapping: Remote prefixes by local prefix; the remote prefix replaces the local prefix.
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
        path_mapping: Remote prefixes by local prefix; the remote prefix replaces the local prefix.
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
    """Memcached, through ``mc``, for reading only.

    Args:
        server_list_cfg: The file with the list of servers.
        client_cfg: The client's file of configuration.
        sys_path: The folder of ``mc``, added to ``sys.path``.
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


# -- the client -------------------------------------------------------------------------------


def _is_importable(name: str) -> bool:
    known = sys.modules.get(name)  # find_spec() refuses a module without a spec
    return known is not None or importlib.util.find_spec(name) is not None


class FileClient:
    """Read and write files of a storage.

    Equal arguments give the same object.

    Args:
        backend: ``"disk"`` (the default), ``"fsspec"``, ``"petrel"``, ``"ceph"``, ``"memcached"``,
            ``"lmdb"``, or the name of a registered backend.
        prefix: The protocol of the paths (``"s3"``), instead of ``backend``.
        **kwargs: Arguments of a registered backend.

    Raises:
        UnknownNameError: for an unknown backend.
        ImportError: if the backend's client library is not installed.

    Note:
        Departures from mmcv: remote paths go through fsspec, ``s3://`` only where
        ``petrel_client`` is not installed, and files are written atomically.
    """

    _backends: ClassVar[dict[str, type[BaseStorageBackend]]] = {
        "disk": HardDiskBackend,
        "fsspec": FsspecBackend,
        "http": FsspecBackend,
        "petrel": PetrelBackend,
        "ceph": CephBackend,
        "memcached": MemcachedBackend,
        "lmdb": LmdbBackend,
    }
    _prefix_to_backends: ClassVar[dict[str, type[BaseStorageBackend]]] = {}
    _instances: ClassVar[dict[tuple[type, str], FileClient]] = {}

    client: Any
    _arguments: tuple[str | None, str | None, dict[str, Any]]

    def __new__(
        cls, backend: str | None = None, prefix: str | None = None, **kwargs: Any
    ) -> FileClient:
        """Return the client for the arguments."""
        kind = cls._kind(backend, prefix)
        key = kind, repr(kwargs)
        found = cls._instances.get(key)
        if found is None:
            found = super().__new__(cls)
            found.client = kind(**kwargs)
            found._arguments = (backend, prefix, kwargs)
            cls._instances[key] = found
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        backend, prefix, kwargs = self._arguments
        return functools.partial(type(self), backend, prefix, **kwargs), ()

    @classmethod
    def _kind(cls, backend: str | None, prefix: str | None) -> type[BaseStorageBackend]:
        if prefix is not None and backend is None:
            has_petrel = prefix == "s3" and _is_importable("petrel_client")
            default = PetrelBackend if has_petrel else FsspecBackend
            return cls._prefix_to_backends.get(prefix, default)
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
    def writes_files(self) -> bool:
        """Whether ``put`` goes through fsspec, not through a client library or a user's class."""
        return getattr(type(self.client), "put", None) is FsspecBackend.put

    @staticmethod
    def parse_uri_prefix(uri: str | Path) -> str | None:
        """Return the protocol of a path, or None.

        >>> FileClient.parse_uri_prefix("s3://bucket/a"), FileClient.parse_uri_prefix("/a")
        ('s3', None)
        """
        if not is_filepath(uri):
            raise AssertionError(f"uri must be a str or a Path, got {uri!r}")
        prefix, found, _ = str(uri).partition("://")
        return prefix.rpartition(":")[2] if found else None

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
            raise TypeError(f"the backend's name must be a string, got {name!r}")
        if not (inspect.isclass(backend) and issubclass(backend, BaseStorageBackend)):
            raise TypeError(f"backend must be a subclass of BaseStorageBackend, got {backend!r}")
        if not force and name in cls._backends:
            raise KeyError(f"{name} is already registered as a storage backend; force=True")
        cls._backends[name] = backend
        for prefix in [prefixes] if isinstance(prefixes, str) else prefixes or ():
            cls._prefix_to_backends[prefix] = backend
        return backend

    def bytes_io(self, filepath: Any) -> io.BytesIO:
        """Return a file's bytes as an open file."""
        return io.BytesIO(self.client.get(filepath))
