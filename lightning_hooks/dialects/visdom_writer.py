"""``VisdomWriter``: an ``EventStorage`` on a Visdom page."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch

from lightning_hooks.dialects.event_writers import EventWriter, of_window
from lightning_hooks.writers.packages import require

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
        require("visdom", type(self).__name__)
        self._window_size = of_window(window_size)
        self._env = env
        self._arguments = kwargs
        self._last_write = -1
        self._drawn: set[str] = set()
        self._page: Any = None
        self._broken = False

    def write(self) -> None:
        """Draw what is new; images are then forgotten."""
        if self._broken:
            return
        try:
            self._write()
        except Exception as error:  # a page that is not there never ends a training
            self._broken = True
            logging.getLogger("lightning_hooks").warning(
                "VisdomWriter: the page cannot be written to (%s: %s); training goes on without it",
                *(type(error).__name__, error),
            )

    def _write(self) -> None:
        if self._page is None:
            import visdom

            given = {"use_incoming_socket": False, "raise_exceptions": True, **self._arguments}
            self._page = visdom.Visdom(env=self._env, **given)
        storage = self.storage()
        newest = self._last_write
        for name, (value, iteration) in storage.latest_values(self._window_size).items():
            if iteration > self._last_write:
                self._draw(name, value, iteration)
                newest = max(newest, iteration)
        self._last_write = newest
        for name, image, iteration in storage.vis_data:
            options = {"title": f"{name} ({iteration})"}
            self._page.image(_pixels(image), win=name, opts=options)
        storage.clear_images()

    def _draw(self, name: str, value: float, iteration: int) -> None:
        self._page.line(
            X=np.array([iteration]),
            Y=np.array([value]),
            win=name,
            update="append" if name in self._drawn else None,
            opts={"title": name, "xlabel": "iteration"},
        )
        self._drawn.add(name)

    def close(self) -> None:
        """Leave the page."""
        page, self._page = self._page, None
        if hasattr(page, "close_connection"):
            page.close_connection()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_page": None}


def _pixels(image: Any) -> Any:
    return image.detach().cpu().numpy() if isinstance(image, torch.Tensor) else np.asarray(image)
