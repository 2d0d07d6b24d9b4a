"""Write the state of a run into Lightning's checkpoints, and restore it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any
from weakref import WeakKeyDictionary

import lightning as L
import torch
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.strategies import ModelParallelStrategy
from lightning.pytorch.trainer.states import TrainerFn
from torch.utils.data import DataLoader

from lightning_hooks.engine.hook_callback import HookCallback, callbacks_of, hooks_of
from lightning_hooks.engine.hook_states import (
    DIALECTS_KEY,
    Identity,
    adopt_states,
    has_no_owner,
    saved_identities,
)
from lightning_hooks.engine.lightning_api import data, model_state, progress
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.runner.mmcv_checkpoint import run_meta
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import manifest
from lightning_hooks.storage.layout import ENTRY, RAW, entry_of, has_average
from lightning_hooks.utils import dtensors, random_state
from lightning_hooks.utils.fsdp import state_here
from lightning_hooks.utils.plain_types import plain_groups
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["HookBuffers", "ResumeState", "restore_raw_weights", "take_out", "write"]


def write(
    checkpoint: dict[str, Any],
    runner: Runner,
    hooks: Sequence[Any],
    workers: list[list[Any]],
    *,
    alone: bool,
) -> None:
    """Add mmcv's ``meta`` and this package's entry to a checkpoint, of plain types and tensors.

    =============  =======================================================================
    key            value
    =============  =======================================================================
    iter           training iterations done
    in_epoch       whether the run is inside an epoch
    run            the run's name
    last_val_iter  iterations done at the last validation, in a run counted in iterations
    rng            the random state of every rank, and of the loaders' persistent workers
    data           states of the training loaders' own generators
    log_buffer     the values of steps not averaged yet
    text_logs      lengths of the text logs (:mod:`lightning_hooks.loggers.text`)
    trackers       the runs of trackers, by backend (:mod:`lightning_hooks.loggers.trackers.base`)
    buffers        buffers added to the model by hooks (:class:`HookBuffers`)
    hooks          classes and arguments of hooks with a possible state (``hook_states.py``)
    averages       averages of the weights (:mod:`lightning_hooks.hooks.averaging.base`)
    =============  =======================================================================

    Args:
        checkpoint: Lightning's dict, changed.
        runner: Where the run stands.
        hooks: The hooks of the Trainer, in the order given.
        workers: The random states of persistent workers by loader; empty without such workers.
        alone: Whether this rank writes without the others, after an error.
    """
    trainer = runner.trainer
    closed = runner.counts_epochs and not runner.in_epoch
    done = runner.iterations_done
    checkpoint["meta"] = run_meta(runner, runner.epoch + (not closed), done)
    if "optimizer_states" in checkpoint:
        checkpoint["optimizer_states"] = [*map(plain_groups, checkpoint["optimizer_states"])]
    rng = {**random_state.get_rng_state(), **({"workers": workers} if workers else {})}
    random_states: list[Any] = [rng]
    if trainer.world_size > 1 and not alone:
        random_states = [None] * trainer.world_size
        torch.distributed.all_gather_object(random_states, rng)
    checkpoint[ENTRY] = {
        "iter": done,
        "in_epoch": runner.in_epoch,
        "run": runner.run_id,
        "log_buffer": runner.train_log.state_dict(),
        "last_val_iter": runner.last_val_iter,
        "rng": random_states,
        "data": [generator.get_state() for generator in data.train_generators(trainer)],
        "hooks": saved_identities(hooks),
    }


def _adopt(trainer: L.Trainer, checkpoint: dict[str, Any]) -> None:
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
    if all(isinstance(hook, HookCallback) for hook in hooks):  # else the adapter warns
        warnings += [has_no_owner("the state", one) for one in checkpoint.get(DIALECTS_KEY, ())]
    for warning in [*warnings, *(has_no_owner("the average", one) for one in left)]:
        rank_zero_warn(warning)


def _mid_epoch_warning(trainer: L.Trainer) -> str:
    """Return a warning for a run resumed inside an epoch; empty if the loaders save a state."""
    if data.goes_on_in_pass(trainer):
        return ""
    done, total = progress.batch_idx(trainer) + 1, trainer.num_training_batches
    left = "what the epoch lacks is" if total == float("inf") else f"{total - done} batches are"
    return (
        f"the run goes on in epoch {trainer.current_epoch + 1} after {done} batches, but the "
        f"training loader begins a new pass, of which {left} taken: samples of the {done} batches "
        "may be seen again in this epoch, others not at all. A loader that saves its state, as "
        "torchdata's StatefulDataLoader, goes on where it stood, and nothing repeats after a "
        "checkpoint of the end of an epoch"
    )


def restore_raw_weights(trainer: L.Trainer, checkpoint: dict[str, Any]) -> bool:
    """Have the module load the raw weights in place of the average.

    Lightning's own averaging callbacks restore raw weights themselves.

    Args:
        trainer: The Trainer, loading the checkpoint.
        checkpoint: Lightning's dict, changed.

    Returns:
        Whether the checkpoint had an average.

    Raises:
        ValueError: if the strategy has already loaded the average into sharded parameters.
    """
    averages = any(isinstance(one, WeightAveraging) for one in callbacks_of(trainer))
    if not has_average(checkpoint) or averages:
        return False
    raw = checkpoint.pop(RAW)
    if "state_dict" in checkpoint:
        checkpoint["state_dict"] = raw
    elif isinstance(trainer.strategy, ModelParallelStrategy):
        dtensors.load_whole(trainer.lightning_module, raw)
    else:
        raise ValueError(
            f"the checkpoint's 'state_dict' is an average, and {type(trainer.strategy).__name__} "
            "has loaded the average as weights. Fit from the checkpoint with the strategy 'ddp' "
            "and without an averaging hook, and resume from a checkpoint of that fit"
        )
    return True


class ResumeState:
    """The driver's entry of a checkpoint loaded for a fit, until the run has restored it."""

    entry: Mapping[str, Any] = MappingProxyType({})
    """The entry; empty without one."""
    _meta: Mapping[str, Any] = entry

    def __init__(self) -> None:
        self._workers: WeakKeyDictionary[Any, random_state.WorkerStates] = WeakKeyDictionary()

    def __bool__(self) -> bool:
        return bool(self.entry)

    def load(self, checkpoint: dict[str, Any]) -> None:
        """Keep the entry; the counters and optimizers do not exist yet."""
        self.entry = entry_of(checkpoint)
        self._meta = dict(checkpoint.get("meta") or {})

    def clear(self) -> None:
        """Forget the entry after the restore."""
        self.load({})

    def run_id(self, default: str) -> str:
        """Return the saved name of the run, by which files are found, if valid."""
        found = self.entry.get("run")
        return str(found) if manifest.is_run(found) else default

    def restore_counters(self, runner: Runner) -> None:
        """Set the runner's counters, name and meta.

        Args:
            runner: The runner, in ``on_train_start``.
        """
        entry, trainer = self.entry, runner.trainer
        runner.run_id = self.run_id(runner.run_id)  # read late from a sharded checkpoint
        runner.iter = entry.get("iter", progress.batches(trainer).total.processed)
        runner.step_counts.before = 0
        mid_epoch, last = progress.is_resuming_mid_epoch(trainer), progress.is_last_batch(trainer)
        runner.in_epoch = mid_epoch and bool(entry.get("in_epoch", not last))
        runner.inner_iter = progress.batch_idx(trainer) if runner.in_epoch else 0
        if runner.counts_epochs:
            # mid-epoch for Lightning, between epochs for mmcv: the closing validation was running
            closed = mid_epoch and not runner.in_epoch
            runner.closed_epoch = trainer.current_epoch if closed else None
        else:
            runner.last_val_iter = entry.get("last_val_iter", runner.iter)
        if self:
            runner.meta = {**self._meta, **(runner.meta or {})}
            if "hook_msgs" in self._meta:
                runner.meta["hook_msgs"] = self._meta["hook_msgs"]
            warning = _mid_epoch_warning(trainer) if mid_epoch and not last else ""
            if warning:
                runner.logger.warning("%s", warning)

    def restore_rng(self, rank: int) -> None:
        """Restore the rank's random state, if the checkpoint has a state for the rank."""
        states = self.entry.get("rng", [])
        if rank < len(states):
            random_state.set_rng_state(states[rank])

    def restore_workers(self, trainer: L.Trainer, fit: FitChanges) -> None:
        """Have persistent workers begin in the saved random states of the rank's workers."""
        states, rank = self.entry.get("rng", []), trainer.global_rank
        if rank < len(states):
            data.restore_workers(trainer, states[rank].get("workers", []), fit)

    def watch_workers(self, trainer: L.Trainer, fit: FitChanges) -> None:
        """Have persistent workers share their random states with :meth:`worker_states`."""
        for loader in data.train_loaders(trainer):
            persists = isinstance(loader, DataLoader) and loader.persistent_workers
            if persists and loader not in self._workers:
                self._workers[loader] = data.keep_worker_states(loader, fit)

    def worker_states(self, trainer: L.Trainer) -> list[list[Any]]:
        """Return the random states of persistent workers by loader; empty without such workers."""
        known = self._workers
        loaders = data.train_loaders(trainer) if known else []
        return [known[one].read() if one in known else [] for one in loaders]

    def restore_generators(self, trainer: L.Trainer) -> None:
        """Restore the states of the loaders' own generators."""
        generators = data.train_generators(trainer)
        for generator, state in zip(generators, self.entry.get("data", []), strict=False):
            generator.set_state(state)


