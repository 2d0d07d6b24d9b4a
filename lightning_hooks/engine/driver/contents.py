"""Add to a checkpoint file all that a run with hooks needs, and take it from a file again.

Each participant has ``_add_to_file(file)`` and ``_take_from_file(file)``. A file is filled in this
order, and read in the opposite order:

====================  ==========================================================================
participant           in the file
====================  ==========================================================================
``RunState``          mmcv's ``meta``; counters, random states, values not averaged yet
``HookBuffers``       buffers that hooks have added to the model
``HookStates``        which state is which hook's
hooks, adapters       text logs and trackers' runs; states of the hooks of other dialects
averages              averages of the weights, the evaluated one as ``state_dict``
====================  ==========================================================================

So the averages alone meet an average as ``state_dict``, and all others the raw weights. Text logs,
trackers and adapters add nothing to a file of weights alone.

Lightning calls the callbacks for whole files only, and the module for all files. So a file is
filled at the module's ``on_save_checkpoint`` and read at its ``on_load_checkpoint``, and the
module's own methods see a file with all contents. After the fit the module is the user's again, and
a file is filled where the strategy writes the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Protocol

import lightning as L
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.driver.hook_buffers import HookBuffers
from lightning_hooks.engine.driver.run_state import RunState
from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.engine.hook_states import (
    DIALECTS_KEY,
    Identity,
    adopt_states,
    has_no_owner,
    saved_identities,
)
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.method_patch import FitChanges, MethodPatch
from lightning_hooks.engine.lightning_api.precision import convert_to_double, writes_directories
from lightning_hooks.engine.lightning_api.releases import is_weight_averaging
from lightning_hooks.engine.roster import hook_callbacks_of
from lightning_hooks.storage import state_parts
from lightning_hooks.storage.layout import OWN_PART, RAW, has_average, own_part
from lightning_hooks.utils import dtensors, fsdp
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = ["Contents", "HookStates", "present_state", "restore_raw_weights"]


class Participant(Protocol):
    """What adds to files and takes from files."""

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add to a file that is about to be written."""

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Take from a file that was read."""


class Contents:
    """Fills and reads the checkpoint files of a Trainer."""

    hooks: list[Any]
    """The hooks of the Trainer, in the order given."""

    run_state: RunState | None = None
    """The state of the Trainer's run; None before the first fit."""

    buffers: HookBuffers
    """The buffers that hooks have added to the module."""

    loaded_epoch: int | None = None
    """Epochs done, by mmcv's ``meta``, in the file of the present or last evaluation."""

    _trainer: L.Trainer
    _after_fit: MethodPatch | None = None

    def begin(self, trainer: L.Trainer, module: L.LightningModule, fit: FitChanges) -> None:
        """Fill and read the files of a fit or an evaluation, and fill the files saved after it."""
        if self._after_fit is not None:
            self._after_fit.remove()
        if self.run_state is not None and not self.run_state.is_of(trainer):
            self.run_state = None
        self._trainer, self.buffers = trainer, HookBuffers(trainer, module)
        self.loaded_epoch = None
        fit.patch(module, "on_save_checkpoint", self.add)
        fit.patch(module, "on_load_checkpoint", self.take)
        fit.callback(self._go_on_after)

    def _go_on_after(self) -> None:
        self._after_fit = MethodPatch(self._trainer.strategy, "save_checkpoint", self.add)

    def participants(self) -> list[Participant]:
        """Return what adds to a file, in this order, and takes from a file in the opposite."""
        run_state = [] if self.run_state is None else [self.run_state]
        return [
            *run_state,
            self.buffers,
            HookStates(self.hooks),
            *sorted(hook_callbacks_of(self._trainer), key=attrgetter("_averages_weights")),
        ]

    def add(self, checkpoint: dict[str, Any], *_: Any, **__: Any) -> None:
        """Fill a file."""
        own: dict[str, Any] = checkpoint.get(OWN_PART, {})
        file = self._file(checkpoint, own)
        for participant in self.participants():
            participant._add_to_file(file)
        if own:
            checkpoint[OWN_PART] = own
        if file.in_parts:
            state_parts.in_parts(
                checkpoint, own, self._trainer.global_rank, self._trainer.world_size
            )

    def take(self, checkpoint: dict[str, Any]) -> None:
        """Read a file.

        Raises:
            DamagedCheckpointError: for a value of another form than expected.
        """
        file = self._file(checkpoint, own_part(checkpoint))
        rank = self._trainer.global_rank
        convert_to_double(self._trainer)
        state_parts.from_parts(checkpoint, file.own_part, self._find_parts, rank)
        if not file.resumes:
            epoch = (checkpoint.get("meta") or {}).get("epoch")
            self.loaded_epoch = epoch if isinstance(epoch, int) else None
        for participant in reversed(self.participants()):
            participant._take_from_file(file)

    def _file(self, checkpoint: dict[str, Any], own: dict[str, Any]) -> CheckpointFile:
        in_parts = writes_directories(self._trainer.strategy)
        return CheckpointFile(checkpoint, own, self._trainer, in_parts)

    def _find_parts(self) -> tuple[str, dict[str, Any]]:
        """Return the path of a directory, rank 0's, and the module's state dict."""
        trainer = self._trainer
        return str(trainer.strategy.broadcast(trainer.ckpt_path)), present_state(trainer)


