"""Prepare the inputs of trackers: runs, arguments, hyper-parameters and names."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.secrets import masked

__all__ = [
    "Names",
    "Paths",
    "check_run",
    "flatten_params",
    "is_lightning_logger",
    "is_logger_class",
]


def is_lightning_logger(run: Any) -> bool:
    """Whether an object is a ``Logger`` of ``lightning`` or ``pytorch_lightning``."""
    return is_logger_class(type(run))


def is_logger_class(cls: Any) -> bool:
    """Whether a class is a ``Logger`` of ``lightning`` or ``pytorch_lightning``."""
    return any(
        base.__name__ == "Logger" and base.__module__.endswith("loggers.logger")
        for base in getattr(cls, "__mro__", ())
    )


def check_run(run: Any, attribute: str, user: str) -> Any:
    """Return ``run`` after a check of the type, without connecting.

    Args:
        run: None, a client's run, or a Lightning ``Logger`` for the same backend.
        attribute: An attribute of every run of the client.
        user: The name of the hook, for the message.

    Raises:
        TypeError: for any other object.
    """
    if run is None or hasattr(type(run), attribute) or hasattr(run, attribute):
        return run
    if is_lightning_logger(run) and hasattr(type(run), "experiment"):
        return run
    raise TypeError(
        f"run must be the client's run or a Lightning Logger for {user}, got {shown(masked(run))}"
    )


def flatten_params(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters under joined names; values without a plain form become strings.

    >>> flatten_params({"lr": 0.1, "data": {"size": 32, "means": [1, 2]}})
    {'lr': 0.1, 'data/size': 32, 'data/means': '[1, 2]'}
    """
    flat: dict[str, Any] = {}
    for name, value in params.items():
        value = plain(value)
        if isinstance(value, Mapping) and value:
            flat.update(flatten_params(value, f"{prefix}{name}/"))
        else:
            is_simple = value is None or isinstance(value, (bool, int, float, str))
            flat[f"{prefix}{name}"] = value if is_simple else str(value)
    return flat


class Paths:
    """Gives each name a path, so that no number is also a group of numbers.

    If ``lr`` is a number, ``lr/body`` cannot exist: the later name gets a ``_``.

    Args:
        tree: Existing paths; or a dict for each group, anything else for a number.

    >>> paths = Paths()
    >>> [paths.of(name) for name in ("lr", "lr/body", "val/acc", "val", "lr/body")]
    ['lr', 'lr_/body', 'val/acc', 'val_', 'lr_/body']
    """

    def __init__(self, tree: Mapping[str, Any] | Iterable[str] = ()) -> None:
        self._tree = _groups(tree) if isinstance(tree, Mapping) else _tree_of(tree)
        self._paths: dict[str, str] = {}
        self.note = ""
        """A message about names with another path."""

    def of(self, name: str) -> str:
        """Return the path of a name, always the same."""
        if name not in self._paths:
            path = self._paths[name] = self._free(name)
            if path != name:
                self.note += ", " if self.note else "a number and a group cannot share a name: "
                self.note += f"{name} is {path}"
        return self._paths[name]

    def _free(self, name: str) -> str:
        *groups, leaf = name.split("/")
        within, path = self._tree, ""
        for group in groups:
            while within.get(group, within) is None:
                group += "_"
            within = within.setdefault(group, {})
            path += f"{group}/"
        while within.get(leaf) is not None or path + leaf in self._paths.values():
            leaf += "_"
        within[leaf] = None
        return path + leaf


def _groups(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with None for each number."""
    return {k: _groups(v) if isinstance(v, Mapping) else None for k, v in tree.items()}


def _tree_of(paths: Iterable[str]) -> dict[str, Any]:
    """Return the groups of paths, with None for each number."""
    tree: dict[str, Any] = {}
    for path in paths:
        *groups, leaf = path.split("/")
        within = tree
        for group in groups:
            within = within.setdefault(group, {})
        within[leaf] = None
    return tree


class Names:
    """Gives each name a unique form accepted by a backend.

    Args:
        accepted: A function that returns a name's form; a second name with an existing form gets
            a checksum at the end.
        longest: The maximal length of a form.
        paths: The paths of a backend where a number cannot be a group of numbers too.

    >>> names = Names(lambda name: name.replace("@", "_").replace("#", "_"))
    >>> [names.of(name) for name in ("a@b", "a#b", "a@b")]
    ['a_b', 'a_b_ab410f10', 'a_b']
    """

    def __init__(
        self, accepted: Callable[[str], str], longest: int = 250, paths: Paths | None = None
    ) -> None:
        self._accepted, self._longest, self._paths = accepted, longest, paths
        self._forms: dict[str, str] = {}

    @property
    def note(self) -> str:
        """A message about names with another path."""
        return self._paths.note if self._paths is not None else ""

    def of(self, name: str) -> str:
        """Return the form of a name, always the same."""
        if name not in self._forms:
            form = self._accepted(name)[: self._longest]
            if form in self._forms.values():
                end = f"_{zlib.crc32(name.encode(errors='replace')):08x}"
                form = form[: self._longest - len(end)] + end
            self._forms[name] = form
        form = self._forms[name]
        return form if self._paths is None else self._paths.of(form)
