"""``lightning-hooks hooks``: list all hooks with a short description."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any

from lightning_hooks.config.hook_dicts import EVALUATIONS
from lightning_hooks.engine.registry import HOOKS, MMCV_HOOKS

__all__ = ["all_hooks", "table_of"]


def all_hooks() -> list[dict[str, str]]:
    """Return the name, the origin and the first sentence of the docstring of every hook.

    >>> {hook["name"]: hook["origin"] for hook in all_hooks()}["IterTimerHook"]
    'mmcv'
    """
    classes = {**HOOKS.module_dict, **EVALUATIONS}
    return [
        {
            "name": name,
            "origin": "mmcv" if name in MMCV_HOOKS or name in EVALUATIONS else "beyond mmcv",
            "what": _summary(cls),
        }
        for name, cls in sorted(classes.items())
    ]


def _summary(cls: type) -> str:
    """Return the first sentence of a class's docstring without reStructuredText markup.

    >>> from lightning_hooks import StepLrUpdaterHook
    >>> _summary(StepLrUpdaterHook)
    'Decays the rate at milestones.'
    """
    sentence = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    sentence = re.sub(r": :\w+:`[^`]*`\.$", ".", sentence)  # the name of a formula at the end
    return re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"\1", sentence).replace("`", "")


def table_of(rows: Sequence[dict[str, str]]) -> Any:
    """Return the hooks as a table for rich."""
    from rich.table import Table

    table = Table("hook", "of", "what it does")
    for row in rows:
        table.add_row(row["name"], row["origin"], row["what"])
    return table
