"""Pictures with matplotlib, an optional package."""

from __future__ import annotations

from typing import Any

__all__ = ["new_figure"]


def new_figure(width: float, height: float) -> Any:
    """Return an empty figure of matplotlib, with sizes in inches.

    Raises:
        ModuleNotFoundError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plot needs matplotlib: pip install matplotlib", name="matplotlib"
        ) from error
    return Figure(figsize=(width, height), layout="constrained")
