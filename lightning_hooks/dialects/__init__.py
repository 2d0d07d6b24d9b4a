"""The hook dialects: which points a hook has, and how they are called."""

from lightning_hooks.dialects.detect import detect as detect

__all__ = ["detect"]
