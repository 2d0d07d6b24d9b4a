"""The former place of :class:`~lightning_hooks.hooks.saving.lightning.SavingHook`."""

from lightning_hooks.hooks.saving.lightning import SavingHook as CheckpointWriter

__all__ = ["CheckpointWriter"]
