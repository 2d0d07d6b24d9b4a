"""All modules of mmcv 1.7.2, with their public names.

``mmcv_names.txt`` has a line for each module, with the names defined there and, after a colon, the
imported names: ``mmcv.utils.path Path fopen() LIMIT= : is_str()`` has a class, a function, a value
and an imported function. ``tests/support/mmcv_names.py`` records the file with real mmcv.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

__all__ = ["FILE", "Kind", "MmcvModule", "kind_of", "mmcv_modules"]

FILE = Path(__file__).with_suffix(".txt")
Kind = Literal["class", "function", "value"]


class MmcvModule(NamedTuple):
    """The names of a module, with their kinds."""

    own: Mapping[str, Kind]
    imported: Mapping[str, Kind]


@functools.cache
def mmcv_modules() -> Mapping[str, MmcvModule]:
    """Return all modules.

    >>> mmcv_modules()["mmcv.utils.timer"].own
    {'Timer': 'class', 'TimerError': 'class', 'check_time': 'function'}
    """
    found = {}
    for line in FILE.read_text(encoding="utf-8").splitlines():
        own, _, imported = line.partition(":")
        module, *names = own.split()
        found[module] = MmcvModule(_kinds(names), _kinds(imported.split()))
    return found


def kind_of(module: str, name: str) -> Kind:
    """Return the kind of a name; ``"function"`` for a name missing in mmcv 1.7.2."""
    own, imported = mmcv_modules().get(module, MmcvModule({}, {}))
    return own.get(name) or imported.get(name, "function")


def _kinds(names: list[str]) -> dict[str, Kind]:
    endings: dict[str, Kind] = {")": "function", "=": "value"}
    return {name.rstrip("()="): endings.get(name[-1], "class") for name in names}
