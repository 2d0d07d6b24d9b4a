"""Hooks from mmcv's training configs: from their dicts, or from a whole config file."""

from lightning_hooks.config.full_config import from_file as from_file
from lightning_hooks.config.full_config import hooks_from_config as hooks_from_config
from lightning_hooks.config.training_hooks import (
    register_training_hooks as register_training_hooks,
)
