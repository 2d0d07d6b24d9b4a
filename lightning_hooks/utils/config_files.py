"""Read mmcv's config files (``.py``, YAML, JSON) with inheritance, as plain dicts.

A file inherits from the files in ``_base_``: dicts are merged into inherited dicts key by key, and
a dict with ``_delete_=True`` replaces the inherited dict. ``{{ _base_.a.b }}`` is a value of a
base; ``{{ fileDirname }}`` and similar names are parts of the file's own path.
"""

from __future__ import annotations

import json
import os
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.plain_types import count_values
from lightning_hooks.utils.regular_files import regular
from lightning_hooks.utils.warn import warn

__all__ = ["copied", "merged", "read_config"]

BASE, DELETE, DEPRECATION = "_base_", "_delete_", "_deprecation_"
BASE_VALUE = re.compile(r"\{\{\s*_base_\.([\w.]+)\s*\}\}")
MARK = "value of _base_: "
LARGEST_CONFIG = 100_000
"""The maximum number of values in the YAML and JSON files of a load.

YAML's aliases, and values of bases, can multiply without end.
"""
DEEPEST = 100
"""The maximum number of files that inherit from one another."""


def read_config(path: str | Path) -> dict[str, Any]:
    """Return the content of a config file, including inherited values.

    A ``.py`` file is run, and the variables are the config, without modules, functions and names
    with two leading underscores.

    Args:
        path: A ``.py``, ``.yaml``, ``.yml`` or ``.json`` file.

    Raises:
        FileNotFoundError: if the file or a base is missing.
        ValueError: for another ending, a file that inherits from itself, YAML or JSON that inherits
            from a ``.py`` file, content other than a dict, damaged YAML or JSON, or more than
            100,000 values in all YAML and JSON files.
        KeyError: if two bases define the same key, or no base has the key of ``{{ _base_.key }}``.
        TypeError: if a dict would be merged into another type, or ``_base_`` is no path.
        Exception: raised by the code of a ``.py`` file, with a note on the file.

    Note:
        Departures from mmcv: the key ``_delete_`` is removed from a dict without a base as well,
        a file that inherits from itself is refused by name, and YAML and JSON inherit from no
        ``.py`` file, because nothing in a data file is executed. A file that several bases inherit
        from is read once.
    """
    return _Load().read(Path(os.path.abspath(Path(path).expanduser())))


