"""Runners by name: ``build_runner(dict(type="EpochBasedRunner", max_epochs=12), ...)``."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from lightning_hooks.standin.utils.registry import Registry

__all__ = [
    "RUNNERS",
    "RUNNER_BUILDERS",
    "DefaultRunnerConstructor",
    "build_runner",
    "build_runner_constructor",
]

RUNNERS = Registry("runner", scope="mmcv")
RUNNER_BUILDERS = Registry("runner builder", scope="mmcv")


@RUNNER_BUILDERS.register_module()
class DefaultRunnerConstructor:
    """Make a runner from its config.

    Args:
        runner_cfg: The config.
        default_args: Defaults for keys missing from the config.
    """

    def __init__(
        self, runner_cfg: dict[str, Any], default_args: dict[str, Any] | None = None
    ) -> None:
        if not isinstance(runner_cfg, dict):
            raise TypeError(f"runner_cfg must be a dict, got {runner_cfg!r}")
        self.runner_cfg = runner_cfg
        self.default_args = default_args

    def __call__(self) -> Any:
        """Return the runner."""
        return RUNNERS.build(self.runner_cfg, default_args=self.default_args)


build_runner_constructor = RUNNER_BUILDERS.build
"""Build a constructor of runners."""


def build_runner(cfg: Mapping[str, Any], default_args: Mapping[str, Any] | None = None) -> Any:
    """Build a runner.

    Args:
        cfg: ``dict(type="EpochBasedRunner", max_epochs=12)``, optionally with ``constructor``.
        default_args: ``dict(model=..., optimizer=..., work_dir=..., logger=..., meta=...)``.
    """
    runner_cfg = copy.deepcopy(dict(cfg))
    kind = runner_cfg.pop("constructor", "DefaultRunnerConstructor")
    constructor = {"type": kind, "runner_cfg": runner_cfg, "default_args": default_args}
    return build_runner_constructor(constructor)()
