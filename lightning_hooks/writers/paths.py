"""``Paths``: names for backends where a name with slashes is a path through groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["Paths"]


class Paths:
    """Gives each name a path, of which none leads through another's number.

    Where ``lr`` is a number there can be no group ``lr``: who comes second has ``_`` added.

    Args:
        known: What is there already: a dict for each group, anything else for a number.

    >>> paths = Paths()
    >>> [paths.of(name) for name in ("lr", "lr/body", "val/acc", "val", "lr/body")]
    ['lr', 'lr_/body', 'val/acc', 'val_', 'lr_/body']
    """

    def __init__(self, known: Mapping[str, Any] | None = None) -> None:
        self._known = _groups(known or {})
        self._given: dict[str, str] = {}
        self.note = ""
        """What is not stored under its name, for people."""

    def of(self, name: str) -> str:
        """Return the path of a name, always the same."""
        if name not in self._given:
            path = self._given[name] = self._free(name)
            if path != name:
                why = "" if self.note else "a number and a group cannot share a name: "
                self.note += f"{why or ', '}{name} is {path}"
        return self._given[name]

    def _free(self, name: str) -> str:
        *groups, leaf = name.split("/")
        within, path = self._known, ""
        for group in groups:
            while within.get(group, within) is None:
                group += "_"
            within = within.setdefault(group, {})
            path += f"{group}/"
        while within.get(leaf) is not None or path + leaf in self._given.values():
            leaf += "_"
        within[leaf] = None
        return path + leaf


def _groups(known: Mapping[str, Any]) -> dict[str, Any]:
    """A copy in which a number is None."""
    return {k: _groups(v) if isinstance(v, Mapping) else None for k, v in known.items()}