class HookStates:
    """Gives each hook the hook's own state of a file, wherever the hook stands.

    Warns of each saved state and each average without a hook, and of each hook without a saved
    state.

    Args:
        hooks: The hooks of the Trainer, in the order given.
    """

    def __init__(self, hooks: Sequence[Any]) -> None:
        self._hooks = hooks

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add the classes and arguments of the hooks with a possible state."""
        file.own_part["hooks"] = saved_identities(self._hooks)

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Put each state under the key of the hook's place, and the raw weights in an average's."""
        warnings = adopt_states(file.contents, file.own_part.get("hooks", []), self._hooks)
        if not file.resumes:
            return
        # averages taken by a hook are gone by now; an average without tensors had not begun
        averages = [a for a in file.own_part.pop("averages", ()) if a["state_dict"] != {}]
        is_of_lightning = restore_raw_weights(file) and not averages
        if has_average(file.contents):  # a callback of Lightning's takes the average
            averages = [a for a in averages if a["state_dict"] is not None]
        left = [Identity(average["class"], average["arguments"]) for average in averages]
        left += [Identity("EMAWeightAveraging", {})] if is_of_lightning else []
        if all(isinstance(hook, HookCallback) for hook in self._hooks):  # else the adapter warns
            states = file.contents.get(DIALECTS_KEY, ())
            warnings += [has_no_owner("the state", name) for name in states]
        for warning in [*warnings, *(has_no_owner("the average", owner) for owner in left)]:
            rank_zero_warn(warning)


def present_state(trainer: L.Trainer) -> dict[str, Any]:
    """Return the module's state dict, sharded as the parameters are. Collective under FSDP."""
    if isinstance(trainer.strategy, FSDPStrategy) and trainer.strategy.model is not None:
        return fsdp.sharded_state(trainer.strategy.model)
    return trainer.lightning_module.state_dict()


def restore_raw_weights(file: CheckpointFile) -> bool:
    """Have the module load the raw weights in place of the average.

    Lightning's own averaging callbacks restore raw weights themselves.

    Returns:
        Whether the file had an average.

    Raises:
        ValueError: if the strategy has already loaded the average into sharded parameters.
    """
    checkpoint, strategy = file.contents, file.trainer.strategy
    by_lightning = any(map(is_weight_averaging, callbacks_of(file.trainer)))
    if not has_average(checkpoint) or by_lightning:
        return False
    raw = checkpoint.pop(RAW)
    if "state_dict" in checkpoint:
        checkpoint["state_dict"] = raw
    elif isinstance(strategy, ModelParallelStrategy):
        dtensors.load_whole(file.module, raw)
    elif isinstance(strategy, FSDPStrategy):
        assert strategy.model is not None
        fsdp.load(strategy.model, raw)
    else:
        raise ValueError(
            f"the checkpoint's 'state_dict' is an average, and {type(strategy).__name__} "
            "has loaded the average as weights. Fit from the checkpoint with the strategy 'ddp' "
            "and without an averaging hook, and resume from a checkpoint of that fit"
        )
    return True
