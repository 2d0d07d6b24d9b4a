"""The settings of a run, for people to read."""

from __future__ import annotations

import importlib.metadata
from typing import Any

from lightning_hooks import __version__
from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.utils.plain_types import plain, without_secrets

__all__ = ["config_of"]

TRAINER = ("max_epochs", "max_steps", "accumulate_grad_batches", "precision")


def config_of(runner: Any) -> dict[str, Any]:
    """Return hyper-parameters, hooks, the Trainer's settings and versions, without secrets."""
    hooks = [
        {"type": type(hook).__name__, **(hook.state_arguments() if isinstance(hook, Hook) else {})}
        for hook in runner.hooks
    ]
    versions = {name: importlib.metadata.version(name) for name in ("torch", "lightning")}
    found = {
        "hyper_parameters": logged_values.hyper_parameters(runner.module),
        "trainer": {name: getattr(runner.trainer, name) for name in TRAINER},
        "hooks": hooks,
        "versions": {**versions, "lightning_hooks": __version__},
    }
    clean: dict[str, Any] = without_secrets(plain(found))
    return clean
