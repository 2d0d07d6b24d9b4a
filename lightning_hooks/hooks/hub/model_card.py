"""Write a model card, a README.md for the Hub, from a run's metrics and settings."""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any

from lightning_hooks import __version__
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.secrets import masked

__all__ = ["MARK", "model_card", "settings_of"]

MARK = "<!-- written by lightning_hooks; delete this line to keep the text as it is -->"
"""A card without this line was written by a person and is not replaced."""

TRAINER = ("max_epochs", "max_steps", "accumulate_grad_batches", "precision")


def settings_of(runner: Runner) -> dict[str, Any]:
    """Return hyper-parameters, hooks, the Trainer's settings and versions, without secrets."""
    hooks = [
        {"type": type(hook).__name__, **(hook.state_arguments() if isinstance(hook, Hook) else {})}
        for hook in runner.hooks
    ]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "lightning")}
    settings: dict[str, Any] = {
        "hyper_parameters": logged_values.hyper_parameters(runner.module),
        "trainer": {name: getattr(runner.trainer, name) for name in TRAINER},
        "hooks": hooks,
        "versions": {**versions, "lightning_hooks": __version__},
    }
    return dict(masked(plain(settings)))


def model_card(
    repo_id: str,
    file: str,
    caption: str,
    metrics: Mapping[str, float],
    module: str,
    settings: Mapping[str, Any],
) -> str:
    """Return the text of a model card.

    Args:
        repo_id: The repository, ``"user/name"``.
        file: The name of the checkpoint in the repository.
        caption: A phrase on the checkpoint, as "best checkpoint, after epoch 3".
        metrics: The values of the metrics when the checkpoint was written.
        module: The name of the LightningModule's class.
        settings: The settings of the run, in types that JSON has.

    >>> card = model_card("me/digits", "best.pth", "best checkpoint", {"acc": 0.98}, "Net", {})
    >>> "| `acc` | 0.98 |" in card.splitlines()
    True
    """
    parts = [
        "---\nlibrary_name: lightning\ntags:\n- lightning_hooks\n---",
        MARK,
        f"# {repo_id.rpartition('/')[2]}",
        f"`{file}` is the {caption}.",
    ]
    if metrics:
        rows = [f"| `{_cell(name)}` | {value:.6g} |" for name, value in sorted(metrics.items())]
        parts.append("\n".join(["| metric | value |", "|---|---|", *rows]))
    parts += [
        "## Use",
        "```python\nfrom huggingface_hub import hf_hub_download\n\n"
        f'path = hf_hub_download("{repo_id}", "{file}")\n'
        f"model = {module}.load_from_checkpoint(path)\n```",
        "## Configuration",
        f"```json\n{json.dumps(settings, indent=2, default=str)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'").replace("\n", " ")
