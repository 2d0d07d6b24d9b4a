"""``RunnerFacade`` under its earlier import path."""

from __future__ import annotations

from lightning_hooks.dialects.mmengine.runner_facade import RunnerFacade as RunnerFacade

__all__ = ["RunnerFacade"]
