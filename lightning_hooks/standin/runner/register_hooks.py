"""Register hooks on mmcv's runners: from configs, at the priority of each family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.engine.registry import build_with_order
from lightning_hooks.standin._hooks.registry import HOOKS

__all__ = ["HookRegistration"]

TIMER = {"type": "IterTimerHook"}


class HookRegistration:
    """Mixin with the ``register_*`` methods of mmcv's runners: for a config, a hook or None."""

    def register_hook(self, hook: Any, priority: Any = "NORMAL") -> None:
        """Add a hook by priority."""
        raise NotImplementedError

    def register_hook_from_cfg(self, hook_cfg: Mapping[str, Any]) -> None:
        """Add a hook by ``dict(type=..., priority=...)``."""
        self._register(hook_cfg, "NORMAL")

    def register_lr_hook(self, lr_config: Any) -> None:
        """Add a learning rate policy: ``dict(policy="step", step=[8, 11])``."""
        self._register(_policy(lr_config, "LrUpdaterHook"), "VERY_HIGH")

    def register_momentum_hook(self, momentum_config: Any) -> None:
        """Add a momentum policy."""
        self._register(_policy(momentum_config, "MomentumUpdaterHook"), "HIGH")

    def register_optimizer_hook(self, optimizer_config: Any) -> None:
        """Add the hook that runs backward and step."""
        self._register(optimizer_config, "ABOVE_NORMAL", type="OptimizerHook")

    def register_checkpoint_hook(self, checkpoint_config: Any) -> None:
        """Add the hook that writes checkpoints."""
        self._register(checkpoint_config, "NORMAL", type="CheckpointHook")

    def register_logger_hooks(self, log_config: Mapping[str, Any] | None) -> None:
        """Add loggers: ``dict(interval=50, hooks=[dict(type="TextLoggerHook")])``."""
        if log_config is not None:
            for config in log_config["hooks"]:
                self._register(config, "VERY_LOW", interval=log_config["interval"])

    def register_timer_hook(self, timer_config: Any) -> None:
        """Add the timer hook."""
        self._register(timer_config, "LOW")

    def register_profiler_hook(self, profiler_config: Any) -> None:
        """Add the profiler hook."""
        self._register(profiler_config, "NORMAL", type="ProfilerHook")

    def register_custom_hooks(self, custom_config: Any) -> None:
        """Add the project's own hooks: configs, optionally with ``priority``, or objects."""
        several = custom_config if isinstance(custom_config, list) else [custom_config]
        for item in several:
            self._register(item, "NORMAL")

    def register_training_hooks(
        self,
        lr_config: Any,
        optimizer_config: Any = None,
        checkpoint_config: Any = None,
        log_config: Mapping[str, Any] | None = None,
        momentum_config: Any = None,
        timer_config: Any = TIMER,
        custom_hooks_config: Any = None,
    ) -> None:
        """Add the hooks of a training config, each with its ``register_*`` method."""
        self.register_lr_hook(lr_config)
        self.register_momentum_hook(momentum_config)
        self.register_optimizer_hook(optimizer_config)
        self.register_checkpoint_hook(checkpoint_config)
        self.register_timer_hook(timer_config)
        self.register_logger_hooks(log_config)
        self.register_custom_hooks(custom_hooks_config)

    def _register(self, config: Any, priority: Any, **default: Any) -> None:
        if config is None:
            return
        hook = config
        if isinstance(config, Mapping):
            hook, priority = build_with_order(HOOKS, {**default, **config}, priority)
        self.register_hook(hook, priority)


def _policy(config: Any, family: str) -> Any:
    """Return a config with the hook's type, matched ignoring case, in place of ``policy``."""
    if not isinstance(config, Mapping) or "type" in config:
        return config
    if "policy" not in config:
        raise AssertionError(f'a config of a {family} needs the key "policy", got {dict(config)}')
    wanted = f"{config['policy']}{family}"
    names = {name.lower(): name for name in HOOKS.module_dict}
    rest = {key: value for key, value in config.items() if key != "policy"}
    return {"type": names.get(wanted.lower(), wanted), **rest}
