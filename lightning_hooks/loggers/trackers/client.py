"""``ClientTrackerHook``: the base of trackers whose client takes ``init_kwargs``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.utils.arguments import check_dict

__all__ = ["ClientTrackerHook", "with_keywords"]


def with_keywords(init_kwargs: dict[str, Any] | None, **keywords: Any) -> dict[str, Any] | None:
    """Return ``init_kwargs`` with the client's arguments that were given as keywords.

    Raises:
        TypeError: for a keyword of another type.
        ValueError: for an argument that is given in both ways.

    >>> with_keywords({"mode": "offline"}, project="digits", name=None)
    {'mode': 'offline', 'project': 'digits'}
    >>> with_keywords({"project": "letters"}, project="digits")
    Traceback (most recent call last):
    ValueError: project is given twice: as a keyword, and in init_kwargs; write one of them
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    for name, value in given.items():
        if name == "tags":
            several = isinstance(value, Collection) and not isinstance(value, str)
            if not several or not all(isinstance(tag, str) for tag in value):
                raise TypeError(f"tags must be a list of str, such as ['baseline'], got {value!r}")
            given[name] = list(value)
        elif isinstance(value, bool) or not isinstance(value, int if name == "port" else str):
            wanted = "an int" if name == "port" else "a str"
            raise TypeError(f"{name} must be {wanted}, got {value!r}")
    if not given:
        return init_kwargs
    known = check_dict("init_kwargs", init_kwargs) or {}
    for name in given.keys() & known.keys():
        raise ValueError(
            f"{name} is given twice: as a keyword, and in init_kwargs; write one of them"
        )
    return {**known, **given}


class ClientTrackerHook(TrackerHook):
    """A tracker whose client is started by one function.

    Args:
        init_kwargs: Arguments of the client's function.
        interval, ignore_last, reset_flag, by_epoch: See ``LoggerHook``.
        options: See ``TrackerHook``.
    """

    def __init__(
        self,
        init_kwargs: dict[str, Any] | None = None,
        interval: int = 10,
        ignore_last: bool = True,
        reset_flag: bool = False,
        by_epoch: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(interval, ignore_last, reset_flag, by_epoch, **options)
        self.require_client()
        self.init_kwargs = check_dict("init_kwargs", init_kwargs) or {}
