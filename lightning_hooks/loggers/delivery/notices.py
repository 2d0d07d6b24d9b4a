"""``Notices``: the messages of a tracker to its user."""

from __future__ import annotations

import logging

from lightning_hooks.utils.secrets import describe

__all__ = ["Notices"]


class Notices:
    """Logs messages about a backend: the first problem as a warning, all others as information.

    Args:
        logger: The logger of the run.
        owner: The name at the beginning of each message.
        backend: The name of the backend.
    """

    def __init__(self, logger: logging.Logger, owner: str, backend: str) -> None:
        self.backend = backend
        self._logger, self._owner = logger, owner
        self._has_warned = False

    def log(self, level: int, text: str) -> None:
        """Log a message."""
        self._logger.log(level, "%s: %s", self._owner, text)

    def warn(self, text: str) -> None:
        """Log a problem."""
        self.log(logging.INFO if self._has_warned else logging.WARNING, text)
        self._has_warned = True

    def failed(self, action: str, error: Exception, *, is_final: bool = True) -> None:
        """Log a failed action.

        Args:
            action: A participle such as ``"closed"``.
            error: The error.
            is_final: Whether the action is not tried again.
        """
        problem = f"{self.backend} cannot be {action} ({describe(error)})"
        text = f"{problem}; training goes on without it"
        self.warn(text if is_final else f"{text}, and it is tried again")
