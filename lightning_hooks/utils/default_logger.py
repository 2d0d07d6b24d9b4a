"""The runner's default logger, and a log handler for terminals with progress bars."""

from __future__ import annotations

import logging
import sys

__all__ = ["BarFriendlyHandler", "default_logger"]


class BarFriendlyHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes log lines to the standard output above a tqdm bar."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line through tqdm, to the present stream: tests and notebooks replace it."""
        try:
            from tqdm import tqdm  # type: ignore[import-untyped]  # Lightning needs tqdm too

            tqdm.write(self.format(record), file=sys.stdout)
        except Exception:  # a line of log never ends a run
            self.handleError(record)


def default_logger(rank: int) -> logging.Logger:
    """Return the logger ``lightning_hooks``, with a handler if the program has none.

    Ranks other than 0 print errors only, as in mmcv.
    """
    logger = logging.getLogger("lightning_hooks")
    if not logger.hasHandlers():
        handler = BarFriendlyHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
        )
        logger.addHandler(handler)
        logger.propagate = False  # a library may set up the root logger later: lines print once
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO if rank == 0 else logging.ERROR)
    return logger
