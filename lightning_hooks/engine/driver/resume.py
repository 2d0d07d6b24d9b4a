"""Write the state of a run into Lightning's checkpoints, and restore it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks.engine.driver.collect import hooks_of
from lightning_hooks.engine.driver.train_data import resume_warning
from lightning_hooks.engine.hook_states import (
    DIALECTS_KEY,
    Identity,
    adopt_states,
    has_no_owner,
    saved_identities,
)
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.weight_averaging import (
    has_average,
    restore_raw_weights,
)
from lightning_hooks.engine.participant import Participant
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import layout, manifest
from lightning_hooks.utils import random_state
from lightning_hooks.utils.plain_types import plain_groups
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["KEY", "ResumeState", "adopt", "entry_of", "write"]

KEY = layout.ENTRY
entry_of = layout.entry_of


def write(
    checkpoint: dict[str, Any],
    runner: Runner,
    hooks: Sequence[Any],
    *,
    in_epoch: bool,
    alone: bool,
) -> None:
    """Add mmcv's ``meta`` and this package's entry to a checkpoint, of plain types and tensors.

    =============  =======================================================================
    key            value
    =============  =======================================================================
    iter           training iterations done
    in_epoch       whether ``before_train_epoch`` has no ``after_train_epoch`` yet
    run            the run's name
    last_val_iter  iterations done at the last validation, in a run counted in iterations
    rng            the random state of every rank, and of the loaders' persistent workers
    data           states of the training loaders' own generators
    log_buffer     the values of steps not averaged yet
    text_logs      lengths of the text logs (:mod:`lightning_hooks.loggers.text`)
    trackers       the runs of trackers, by backend (:mod:`lightning_hooks.loggers.trackers.base`)
    buffers        buffers added to the model by hooks (see ``hook_buffers.py``)
    hooks          classes and arguments of hooks with a possible state (``hook_states.py``)
    averages       averages of the weights (:mod:`lightning_hooks.hooks.averaging.base`)
    =============  =======================================================================

    Args:
        checkpoint: Lightning's dict, changed.
        runner: Where the run stands.
        hooks: The hooks of the Trainer, in the order given.
        in_epoch: See above.
        alone: Whether this rank writes without the others, after an error.
    """
    trainer = runner.trainer
    closed = runner.counts_epochs and not in_epoch
    done, epoch = runner.iter, runner.epoch + (not closed)
    done += progress.batch_is_open(trainer)
    checkpoint["meta"] = runner.run_meta(epoch, done)
    if "optimizer_states" in checkpoint:
        checkpoint["optimizer_states"] = [*map(plain_groups, checkpoint["optimizer_states"])]
    generators, workers = data.random_states(trainer)
    rng = {**random_state.get_rng_state(), **({"workers": workers} if workers else {})}
    random_states: list[Any] = [rng]
    if trainer.world_size > 1 and not alone:
        random_states = [None] * trainer.world_size
        torch.distributed.all_gather_object(random_states, rng)
    checkpoint[KEY] = {
        "iter": done,
        "in_epoch": in_epoch,
        "run": runner.run_id,
        "log_buffer": runner.train_log.state_dict(),
        "last_val_iter": runner.last_val_iter,
        "rng": random_states,
        "data": generators,
        "hooks": saved_identities(hooks),
    }


def adopt(trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
    """Give each hook the hook's own state, and the module the raw weights to train on with.

    Warn about each saved state without a hook, and each hook without a saved state.

    Args:
        trainer: The Trainer, loading the checkpoint.
        checkpoint: Lightning's dict, changed.
    """
    entry = entry_of(checkpoint)
    hooks = hooks_of(trainer)
    warnings = adopt_states(checkpoint, entry.get("hooks", []), hooks)
    if trainer.state.fn != TrainerFn.FITTING:
        return
    # averages taken by a hook are gone by now; an average without tensors had not begun
    averages = [one for one in entry.pop("averages", ()) if one["state_dict"] != {}]
    is_of_lightning = restore_raw_weights(trainer, checkpoint) and not averages
    if has_average(checkpoint):  # a callback of Lightning's takes the average
        averages = [one for one in averages if one["state_dict"] is not None]
    left = [Identity(one["class"], one["arguments"]) for one in averages]
    left += [Identity("EMAWeightAveraging", {})] if is_of_lightning else []
    if all(isinstance(hook, Participant) for hook in hooks):  # else the adapter warns
        warnings += [has_no_owner("the state", one) for one in checkpoint.get(DIALECTS_KEY, ())]
    for warning in [*warnings, *(has_no_owner("the average", one) for one in left)]:
        rank_zero_warn(warning)


class ResumeState:
    """The driver's entry of a loaded checkpoint, until the run has restored the values."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None
        self._meta: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return self._state is not None

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Keep the entry; the counters and optimizers do not exist yet."""
        self._state = entry_of(checkpoint) or None
        self._meta = dict(checkpoint.get("meta") or {})

    def clear(self) -> None:
        """Forget the entry after the restore."""
        self._state, self._meta = None, {}

    @property
    def entry(self) -> dict[str, Any]:
        """The entry; empty without one."""
        return self._state or {}

    def run_id(self, default: str) -> str:
        """Return the saved name of the run, by which files are found, if valid."""
        found = self.entry.get("run")
        return str(found) if manifest.is_run(found) else default

    def restore_counters(self, runner: Runner) -> bool:
        """Set the runner's counters, name and meta; return whether the run is inside an epoch.

        Args:
            runner: The runner, in ``on_train_start``.
        """
        entry, trainer = self.entry, runner.trainer
        runner.run_id = self.run_id(runner.run_id)  # read late from a sharded checkpoint
        runner.iter = entry.get("iter", progress.batches_processed(trainer))
        runner.steps_before = 0
        mid_epoch, last = progress.is_resuming_mid_epoch(trainer), progress.is_last_batch(trainer)
        in_epoch = mid_epoch and bool(entry.get("in_epoch", not last))
        runner.inner_iter = progress.batch_idx(trainer) if in_epoch else 0
        # mid-epoch for Lightning, between epochs for mmcv: the closing validation was running
        runner.restore_counters(entry, closed=mid_epoch and not in_epoch)
        if self:
            runner.meta = {**self._meta, **(runner.meta or {})}
            if "hook_msgs" in self._meta:
                runner.meta["hook_msgs"] = self._meta["hook_msgs"]
            warning = resume_warning(trainer) if mid_epoch and not last else ""
            if warning:
                runner.logger.warning("%s", warning)
        return in_epoch

    def restore_rng(self, rank: int) -> None:
        """Restore the rank's random state, if the checkpoint has a state for the rank."""
        states = self.entry.get("rng", [])
        if rank < len(states):
            random_state.set_rng_state(states[rank])

    def worker_states(self, rank: int) -> list[list[Any]]:
        """Return the random states of the rank's persistent workers by loader."""
        states = self.entry.get("rng", [])
        return states[rank].get("workers", []) if rank < len(states) else []

    def restore_generators(self, runner: Runner) -> None:
        """Restore the states of the loaders' own generators."""
        generators = data.train_generators(runner.trainer)
        for generator, state in zip(generators, self.entry.get("data", []), strict=False):
            generator.set_state(state)
