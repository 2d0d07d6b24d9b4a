"""``torch.load`` of old files: since torch 2.6 it refuses what is more than weights."""

from __future__ import annotations

import functools
import os
import pickle
from typing import Any

import torch

from lightning_hooks.standin.utils.notice import notice

__all__ = ["offer_old_files"]


def offer_old_files() -> None:
    """Let ``torch.load`` read a file with other objects, as before torch 2.6.

    A call with ``weights_only`` is left as it is, and so is a file that can be read safely.
    ``TORCH_FORCE_WEIGHTS_ONLY_LOAD=1`` keeps torch's refusal.
    """
    original: Any = torch.load
    if getattr(original, "reads_old_files", False):
        return

    @functools.wraps(original)
    def load(f: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("weights_only") is not None or _is_forced():
            return original(f, *args, **kwargs)
        start = f.tell() if hasattr(f, "tell") else None
        try:
            return original(f, *args, **kwargs)
        except (pickle.UnpicklingError, RuntimeError) as error:
            if "weights_only" not in str(error):
                raise
        name = getattr(f, "name", f) if start is not None else os.fspath(f)
        notice(
            f"{name} holds more than weights: it is read as before torch 2.6, which can run code "
            "in it; TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 refuses it"
        )
        if start is not None:
            f.seek(start)
        return original(f, *args, **{**kwargs, "weights_only": False})

    load.reads_old_files = True  # type: ignore[attr-defined]
    torch.load = load


def _is_forced() -> bool:
    return os.environ.get("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "0").lower() in ("1", "y", "yes", "true")
