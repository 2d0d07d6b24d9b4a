"""Your mmcv hooks, as Lightning callbacks; your old hook files, unchanged."""

from lightning_hooks.adapter import HookAdapter as HookAdapter
from lightning_hooks.hook import Hook as Hook
from lightning_hooks.hooks.iter_timer import IterTimerHook as IterTimerHook
from lightning_hooks.log_buffer import LogBuffer as LogBuffer
from lightning_hooks.priority import Priority as Priority
from lightning_hooks.registry import HOOKS as HOOKS
from lightning_hooks.runner import Runner as Runner
from lightning_hooks.train_step import TrainStepModule as TrainStepModule

__version__ = "0.1.0"
