"""A run that is there already: of a client, or inside a Lightning ``Logger``.

The hyper-parameters of a run, as names with plain values.

``Paths``: names for backends where a name with slashes is a path through groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.utils.plain_types import plain

__all__ = ["Paths", "check_run", "experiment", "flat", "is_lightning_logger"]


def is_lightning_logger(run: Any) -> bool:
    """Whether it is one of Lightning's loggers, of either of its two packages."""
    return any(
        base.__name__ == "Logger" and base.__module__.endswith("loggers.logger")
        for base in type(run).__mro__
    )


def check_run(run: Any, attribute: str, user: str) -> Any:
    """Return ``run`` if it can be one; nothing is connected.

    Args:
        run: None, a client's run, or a Lightning ``Logger`` for the same backend.
        attribute: What a client's run has.
        user: Who asks.

    Raises:
        TypeError: if it is something else.
    """
    if run is None or hasattr(type(run), attribute) or hasattr(run, attribute):
        return run
    if is_lightning_logger(run) and hasattr(type(run), "experiment"):
        return run
    raise TypeError(f"run must be the client's run or a Lightning Logger for {user}, got {run!r}")


def experiment(run: Any) -> Any:
    """Return the client's run: what a Lightning ``Logger`` keeps as its experiment."""
    return run.experiment if is_lightning_logger(run) else run


def flat(params: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested parameters under joined names; what has no plain form becomes its ``str``.

    >>> flat({"lr": 0.1, "data": {"size": 32, "means": [1, 2]}})
    {'lr': 0.1, 'data/size': 32, 'data/means': '[1, 2]'}
    """
    found: dict[str, Any] = {}
    for name, value in params.items():
        value = plain(value)
        if isinstance(value, Mapping) and value:
            found.update(flat(value, f"{prefix}{name}/"))
        else:
            simple = value is None or isinstance(value, (bool, int, float, str))
            found[f"{prefix}{name}"] = value if simple else str(value)
    return found


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
