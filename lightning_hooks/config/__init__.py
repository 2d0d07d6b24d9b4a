"""Make hooks from mmcv's training configs: from single dicts, or from a whole config file."""

from lightning_hooks.config.full_config import from_file, hooks_from_config
from lightning_hooks.config.training_hooks import register_training_hooks

__all__ = ["from_file", "hooks_from_config", "register_training_hooks"]
