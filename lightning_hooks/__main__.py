"""Run ``lightning-hooks`` as ``python -m lightning_hooks``."""

from __future__ import annotations

from lightning_hooks.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
