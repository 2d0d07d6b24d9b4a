"""``VisdomWriter``: an ``EventStorage`` on a Visdom page."""

from __future__ import annotations

from typing import Any

from lightning_hooks.dialects.steps.backend import Backend
from lightning_hooks.dialects.steps.writers import EventWriter, of_window
from lightning_hooks.loggers.trackers.visdom import VisdomWriter as _Page

__all__ = ["VisdomWriter"]


class VisdomWriter(EventWriter):
    """Draws every scalar as a line in a window of its own, and shows images.

    A server that cannot be reached, or fails later, costs one warning; training goes on.

    Args:
        window_size: The window of which the median is drawn, where a scalar should be smoothed.
        env: The environment of the page.
        kwargs: Passed to ``visdom.Visdom``: ``server``, ``port``; or ``offline=True`` with
            ``log_to_filename``, for a file that ``Visdom().replay_log()`` sends later.

    Raises:
        ImportError: if visdom is not installed.
    """

    def __init__(self, window_size: int = 20, env: str = "main", **kwargs: Any) -> None:
        self._window_size = of_window(window_size)
        init = {"env": env, "use_incoming_socket": False, "raise_exceptions": True, **kwargs}
        self._page = Backend(_Page, type(self).__name__, init=init)
        self._last_write = -1

    def write(self) -> None:
        """Draw what is new; images are then forgotten."""
        storage = self.storage()
        rows: dict[int, dict[str, float]] = {}
        for name, (value, iteration) in storage.latest_values(self._window_size).items():
            if iteration > self._last_write:
                rows.setdefault(iteration, {})[name] = value
        for iteration in sorted(rows):
            self._page.send(iteration, scalars=rows[iteration])
        self._last_write = max(rows, default=self._last_write)
        for name, image, iteration in storage.vis_data:
            self._page.send(iteration, images={name: image})
        storage.clear_images()

    def close(self) -> None:
        """Wait until everything is drawn."""
        self._page.close()
