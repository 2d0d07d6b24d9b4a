"""The summary of a step-time breakdown over all ranks, and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PHASES", "across_ranks", "tables"]

PHASES = (
    "data",
    "forward",
    "backward",
    "optimizer",
    "hooks",
    "logging",
    "evaluation",
    "checkpoint",
    "other",
)
"""The phases, in the order of the table."""


def across_ranks(own: Mapping[str, Any], ranks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one rank's numbers with their shares, and their maximum and mean over the ranks.

    Args:
        own: ``iterations``; ``phases``, the seconds of each; ``host``, the same by the host's clock
            where ``phases`` are a GPU's, else empty; ``hooks``, for each its ``phase``,
            ``calls`` and ``total`` seconds.
        ranks: The same of all ranks, its own included.

    >>> row = {"iterations": 4, "phases": {"data": 1.0, "forward": 3.0}, "host": {}, "hooks": {}}
    >>> other = {**row, "phases": {"data": 2.0, "forward": 2.0}}
    >>> across_ranks(row, [row, other])["phases"]["data"]
    {'total': 1.0, 'per_iter': 0.25, 'share': 0.25, 'max': 2.0, 'mean': 1.5}
    """
    seconds = sum(own["phases"].values())
    phases = {}
    for phase in PHASES:
        if any(phase in rank["phases"] for rank in ranks):
            row = _row(own["phases"].get(phase, 0.0), seconds, own["iterations"])
            row.update(_over_ranks([rank["phases"].get(phase, 0.0) for rank in ranks]))
            if own["host"]:
                row["host"] = own["host"].get(phase, 0.0)
            phases[phase] = row
    hooks = {}
    spent = sum(own["host"].values()) if own["host"] else seconds
    for name, hook in own["hooks"].items():
        row = _row(hook["total"], spent, own["iterations"])
        totals = [rank["hooks"].get(name, {}).get("total", 0.0) for rank in ranks]
        hooks[name] = {"phase": hook["phase"], "calls": hook["calls"], **row, **_over_ranks(totals)}
    return {
        "iterations": own["iterations"],
        "seconds": seconds,
        "ranks": len(ranks),
        "phases": phases,
        "hooks": dict(sorted(hooks.items(), key=lambda item: -item[1]["total"])),
    }


def _row(total: float, whole: float, iterations: int) -> dict[str, Any]:
    return {
        "total": total,
        "per_iter": total / iterations if iterations else 0.0,
        "share": total / whole if whole else 0.0,
    }


def _over_ranks(totals: Sequence[float]) -> dict[str, float]:
    return {"max": max(totals), "mean": sum(totals) / len(totals)}


def tables(summary: Mapping[str, Any]) -> list[Any]:
    """Return rich's tables of a summary: the phases, and the hooks if there are any."""
    from rich.table import Table

    over_ranks = ["max s", "mean s"] if summary["ranks"] > 1 else []
    found = []
    for kind, rows in (("phase", summary["phases"]), ("hook", summary["hooks"])):
        if not rows:
            continue
        columns = ["total s", "ms / iter", "share", *over_ranks]
        if kind == "hook":
            columns += ["calls", "phase"]
        elif any("host" in row for row in rows.values()):
            columns += ["host s"]
        table = Table(title_justify="left")
        table.add_column(kind)
        for column in columns:
            table.add_column(column, justify="left" if column == "phase" else "right")
        for name, row in rows.items():
            cells = {
                "total s": f"{row['total']:.3f}",
                "ms / iter": f"{1e3 * row['per_iter']:.3f}",
                "share": f"{row['share']:.1%}",
                "max s": f"{row['max']:.3f}",
                "mean s": f"{row['mean']:.3f}",
                "host s": f"{row.get('host', 0.0):.3f}",
                "calls": str(row.get("calls")),
                "phase": row.get("phase"),
            }
            table.add_row(name, *(cells[column] for column in columns))
        found.append(table)
    if found:
        found[0].title = f"{summary['iterations']} iterations in {summary['seconds']:.2f} s"
    return found
