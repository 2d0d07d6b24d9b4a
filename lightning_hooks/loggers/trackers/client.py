"""``ClientTrackerHook``: the base of trackers whose client takes ``init_kwargs``."""

from __future__ import annotations

from typing import Any

from lightning_hooks.loggers.trackers.base import TrackerHook
from lightning_hooks.utils.arguments import check_dict

__all__ = ["ClientTrackerHook"]


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
