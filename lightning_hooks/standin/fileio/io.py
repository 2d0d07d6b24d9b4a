"""mmcv's ``load`` and ``dump``: JSON, YAML and pickle files, local or remote."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from lightning_hooks.standin.fileio.file_client import FileClient
from lightning_hooks.utils.suggestions import suggest

__all__ = [
    "BaseFileHandler",
    "JsonHandler",
    "PickleHandler",
    "YamlHandler",
    "dump",
    "file_handlers",
    "load",
    "register_handler",
    "set_default",
]


class BaseFileHandler:
    """The base of file formats: reads and writes objects in an open file."""

    str_like = True

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read an object."""
        raise NotImplementedError(f"{type(self).__name__} must define load_from_fileobj")

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write an object."""
        raise NotImplementedError(f"{type(self).__name__} must define dump_to_fileobj")

    def load_from_path(self, filepath: str, mode: str = "r", **kwargs: Any) -> Any:
        """Read an object from a local file."""
        with open(filepath, mode) as file:
            return self.load_from_fileobj(file, **kwargs)

    def dump_to_path(self, obj: Any, filepath: str, mode: str = "w", **kwargs: Any) -> None:
        """Write an object to a local file."""
        with open(filepath, mode) as file:
            self.dump_to_fileobj(obj, file, **kwargs)

    def dump_to_str(self, obj: Any, **kwargs: Any) -> Any:
        """Return the text or bytes of an object."""
        file: Any = io.StringIO() if self.str_like else io.BytesIO()
        self.dump_to_fileobj(obj, file, **kwargs)
        return file.getvalue()


class JsonHandler(BaseFileHandler):
    """JSON; sets, ranges and NumPy's numbers and arrays become lists and numbers."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read an object."""
        return json.load(file, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write an object."""
        json.dump(obj, file, **{"default": set_default, **kwargs})


class YamlHandler(BaseFileHandler):
    """YAML."""

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read an object."""
        import yaml

        return yaml.load(file, **{"Loader": yaml.SafeLoader, **kwargs})

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write an object."""
        import yaml

        yaml.dump(obj, file, **{"Dumper": yaml.Dumper, **kwargs})


class PickleHandler(BaseFileHandler):
    """Pickle."""

    str_like = False

    def load_from_fileobj(self, file: Any, **kwargs: Any) -> Any:
        """Read an object."""
        return pickle.load(file, **kwargs)

    def load_from_path(self, filepath: str, mode: str = "rb", **kwargs: Any) -> Any:
        """Read an object from a local file."""
        return super().load_from_path(filepath, mode, **kwargs)

    def dump_to_path(self, obj: Any, filepath: str, mode: str = "wb", **kwargs: Any) -> None:
        """Write an object to a local file."""
        super().dump_to_path(obj, filepath, mode, **kwargs)

    def dump_to_fileobj(self, obj: Any, file: Any, **kwargs: Any) -> None:
        """Write an object."""
        pickle.dump(obj, file, **{"protocol": 2, **kwargs})


file_handlers: dict[str, Any] = {
    "json": JsonHandler(),
    "yaml": YamlHandler(),
    "yml": YamlHandler(),
    "pickle": PickleHandler(),
    "pkl": PickleHandler(),
}


def set_default(obj: Any) -> Any:
    """Return a JSON value: lists for sets, ranges and arrays, numbers for NumPy scalars."""
    if isinstance(obj, (set, range)):
        return list(obj)
    if isinstance(obj, np.ndarray):
        return obj.tolist()
    if isinstance(obj, np.generic):
        return obj.item()
    raise TypeError(f"{type(obj)} is unsupported for json dump")


def register_handler(file_formats: str | list[str], **kwargs: Any) -> Any:
    """Decorate a handler class, to use ``cls(**kwargs)`` for files of the given formats."""

    def decorator(cls: Any) -> Any:
        for ending in [file_formats] if isinstance(file_formats, str) else file_formats:
            file_handlers[ending] = cls(**kwargs)
        return cls

    return decorator


def _handler(file: Any, file_format: str | None) -> Any:
    if file_format is None and isinstance(file, (str, Path)):
        file_format = str(file).rpartition(".")[2]
    if file_format not in file_handlers:
        hint = suggest(str(file_format), file_handlers)
        raise TypeError(f"the format {file_format!r} is not supported; {hint}")
    return file_handlers[file_format]


def load(
    file: Any,
    file_format: str | None = None,
    file_client_args: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Read an object from a path or an open file, by the path's suffix or ``file_format``."""
    handler = _handler(file, file_format)
    if not isinstance(file, (str, Path)):
        return handler.load_from_fileobj(file, **kwargs)
    client = FileClient.infer_client(file_client_args, file)
    content = client.get_text(file) if handler.str_like else client.get(file)
    opened: Any = io.StringIO(content) if handler.str_like else io.BytesIO(content)
    return handler.load_from_fileobj(opened, **kwargs)


def dump(
    obj: Any,
    file: Any = None,
    file_format: str | None = None,
    file_client_args: dict[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    """Write an object to a path or an open file; without a file, return text or bytes."""
    if file is None and file_format is None:
        raise ValueError("dump needs a file, or a file_format for the text that it returns")
    handler = _handler("" if file is None else file, file_format)
    if file is None:
        return handler.dump_to_str(obj, **kwargs)
    if not isinstance(file, (str, Path)):
        return handler.dump_to_fileobj(obj, file, **kwargs)
    client = FileClient.infer_client(file_client_args, file)
    opened: Any = io.StringIO() if handler.str_like else io.BytesIO()
    handler.dump_to_fileobj(obj, opened, **kwargs)
    content = opened.getvalue()
    return client.put_text(content, file) if handler.str_like else client.put(content, file)
