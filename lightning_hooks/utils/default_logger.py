"""The default logger of the runner, and a handler that writes around progress bars."""

from __future__ import annotations

import logging
import sys

__all__ = ["BarFriendlyHandler", "default_logger"]


class BarFriendlyHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes lines to the standard output without breaking a tqdm bar there."""

    def __init__(self) -> None:
        super().__init__(sys.stdout)

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line, through tqdm where a bar may be on."""
        tqdm = sys.modules.get("tqdm")
        if tqdm is None:
            self.setStream(sys.stdout)  # the current stream: tests and notebooks replace it
            super().emit(record)
            return
        try:
            tqdm.tqdm.write(self.format(record), file=sys.stdout)
        except Exception:  # a line of log never ends a run
            self.handleError(record)


def default_logger(rank: int) -> logging.Logger:
    """Return the logger ``lightning_hooks``, which prints if the program has set up no handler.

    Only rank 0 prints below errors, as in mmcv.
    """
    logger = logging.getLogger("lightning_hooks")
    if not logger.hasHandlers():
        handler = BarFriendlyHandler()
        handler.setFormatter(
            logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
        )
        logger.addHandler(handler)
        logger.propagate = (
            False  # else lines print twice if a library sets up the root logger later
        )
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO if rank == 0 else logging.ERROR)
    return logger
