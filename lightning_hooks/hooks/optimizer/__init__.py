"""Hooks that step the optimizer: gradient clipping, accumulation and half precision."""
