"""mmcv's ``get_logger``, with console and file handlers, and ``print_log``."""

from __future__ import annotations

import logging
from typing import Any

from lightning_hooks.standin.utils.dist import get_dist_info
from lightning_hooks.utils.arguments import shown

__all__ = ["get_logger", "logger_initialized", "print_log"]


logger_initialized: dict[str, bool] = {}
"""The configured loggers. :func:`get_logger` adds no handlers to a name with such a prefix."""


def get_logger(
    name: str, log_file: str | None = None, log_level: int = logging.INFO, file_mode: str = "w"
) -> logging.Logger:
    """Return a logger by name, configured at the first call with a console and a file handler.

    A child of a configured logger (``mmdet.models`` of ``mmdet``) gets no handlers. Ranks other
    than 0 log errors only, and not to the file.

    Args:
        name: The name.
        log_file: An additional file for the log.
        log_level: The minimum level.
        file_mode: The mode to open the file.
    """
    logger = logging.getLogger(name)
    if any(name.startswith(other) for other in logger_initialized):
        return logger
    for handler in logging.root.handlers:
        if type(handler) is logging.StreamHandler:
            handler.setLevel(logging.ERROR)  # otherwise each line would be printed twice
    rank, _ = get_dist_info()
    handlers: list[logging.Handler] = [logging.StreamHandler()]
    if rank == 0 and log_file is not None:
        handlers.append(logging.FileHandler(log_file, file_mode))
    for handler in handlers:
        handler.setFormatter(
            logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s")
        )
        handler.setLevel(log_level)
        logger.addHandler(handler)
    logger.setLevel(log_level if rank == 0 else logging.ERROR)
    logger_initialized[name] = True
    return logger


def print_log(
    msg: str, logger: logging.Logger | str | Any | None = None, level: int = logging.INFO
) -> None:
    """Log a message.

    Args:
        msg: The message.
        logger: A logger, its name, ``"silent"`` to discard the message, or None to print.
        level: The level.
    """
    if logger is None:
        print(msg)
    elif isinstance(logger, logging.Logger):
        logger.log(level, msg)
    elif not isinstance(logger, str):
        raise TypeError(f'logger must be a Logger, a name, "silent" or None, got {shown(logger)}')
    elif logger != "silent":
        get_logger(logger).log(level, msg)