class HookBuffers:
    """The buffers added by hooks to a module in ``before_run``, kept apart in checkpoints.

    Old EMA hooks register ``ema_*`` buffers on the model. Lightning loads a checkpoint, strictly,
    before ``before_run``, and would refuse the keys of buffers not yet registered. So the file
    keeps the buffers in ``checkpoint["lightning_hooks"]["buffers"]``. Values are loaded at once if
    the model has the buffers from an earlier fit, else after ``before_run``.

    Args:
        trainer: The Trainer.
        module: The module.
        fit: The fit of the patches.
        until: The part of the fit in which a checkpoint is loaded.
    """

    def __init__(
        self,
        trainer: L.Trainer,
        module: L.LightningModule,
        fit: FitChanges,
        until: contextlib.ExitStack,
    ) -> None:
        self._trainer, self._module, self._fit = trainer, module, fit
        self._waiting: dict[str, Any] = {}
        self._resumes = False
        fit.patch(module, "on_load_checkpoint", self._load, until=until)

    def _load(self, checkpoint: dict[str, Any]) -> None:
        """Take the keys out of a checkpoint in loading."""
        _adopt(self._trainer, checkpoint)  # first: this may replace the state dict
        own = set(state_here(self._module))
        kept = entry_of(checkpoint).get("buffers", {})
        self._waiting = {name: value for name, value in kept.items() if name not in own}
        self._resumes = True
        state = checkpoint.get("state_dict")
        if state is not None:
            state.update({name: value for name, value in kept.items() if name in own})

    @contextlib.contextmanager
    def added(self, may_add: bool) -> Iterator[None]:
        """Find the keys added by hooks in the block, and load the values from the checkpoint.

        Warn about saved buffers without a hook, and about new buffers that the file lacks.

        Args:
            may_add: Whether some hooks may add keys; the hooks of this package do not.
        """
        module = self._module
        # state_dict() brings parameters back to shards, which hooks keep in before_run
        is_sharded = isinstance(self._trainer.strategy, ModelParallelStrategy)
        noted = model_state.added_buffers(module)
        if not (may_add or self._resumes or is_sharded or noted):
            yield
            return
        before = set(state_here(module))
        yield
        state = state_here(module)
        added = set(state) - before
        if model_state.added_buffers(module, added):
            self._fit.patch(module, "on_save_checkpoint", partial(take_out, module))
        waiting, self._waiting = self._waiting, {}
        self._warn(waiting.keys() - state.keys(), added - waiting.keys())
        with torch.no_grad():
            for name, value in waiting.items():
                if name in state:
                    state[name].copy_(value)

    def _warn(self, left: set[str], new: set[str]) -> None:
        resumes, self._resumes = self._resumes, False
        if left:
            rank_zero_warn(
                f"the checkpoint has {_listed(left)}, which a hook had added to the model, and no "
                "hook of this Trainer adds now. Give the Trainer that hook to go on with it; "
                "without, it is lost from the next checkpoint on"
            )
        if new and resumes:
            rank_zero_warn(
                f"a hook has added {_listed(new)} to the model, which the checkpoint does not "
                "have: it begins anew. If the hook is not new in this run, resume from a "
                "checkpoint that was written with it"
            )


def take_out(module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
    """Move the hooks' buffers out of a checkpoint's state dict."""
    state = checkpoint.get("state_dict", {})
    names = sorted(model_state.added_buffers(module) & set(state))
    if names:
        kept = {name: state.pop(name) for name in names}
        checkpoint.setdefault(ENTRY, {})["buffers"] = kept


def _listed(names: Iterable[str]) -> str:
    first, *others = sorted(names)
    return f"the buffer {first!r}{f' and {len(others)} more' if others else ''}"
