"""The model card of a checkpoint: a README.md from what a run has measured and was made of."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["MARK", "Card", "draw_curves", "model_card"]

MARK = "<!-- written by lightning_hooks; delete this line to keep the text as it is -->"
"""A card without this line is a person's, and is not replaced."""

History = Mapping[int, Mapping[str, float]]
"""Values by name, by the iterations done."""

MOST_PANELS = 12


class Card(NamedTuple):
    """The contents of a card."""

    repo_id: str
    file: str
    """The name of the checkpoint in the repository."""
    caption: str
    """A sentence on the checkpoint."""
    metrics: Mapping[str, float]
    module: str
    """The name of the LightningModule's class."""
    config: Mapping[str, Any]
    """The settings of the run, in types that JSON has."""


def model_card(card: Card, picture: str | None = None) -> str:
    """Return the text of a model card.

    Args:
        card: Its contents.
        picture: The name of a picture of curves, if there is one.

    >>> card = Card("me/digits", "best.pth", "The best.", {"acc": 0.98}, "Net", {})
    >>> "| `acc` | 0.98 |" in model_card(card).splitlines()
    True
    """
    parts = [
        "---\nlibrary_name: lightning\ntags:\n- lightning_hooks\n---",
        MARK,
        f"# {card.repo_id.rpartition('/')[2]}",
        card.caption,
    ]
    if card.metrics:
        rows = [
            f"| `{_cell(name)}` | {value:.6g} |" for name, value in sorted(card.metrics.items())
        ]
        parts.append("\n".join(["| metric | value |", "|---|---|", *rows]))
    if picture is not None:
        parts.append(f"![curves]({picture})")
    parts += [
        "## Use",
        "```python\nfrom huggingface_hub import hf_hub_download\n\n"
        f'path = hf_hub_download("{card.repo_id}", "{card.file}")\n'
        f"model = {card.module}.load_from_checkpoint(path)\n```",
        "## Configuration",
        f"```json\n{json.dumps(card.config, indent=2, default=str)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def draw_curves(history: History, path: str) -> bool:
    """Draw each value over the iterations; return False if nothing can be drawn.

    Args:
        history: The values.
        path: The picture.
    """
    names = sorted({name for values in history.values() for name in values})[:MOST_PANELS]
    if not names or len(history) < 2 or importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.figure import Figure  # not pyplot, which belongs to the main thread

    columns = min(len(names), 3)
    rows = math.ceil(len(names) / columns)
    figure = Figure(figsize=(3.2 * columns, 2.4 * rows), layout="constrained")
    for place, name in enumerate(names, 1):
        points = [
            (done, values[name]) for done, values in sorted(history.items()) if name in values
        ]
        axes = figure.add_subplot(rows, columns, place)
        axes.plot(*zip(*points, strict=True), marker=".")
        axes.set_title(name, fontsize=9)
        axes.set_xlabel("iteration", fontsize=8)
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=100)
    return True


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
