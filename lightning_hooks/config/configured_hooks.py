"""``ConfiguredHooks``: the adapter with the hooks of a config, and its Trainer arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.adapter import HookAdapter
from lightning_hooks.config.hook_dicts import Item, note_key
from lightning_hooks.config.trainer_args import DEFAULTS, ignored_arguments
from lightning_hooks.engine.registry import HOOKS, build_with_order

__all__ = ["ConfiguredHooks"]


class ConfiguredHooks(HookAdapter):
    """Hosts the hooks of a config, and warns if the Trainer ignores the rest of it.

    Args:
        configs: The hooks, in the order of registration.
        settings: Further arguments of :class:`~lightning_hooks.adapter.HookAdapter`.
    """

    state_key = "HookAdapter"
    """The key of the adapter's state in a checkpoint, from a config or not."""

    trainer_kwargs: Mapping[str, Any] = {}
    """Arguments of the Trainer that belong to the hooks."""

    def __init__(self, configs: Sequence[Item], **settings: Any) -> None:
        super().__init__(**settings)
        self.configs: list[tuple[Any, Any]] = []
        """Each hook's complete config dict and priority."""
        self.registered: list[Any] = []
        """The hooks that ``configs`` became."""
        try:
            for item in configs:
                hook, priority = item.hook, item.priority
                self.configs.append((hook, priority))
                if isinstance(hook, Mapping):
                    hook, priority = build_with_order(HOOKS, hook, priority)
                self.register_hook(hook, priority)
                self.registered.append(hook)
        except Exception as error:
            note_key(error, item.key)
            raise

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if the Trainer has its defaults where the config sets something else."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        actual = {name: getattr(trainer, name) for name in DEFAULTS}
        ignored = ignored_arguments(
            self.trainer_kwargs, actual, validates=trainer.enable_validation
        )
        if ignored:
            wanted = ", ".join(f"{name}={self.trainer_kwargs[name]!r}" for name in ignored)
            default = ", ".join(f"{name}={actual[name]!r}" for name in ignored)
            rank_zero_warn(
                f"the hooks' config sets {wanted}, but the Trainer has its defaults, {default}: "
                "give it these, as Trainer(callbacks=[hooks], **hooks.trainer_kwargs) does, or "
                "values of your own"
            )
