"""Give every Trainer the hooks of the config file in ``LIGHTNING_HOOKS_CONFIG``.

A new Trainer calls the entry points ``lightning.pytorch.callbacks_factory`` of all installed
packages, among them :func:`callbacks_from_environment`. Without the variable the function imports
nothing.
"""

from __future__ import annotations

import os
from typing import Any

__all__ = ["VARIABLE", "callbacks_from_environment"]

VARIABLE = "LIGHTNING_HOOKS_CONFIG"
"""The environment variable with the path of a config; unset or empty for none."""


def callbacks_from_environment() -> list[Any]:
    """Return an adapter with the hooks of the config, in a list; an empty list without a config.

    Raises:
        Exception: from :func:`~lightning_hooks.config.full_config.hooks_from_config`, with a note
            on the variable.
    """
    path = os.environ.get(VARIABLE)
    if not path:
        return []
    from lightning_hooks.config.full_config import hooks_from_config
    from lightning_hooks.utils.notes import add_note

    try:
        return [hooks_from_config(path)]
    except Exception as error:
        note = f"in the hooks of {VARIABLE}={path}: correct the file, or unset the variable"
        add_note(error, note)
        raise