def merged(base: Mapping[str, Any], child: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict with the items of both: dicts are merged, other values are the child's.

    Raises:
        TypeError: if a dict would be merged into another type.

    >>> merged({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 4}, "b": [5]})
    {'a': {'x': 4, 'y': 2}, 'b': [5]}
    >>> merged({"a": {"x": 1, "y": 2}}, {"a": {"_delete_": True, "x": 4}})
    {'a': {'x': 4}}
    """
    result: dict[str, Any] = copied(base)
    for key, value in child.items():
        if key == DELETE:
            continue
        inherits = isinstance(value, Mapping) and not value.get(DELETE, False)
        if inherits and key in base and not isinstance(base[key], Mapping):
            raise TypeError(
                f"{key} is a dict, and {type(base[key]).__name__} in the config it inherits from: "
                f"give it {DELETE}=True to replace that"
            )
        if isinstance(value, Mapping):
            result[key] = merged(base.get(key, {}) if inherits else {}, value)
        else:
            result[key] = copied(value)
    return result


def copied(value: Any, convert: Callable[[Any], Any] = lambda item: item) -> Any:
    """Return a config with plain copies of dicts, lists and tuples.

    Args:
        value: The config.
        convert: Called for all other values, which are not copied by default.
    """
    if isinstance(value, Mapping):
        return {key: copied(item, convert) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(item, convert) for item in value)
    return convert(value)


class _TooManyValuesError(ValueError):
    pass


class _Load:
    """Reads a config: each file once, and of all data files together a limited number of values."""

    def __init__(self) -> None:
        self._contents: dict[Path, dict[str, Any]] = {}
        self._size = 0.0

    def read(self, path: Path, heirs: tuple[Path, ...] = ()) -> dict[str, Any]:
        """Return the content of a file and the bases.

        Args:
            path: The file.
            heirs: The files that inherit from the file, one from another.
        """
        if path in heirs:
            chain = " <- ".join(map(str, (*heirs, path)))
            raise ValueError(f"a config must not inherit from itself: {chain}")
        if len(heirs) == DEEPEST:
            raise ValueError(f"{heirs[0]} inherits from a chain of more than {DEEPEST} files")
        if path not in self._contents:
            self._contents[path] = self._with_bases(path, heirs)
        return self._contents[path]

    def _with_bases(self, path: Path, heirs: tuple[Path, ...]) -> dict[str, Any]:
        content = self._parse(path)
        if DEPRECATION in content:
            notice = content.pop(DEPRECATION)
            instead = notice.get("expected") if isinstance(notice, Mapping) else None
            hint = f"; use {instead}" if instead else ""
            warn(f"the config {path} is deprecated{hint}", DeprecationWarning)
        names = content.pop(BASE, [])
        bases: dict[str, Any] = {}
        names = [names] if isinstance(names, str) else names
        if not (isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)):
            raise TypeError(
                f"{BASE} of {path} must be a path or a list of paths, got {shown(names)}"
            )
        for name in names:
            base = Path(os.path.abspath(path.parent / name))
            if base.suffix == ".py" != path.suffix:
                raise ValueError(
                    f"{BASE} of {path} must be YAML or JSON, got {name!r}: a .py file is run, and "
                    f"{path.suffix} files are data; a config that inherits from code ends in .py"
                )
            inherited = self.read(base, (*heirs, path))
            twice = sorted(bases.keys() & inherited.keys())
            if twice:
                raise KeyError(f"two bases of {path} define {', '.join(twice)}")
            bases.update(inherited)
        return merged(bases, copied(content, partial(self._filled, bases=bases, path=path)))

    def _parse(self, path: Path) -> dict[str, Any]:
        """Return the content of a single file, with marks for values of bases."""
        if path.suffix not in (".py", ".yaml", ".yml", ".json"):
            raise ValueError(f"a config file must end in .py, .yaml, .yml or .json, got {path}")
        try:
            with open(path, encoding="utf-8", opener=regular) as file:
                text = file.read()
        except UnicodeDecodeError as error:
            raise ValueError(f"the config {path} is no text: {error}") from None
        own = {
            "fileDirname": path.parent.as_posix(),
            "fileBasename": path.name,
            "fileBasenameNoExtension": path.stem,
            "fileExtname": path.suffix,
        }
        for name, part in own.items():
            text = re.sub(rf"\{{\{{\s*{name}\s*\}}\}}", part.replace("\\", r"\\"), text)
        text = BASE_VALUE.sub(lambda match: json.dumps(MARK + match[1]), text)
        content: Any
        if path.suffix == ".py":
            content = {"__file__": str(path), "__name__": path.stem}
            try:
                exec(compile(text, str(path), "exec"), content)
            except BaseException as error:
                add_note(error, f"in the config {path}")
                raise
            hidden = (types.ModuleType, types.FunctionType)
            content = {
                name: value
                for name, value in content.items()
                if not name.startswith("__") and not isinstance(value, hidden)
            }
        else:
            content = self._data(text, path)
        if not isinstance(content, dict):
            raise ValueError(f"a config must be a dict, {path} is {type(content).__name__}")
        return content

    def _data(self, text: str, path: Path) -> Any:
        """Return the content of YAML or JSON.

        Raises:
            ValueError: if the text is damaged, or has too many values.
        """
        import yaml

        try:
            if path.suffix == ".json":
                content = json.loads(text)
            else:
                loader = yaml.SafeLoader(text)
                content = loader.get_single_node()
            self._count(content, path)  # aliases and merge keys are not copied yet
            is_node = isinstance(content, yaml.Node)
            return loader.construct_document(content) if is_node else content
        except _TooManyValuesError:
            raise
        except Exception as error:  # the constructors of YAML's tags raise errors of many types
            raise ValueError(f"the config {path} is damaged: {error}") from None

    def _filled(self, value: Any, bases: Mapping[str, Any], path: Path) -> Any:
        """Return a value of the bases in place of a mark; any other value is returned unchanged."""
        if not (isinstance(value, str) and value.startswith(MARK)):
            return value
        name, inherited = value.removeprefix(MARK), bases
        for key in name.split("."):
            if not isinstance(inherited, Mapping) or key not in inherited:
                raise KeyError(f"{path}: _base_.{name} is in none of its bases")
            inherited = inherited[key]
        if path.suffix != ".py":
            self._count(inherited, path)
        return copied(inherited)

    def _count(self, value: Any, path: Path) -> None:
        self._size += count_values(value, _parts)
        if self._size > LARGEST_CONFIG:
            raise _TooManyValuesError(
                f"the config {path} has more than {LARGEST_CONFIG} values, with what it inherits"
            )


def _parts(value: Any) -> Iterable[Any]:
    """Return the values in a value of a config, or in YAML's node of a value."""
    parts = getattr(value, "value", value)
    if isinstance(parts, dict):
        return parts.values()
    pairs = parts if isinstance(parts, list) else ()
    return [part[1] if isinstance(part, tuple) else part for part in pairs]
