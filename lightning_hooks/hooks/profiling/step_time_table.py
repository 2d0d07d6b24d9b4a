"""What a step-time breakdown says: the numbers of all ranks, and the table."""

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
    """Return one rank's numbers with what they mean, and the maximum and mean over the ranks.

    Args:
        own: ``iterations``; ``phases``, the seconds of each; ``host``, the same by the host's clock
            where ``phases`` is by a GPU's, else empty; ``hooks``, for each its ``phase``,
            ``calls`` and ``total`` seconds.
        ranks: Those of all ranks, its own among them.

    >>> row = {"iterations": 4, "phases": {"data": 1.0, "forward": 3.0}, "host": {}, "hooks": {}}
    >>> other = {**row, "phases": {"data": 2.0, "forward": 2.0}}
    >>> across_ranks(row, [row, other])["phases"]["data"]
    {'total': 1.0, 'per_iter': 0.25, 'share': 0.25, 'max': 2.0, 'mean': 1.5}
    """
    whole = sum(own["phases"].values())
    phases = {}
    for phase in PHASES:
        if any(phase in rank["phases"] for rank in ranks):
            row = _row(own["phases"].get(phase, 0.0), whole, own["iterations"])
            row.update(_over([rank["phases"].get(phase, 0.0) for rank in ranks]))
            if own["host"]:
                row["host"] = own["host"].get(phase, 0.0)
            phases[phase] = row
    hooks = {}
    spent = sum(own["host"].values()) if own["host"] else whole
    for name, hook in own["hooks"].items():
        row = _row(hook["total"], spent, own["iterations"])
        totals = [rank["hooks"].get(name, {}).get("total", 0.0) for rank in ranks]
        hooks[name] = {"phase": hook["phase"], "calls": hook["calls"], **row, **_over(totals)}
    return {
        "iterations": own["iterations"],
        "seconds": whole,
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


def _over(totals: Sequence[float]) -> dict[str, float]:
    return {"max": max(totals), "mean": sum(totals) / len(totals)}


def tables(summary: Mapping[str, Any]) -> list[Any]:
    """Return rich's tables of a summary: the phases, and the hooks if there are any."""
    from rich.table import Table

    title = f"{summary['iterations']} iterations in {summary['seconds']:.2f} s"
    columns = ["total s", "ms / iter", "share"]
    columns += ["max s", "mean s"] if summary["ranks"] > 1 else []
    found = []
    for what, rows in (("phase", summary["phases"]), ("hook", summary["hooks"])):
        if not rows:
            continue
        table = Table(title=title if what == "phase" else None, title_justify="left")
        table.add_column(what)
        hosted = what == "phase" and any("host" in row for row in rows.values())
        more = ["host s"] if hosted else [] if what == "phase" else ["calls", "phase"]
        for column in [*columns, *more]:
            table.add_column(column, justify="left" if column == "phase" else "right")
        for name, row in rows.items():
            cells = [f"{row['total']:.3f}", f"{1e3 * row['per_iter']:.3f}", f"{row['share']:.1%}"]
            if summary["ranks"] > 1:
                cells += [f"{row['max']:.3f}", f"{row['mean']:.3f}"]
            if what == "hook":
                cells += [str(row["calls"]), row["phase"]]
            elif hosted:
                cells += [f"{row['host']:.3f}"]
            table.add_row(name, *cells)
        found.append(table)
    return found
