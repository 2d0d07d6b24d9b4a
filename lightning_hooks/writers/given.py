"""A run that is there already: of a client, or inside a Lightning ``Logger``."""

from __future__ import annotations

from typing import Any

__all__ = ["check_run", "experiment", "is_lightning_logger"]


def is_lightning_logger(run: Any) -> bool:
    """Whether it is one of Lightning's loggers, of either of its two packages."""
    return any(
        base.__name__ == "Logger" and base.__module__.endswith("loggers.logger")
        for base in type(run).__mro__
    )


def check_run(run: Any, attribute: str, user: str) -> Any:
    """Return ``run`` if it can be one; nothing is connected.

    Args:
        run: None, a client's run, or a Lightning ``Logger`` for the same backend.
        attribute: What a client's run has.
        user: Who asks.

    Raises:
        TypeError: if it is something else.
    """
    if run is None or hasattr(type(run), attribute) or hasattr(run, attribute):
        return run
    if is_lightning_logger(run) and hasattr(type(run), "experiment"):
        return run
    raise TypeError(f"run must be the client's run or a Lightning Logger for {user}, got {run!r}")


def experiment(run: Any) -> Any:
    """Return the client's run: what a Lightning ``Logger`` keeps as its experiment."""
    return run.experiment if is_lightning_logger(run) else run
