"""The former place of :class:`~lightning_hooks.hooks.saving.lightning.BestFields`."""

from lightning_hooks.hooks.saving.lightning import BestFields

__all__ = ["BestFields"]
