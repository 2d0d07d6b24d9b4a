"""Warn with the user's line: the call of ``fit``, or of a hook's constructor."""

from __future__ import annotations

import inspect
import warnings
from types import FrameType

from lightning_hooks.utils.printable import printable
from lightning_hooks.utils.secrets import without_user

__all__ = ["rank_zero_warn", "warn"]

NOT_OF_USERS = {
    *("contextlib", "functools", "lightning", "lightning_fabric", "lightning_hooks"),
    *("lightning_utilities", "pytorch_lightning", "threading", "torch"),
}
"""Packages between the user's line and a warning."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, with the innermost line outside of this package, Lightning and torch.

    No user of a URL is shown.
    """
    frame = _users_frame()
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    name = frame.f_globals.get("__name__")
    file, line = frame.f_code.co_filename, frame.f_lineno
    warnings.warn_explicit(printable(without_user(message)), category, file, line, name, registry)


def rank_zero_warn(message: str) -> None:
    """Warn on the first rank, with the user's line."""
    from lightning.fabric.utilities import rank_zero_only  # Lightning sets its rank

    rank_zero_only(warn)(message)


def _users_frame() -> FrameType:
    """Return the user's frame; the outermost frame where there is none, as in a thread."""
    frame = inspect.currentframe()
    assert frame is not None
    while frame.f_back is not None:
        frame = frame.f_back
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in NOT_OF_USERS:
            break
    return frame
