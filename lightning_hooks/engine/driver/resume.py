"""What the driver writes into every checkpoint of Lightning's, and takes from it."""

from __future__ import annotations

import re
from typing import Any

import torch

from lightning_hooks.engine.driver.train_data import generators_of
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.runner import mmcv_checkpoint
from lightning_hooks.engine.runner.epoch_runner import EpochRunner
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import files, manifest
from lightning_hooks.utils import random_state

__all__ = ["KEY", "ResumeState", "write"]

KEY = "lightning_hooks"


def write(checkpoint: dict[str, Any], runner: Runner, *, in_epoch: bool, alone: bool) -> None:
    """Add mmcv's ``meta`` and our own entry to a checkpoint, of types that any loader reads.

    =============  =======================================================================
    key            value
    =============  =======================================================================
    iter           training iterations done
    in_epoch       whether ``before_train_epoch`` has no ``after_train_epoch`` yet
    run            the run's name
    last_val_iter  iterations done at the last validation, where the run is counted in them
    rng            the random state of every rank
    data           states of the training loaders' own generators
    timestamp      the run's name in the names of its files
    log_buffer     the values of steps that are still to be averaged
    text_logs      how far the text logs have come (:mod:`lightning_hooks.loggers.text`)
    buffers        what hooks have added to the model
    (:mod:`lightning_hooks.engine.driver.hook_buffers`)
    =============  =======================================================================

    Args:
        checkpoint: Lightning's dict, changed.
        runner: Where the run stands.
        in_epoch: See above.
        alone: Do without the other ranks, after an error on this one.
    """
    done = runner.iter + progress.batch_is_open(runner.trainer)
    closed = isinstance(runner, EpochRunner) and not in_epoch
    meta = mmcv_checkpoint.run_meta(runner)
    meta.update(epoch=runner.epoch + (not closed), iter=done)
    checkpoint["meta"] = meta
    if "optimizer_states" in checkpoint:
        checkpoint["optimizer_states"] = [*map(files.plain_groups, checkpoint["optimizer_states"])]
    states: list[Any] = [random_state.get_rng_state()]
    if runner.world_size > 1 and not alone:
        states = [None] * runner.world_size
        torch.distributed.all_gather_object(states, random_state.get_rng_state())
    generators = [g for x in data.train_loaders(runner.trainer) for g in generators_of(x)]
    checkpoint[KEY] = {
        "iter": done,
        "in_epoch": in_epoch,
        "run": runner.run_id,
        "timestamp": runner.timestamp,
        "log_buffer": runner.log_buffer.state_dict(),
        "last_val_iter": getattr(runner, "last_val_iter", 0),
        "rng": states,
        "data": [g.get_state() for g in generators],
    }


class ResumeState:
    """What a checkpoint said, until the run has taken it."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = None
        self.meta: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return self.state is not None

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Keep what concerns us; the counters and optimizers are not there yet."""
        self.state = checkpoint.get(KEY)
        self.meta = dict(checkpoint.get("meta") or {})

    def run(self, default: str) -> str:
        """Return the run's name, unless it is none of ours: files are known by it."""
        found = (self.state or {}).get("run")
        return str(found) if manifest.is_run(found) else default

    def timestamp(self, default: str) -> str:
        """Return the run's, unless it is none that a file's name may begin with."""
        found = (self.state or {}).get("timestamp")
        is_name = isinstance(found, str) and re.fullmatch(r"\w[\w.-]*", found)
        return str(found) if is_name else default

    def restore_log_buffer(self, runner: Runner) -> None:
        """Put back what was still to be averaged."""
        found = (self.state or {}).get("log_buffer")
        if found:
            runner.log_buffer.load_state_dict(found)

    def restore_rng(self, rank: int) -> None:
        """Put this rank's random state back; with other ranks than before, nothing is."""
        states = (self.state or {}).get("rng", [])
        if rank < len(states):
            random_state.set_rng_state(states[rank])

    def restore_generators(self, runner: Runner) -> None:
        """Put the states of the loaders' own generators back."""
        generators = [g for x in data.train_loaders(runner.trainer) for g in generators_of(x)]
        for generator, state in zip(generators, (self.state or {}).get("data", []), strict=False):
            generator.set_state(state)
