"""mmcv's Config, a config file merged with base files, and DictAction, options for a config."""

from __future__ import annotations

import argparse
import ast
import copy
import pprint
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning_hooks.standin.fileio.io import dump
from lightning_hooks.standin.utils.misc import import_modules_from_strings
from lightning_hooks.utils.config_files import read_with_files
from lightning_hooks.utils.secrets import masked

__all__ = [
    "BASE_KEY",
    "DELETE_KEY",
    "DEPRECATION_KEY",
    "RESERVED_KEYS",
    "Config",
    "ConfigDict",
    "DictAction",
]

BASE_KEY = "_base_"
DELETE_KEY = "_delete_"
DEPRECATION_KEY = "_deprecation_"
RESERVED_KEYS = ["filename", "text", "pretty_text"]


class ConfigDict(dict[str, Any]):
    """A dict with keys as attributes, at all levels.

    >>> config = ConfigDict(model=dict(depth=50))
    >>> config.model.depth, config["model"]["depth"]
    (50, 50)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.update(*args, **kwargs)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several items; nested dicts become ConfigDicts."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return an item, set to ``default`` if missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, _as_config(value))

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"'ConfigDict' object has no attribute '{name}'") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __deepcopy__(self, memo: dict[int, Any]) -> ConfigDict:
        found = type(self)()
        for key, value in self.items():
            dict.__setitem__(found, key, copy.deepcopy(value, memo))
        return found

    def copy(self) -> ConfigDict:
        """Return a shallow copy."""
        found = type(self)()
        dict.update(found, self)
        return found

    def __copy__(self) -> ConfigDict:
        return self.copy()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)

    def to_dict(self) -> dict[str, Any]:
        """Return a plain dict, at all levels."""
        return _as_plain(self)  # type: ignore[no-any-return]


def _as_config(value: Any) -> Any:
    if isinstance(value, ConfigDict):
        return value
    if isinstance(value, dict):
        return ConfigDict(value)
    if type(value) in (list, tuple):
        return type(value)(_as_config(item) for item in value)
    return value


def _as_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_plain(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_as_plain(item) for item in value)
    return value


class Config:
    """A config, read from a file and the ``_base_`` files of that file.

    Args:
        cfg_dict: The config.
        cfg_text: The text of the file.
        filename: The path of the file.

    Note:
        Departures from mmcv: ``pretty_text`` is formatted by Python's ``pprint``.
    """

    def __init__(
        self,
        cfg_dict: Mapping[str, Any] | None = None,
        cfg_text: str | None = None,
        filename: str | Path | None = None,
    ) -> None:
        if not (cfg_dict is None or isinstance(cfg_dict, Mapping)):
            raise TypeError(f"cfg_dict must be a dict, but got {type(cfg_dict)}")
        for key in cfg_dict or {}:
            if key in RESERVED_KEYS:
                raise KeyError(f"{key} is reserved for config file")
        if cfg_text is None:
            cfg_text = Path(filename).read_text(encoding="utf-8") if filename else ""
        self.__dict__["_cfg_dict"] = ConfigDict(cfg_dict or {})
        self.__dict__["_filename"] = None if filename is None else str(filename)
        self.__dict__["_text"] = cfg_text

    @staticmethod
    def fromfile(
        filename: str | Path,
        use_predefined_variables: bool = True,
        import_custom_modules: bool = True,
    ) -> Config:
        """Read a ``.py``, YAML or JSON file, merged with the ``_base_`` files.

        Args:
            filename: The path.
            use_predefined_variables: Whether variables such as ``{{ fileDirname }}`` are replaced.
            import_custom_modules: Whether the modules of ``custom_imports`` are imported.

        Raises:
            OSError: for another ending.
            SyntaxError: for a ``.py`` file with wrong syntax; the message names the file.
        """
        _check_ending(str(filename))
        try:
            content, read = read_with_files(filename, use_predefined_variables)
        except SyntaxError as error:
            where = error.filename or filename
            raise SyntaxError(f"There are syntax errors in config file {where}: {error}") from error
        if import_custom_modules and content.get("custom_imports"):
            import_modules_from_strings(**content["custom_imports"])
        text = "\n".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in read)
        return Config(content, cfg_text=text, filename=filename)

    @staticmethod
    def fromstring(cfg_str: str, file_format: str) -> Config:
        """Parse the text of a config file.

        Args:
            cfg_str: The text.
            file_format: The suffix of the file, such as ``".py"``.
        """
        _check_ending(file_format)
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / f"config{file_format}"
            path.write_text(cfg_str, encoding="utf-8")
            found = Config.fromfile(path)
        found.__dict__.update(_filename=None, _text=cfg_str)
        return found

    @property
    def filename(self) -> str | None:
        """The path of the file."""
        name: str | None = self.__dict__["_filename"]
        return name

    @property
    def text(self) -> str:
        """The text of the file; from ``fromfile``, the texts of all files after their paths."""
        return str(self.__dict__["_text"])

    @property
    def pretty_text(self) -> str:
        """The config as Python code, an assignment for each key."""
        items = self._cfg_dict.to_dict().items()
        return "".join(f"{key} = {pprint.pformat(v, sort_dicts=False)}\n" for key, v in items)

    def dump(self, file: str | None = None) -> Any:
        """Write the config in the format of the file's suffix; without a file, return the text."""
        content = self._cfg_dict.to_dict()
        target = file or self.filename or ".py"
        if target.endswith(".py"):
            if file is None:
                return self.pretty_text
            Path(file).write_text(self.pretty_text, encoding="utf-8")
            return None
        return dump(content, file, file_format=target.rpartition(".")[2])

    def merge_from_dict(self, options: Mapping[str, Any], allow_list_keys: bool = True) -> None:
        """Change items by path: ``{"model.backbone.depth": 50}``.

        Args:
            options: The new values.
            allow_list_keys: Whether numbers are indices of lists: ``{"pipeline.0.type": ...}``.
        """
        nested: dict[str, Any] = {}
        for path, value in options.items():
            *parents, last = path.split(".")
            level = nested
            for key in parents:
                level = level.setdefault(key, {})
            level[last] = value
        self.__dict__["_cfg_dict"] = ConfigDict(_merged(self._cfg_dict, nested, allow_list_keys))

    @staticmethod
    def _merge_a_into_b(a: Any, b: Any, allow_list_keys: bool = False) -> Any:
        """Return ``b`` changed by ``a``, for scripts such as mmaction2's ``tools/test.py``."""
        return ConfigDict({"merged": _merged(b, a, allow_list_keys)}).merged

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_cfg_dict" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._cfg_dict, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._cfg_dict[name] = value

    def __getitem__(self, name: str) -> Any:
        return self._cfg_dict[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._cfg_dict[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(self._cfg_dict, name)

    def __iter__(self) -> Any:
        return iter(self._cfg_dict)

    def __len__(self) -> int:
        return len(self._cfg_dict)

    def __contains__(self, key: object) -> bool:
        return key in self._cfg_dict

    def __repr__(self) -> str:
        return f"Config (path: {self.filename}): {masked(self._cfg_dict)!r}"

    def __getstate__(self) -> tuple[Any, ...]:
        return self._cfg_dict, self.filename, self.text

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        names = ("_cfg_dict", "_filename", "_text")
        self.__dict__.update(zip(names, state, strict=True))


def _check_ending(name: str) -> None:
    if not name.endswith((".py", ".json", ".yaml", ".yml")):
        raise OSError(f"Only py/yml/yaml/json type are supported now! Got {name}")


def _merged(base: Any, changes: Mapping[str, Any], lists: bool) -> Any:
    if isinstance(base, list):
        items = {str(index): item for index, item in enumerate(base)}
        for key in changes.keys() - items.keys():
            raise KeyError(f"{key!r} is not an index of a list of {len(base)}")
        return [*_merged(items, changes, lists).values()]
    result = dict(base)
    for key, value in changes.items():
        if not isinstance(value, Mapping):
            result[key] = value
            continue
        own = {k: v for k, v in value.items() if k != DELETE_KEY}
        old = result.get(key)
        if old is None or value.get(DELETE_KEY):
            result[key] = own
        elif isinstance(old, Mapping) or (lists and isinstance(old, list)):
            result[key] = _merged(old, own, lists)
        else:
            raise TypeError(
                f"{key} is a {type(old).__name__} in the config and cannot take {dict(value)}; "
                f"{DELETE_KEY}=True replaces it"
            )
    return result


class DictAction(argparse.Action):
    """Parse a dict from the command line: ``--cfg-options a.b=1 c=[1,2]``."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Add ``key=value`` items to the dict."""
        found = dict(getattr(namespace, self.dest) or {})
        for item in [values] if isinstance(values, str) else values:
            key, _, text = item.partition("=")
            found[key] = _parse(text)
        setattr(namespace, self.dest, found)


def _parse(text: str) -> Any:
    """Return the value of a text on the command line: a number, a list, or the text itself.

    >>> _parse("1"), _parse("true"), _parse("a,2"), _parse("[(a,b),3]"), _parse("x")
    (1, True, ['a', 2], [('a', 'b'), 3], 'x')
    """
    text = text.strip("'\" ")
    words = {"true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    parts = list(_split_at_commas(text[1:-1] if text[:1] in "[(" and text[-1:] in "])" else text))
    if text[:1] == "(" and text[-1:] == ")":
        return tuple(map(_parse, parts))
    if (text[:1] == "[" and text[-1:] == "]") or len(parts) > 1:
        return list(map(_parse, parts))
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _split_at_commas(text: str) -> Iterable[str]:
    """Yield the parts between commas outside of brackets.

    Raises:
        AssertionError: if brackets do not match.
    """
    if any(text.count(a) != text.count(b) for a, b in ("[]", "()")):
        raise AssertionError(f"brackets do not match in {text!r}")
    depth, start = 0, 0
    for place, character in enumerate(text):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:].strip():
        yield text[start:]
