"""mmcv's runners, all registered."""

from lightning_hooks.standin.runner.builders import RUNNERS as RUNNERS
from lightning_hooks.standin.runner.builders import build_runner as build_runner
from lightning_hooks.standin.runner.epoch_based_runner import EpochBasedRunner as EpochBasedRunner
from lightning_hooks.standin.runner.epoch_based_runner import Runner as Runner
from lightning_hooks.standin.runner.iter_based_runner import IterBasedRunner as IterBasedRunner
from lightning_hooks.standin.runner.iter_based_runner import IterLoader as IterLoader

__all__ = [
    "RUNNERS",
    "EpochBasedRunner",
    "IterBasedRunner",
    "IterLoader",
    "Runner",
    "build_runner",
]
