"""Hooks that evaluate the model at intervals and keep the best checkpoints."""
