"""Curves and tables for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["panel", "shown", "table"]


def shown(value: Any) -> str:
    """Return a value as the cell of a table."""
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Any:
    """Return a table for rich."""
    from rich.markup import escape
    from rich.table import Table

    whole = Table(*head)
    for row in rows:
        whole.add_row(*map(escape, row))
    return whole


def panel(
    title: str, unit: str, width: int, height: int, curves: Sequence[tuple[Any, Any, str, Any]]
) -> str:
    """Return curves drawn with characters, each given as positions, values, marker and label."""
    import plotext

    if not hasattr(plotext, "clear_figure"):
        raise ImportError("curves in the terminal need an earlier plotext: pip install 'plotext<6'")
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plot_size(width, height)
    for positions, values, marker, label in curves:
        plotext.plot(positions, values, marker=marker, label=label)
    plotext.title(title)
    plotext.xlabel(unit)
    return str(plotext.uncolorize(plotext.build()))
