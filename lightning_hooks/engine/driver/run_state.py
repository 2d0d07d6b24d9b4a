"""``RunState``: where a run stands, in its checkpoint files and in a resumed run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch.callbacks import EarlyStopping

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.error_notes import listed
from lightning_hooks.engine.hook_callback import natives_with
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.callback_list import callbacks_of
from lightning_hooks.engine.lightning_api.epoch_sums import epoch_sums, restore_epoch_sums
from lightning_hooks.engine.lightning_api.loader_place import LoaderPlaces, place_of_another_rank
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.releases import after_skipped_validation, check_file
from lightning_hooks.engine.priority import of_family
from lightning_hooks.engine.runner.mmcv_checkpoint import run_meta
from lightning_hooks.engine.runner.optimizers import moved_values
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.storage import manifest
from lightning_hooks.storage.state_parts import RANKS
from lightning_hooks.utils import random_state, ranks
from lightning_hooks.utils.plain_types import plain_groups

__all__ = ["RunState"]


class RunState:
    """Where a run stands: written to each file, and kept from a file until the run has restored it.

    In the part of this package in a file, ``checkpoint["lightning_hooks"]``, of plain types and
    tensors:

    =============  =======================================================================
    key            value
    =============  =======================================================================
    iter           training iterations done
    in_epoch       whether the run is inside an epoch
    run            the run's name
    last_val_iter  iterations done at the last validation, in a run counted in iterations
    in_end         whether the file is written in the events of an epoch's end
    end_is_left    whether the resumed run begins with the events of the epoch's end
    rates          of the last step, for the line of a validation with which a run goes on
    waiting        iterations whose gradients wait for a step, and are in no file
    ahead          batches fetched, but not trained on
    rng            the random state of every rank; rank 0 collects the states for one file, each
                   rank writes its own, places and generators too, into its part of a directory
    loaders        the places of every rank's training loaders (``loader_place.py``)
    data           states of the own generators of every rank's training loaders
    sums           the epoch's sums of the module's logged values, of every rank (``epoch_sums.py``)
    metrics        the values of ``trainer.callback_metrics`` of every rank
    logged         the names of the values that the module has logged, per loader
    log_buffer     the values of every rank's steps that are not averaged yet
    =============  =======================================================================

    The others of this part: ``results`` (:mod:`lightning_hooks.loggers.base`), ``text_logs``
    (:mod:`lightning_hooks.loggers.text`), ``trackers``
    (:mod:`lightning_hooks.loggers.trackers.base`), ``watch`` (:mod:`lightning_hooks.hooks.watch`),
    ``skips`` (:mod:`lightning_hooks.hooks.invalid_loss.skip_step`), ``buffers``
    (``hook_buffers.py``), ``hooks`` (``hook_states.py``) and ``averages``
    (:mod:`lightning_hooks.hooks.averaging.base`). ``meta`` in the file is mmcv's.

    Args:
        runner: The runner.
    """

    saved: Mapping[str, Any] = MappingProxyType({})
    """This package's part of the resumed file; empty without a file."""
    _meta: Mapping[str, Any] = saved
    _global_step: int | None = None
    """Lightning's count of steps in the resumed file."""
    closed_batches = 0
    """Batches of the resumed file, not trained on, that this run counts as done."""
    _before_validation: dict[str, Any] | None = None
    """The random state from before the last validation of the fit."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.loader_places = LoaderPlaces(runner.trainer)
        """The places of the training loaders in their passes."""

    def __bool__(self) -> bool:
        return bool(self.saved)

    def is_of(self, trainer: L.Trainer) -> bool:
        """Whether the run is a Trainer's; hooks may move to another Trainer."""
        return self._runner.trainer is trainer

    def watch_validations(self, fit: FitChanges) -> None:
        """Keep the random state from before each validation, for a file of a cut validation.

        A resumed run that begins with a validation begins with the restored state, and goes on with
        the state after the validation. In one that goes on after a validation, Lightning sets the
        validation's loader up once more, which draws no random numbers here.

        Args:
            fit: The fit.
        """
        loop: Any = self._runner.trainer.fit_loop.epoch_loop.val_loop

        def keep() -> None:
            if self.saved:
                self.restore_rng()
                self.saved = {key: value for key, value in self.saved.items() if key != "rng"}
            self._before_validation = random_state.get_rng_state()

        def restore(_: Any) -> None:
            if self._before_validation is not None:
                random_state.set_rng_state(self._before_validation)

        fit.patch(loop, "setup_data", before=keep)
        after_skipped_validation(loop, restore, fit)

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add where the run stands, and mmcv's ``meta``; all ranks add, unless after an error."""
        runner, trainer = self._runner, file.trainer
        if not trainer.interrupted:  # else the fit ends anyway
            runner.agree_to_stop()
        done = runner.iterations_done
        file.contents["meta"] = run_meta(runner, runner.epochs_done, done)
        if "optimizer_states" in file.contents:
            groups = [*map(plain_groups, file.contents["optimizer_states"])]
            file.contents["optimizer_states"] = groups
        is_cut = trainer.interrupted and trainer.validating
        validation_is_left = progress.validation_is_left(trainer)
        end_is_left = not validation_is_left and progress.epoch_end_is_left(trainer)
        in_end = progress.ends_epoch(trainer) and not end_is_left
        if validation_is_left:
            progress.begin_with_validation(file.contents, is_cut)
        of_rank = self._state_of_rank(is_cut)
        if runner.writes_alone or file.in_parts:
            of_ranks = [of_rank]
        else:
            of_ranks = ranks.collected(of_rank, trainer.world_size)
        file.own_part.update(
            iter=done,
            in_epoch=runner.in_epoch,
            run=runner.run_id,
            last_val_iter=runner.last_val_iter,
            rates=runner.step_rates.state(),
            waiting=runner.step_counts.waiting,
            ahead=data.batches_ahead(trainer),
            in_end=in_end,
            end_is_left=end_is_left,
            logged=sorted(runner.callback_values.logged()),
            **{key: [states[key] for states in of_ranks] for key in of_rank},
        )

    def _state_of_rank(self, is_cut: bool) -> dict[str, Any]:
        """Return what each rank has of its own, by the keys of ``layout.OF_RANKS``.

        Args:
            is_cut: Whether the file is of a cut validation.
        """
        runner, trainer = self._runner, self._runner.trainer
        of_rank = {
            "rng": (is_cut and self._before_validation) or random_state.get_rng_state(),
            "loaders": self.loader_places.saved(),
            "data": [*map(torch.Generator.get_state, data.train_generators(trainer))],
            "sums": epoch_sums(trainer, runner.writes_alone),
            "log_buffer": [runner.train_log.state_dict()],
            "metrics": [runner.callback_values.state() or []],
        }
        if self.saved:  # before the first batch of a resumed run
            # what is restored with the data
            kept = ("rng", "loaders", "data")
            of_rank |= {key: self._of_rank(key) or of_rank[key] for key in kept}
        return move_data_to_device(of_rank, "cpu") if trainer.world_size > 1 else of_rank

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Keep the state of a resumed run; the counters and optimizers do not exist yet."""
        if file.resumes:
            self.saved, self._meta = file.own_part, dict(file.contents.get("meta") or {})
            end_is_left = self.saved.get("end_is_left", False)
            check_file(file.contents, end_is_left)
            self._global_step = file.contents.get("global_step")
            self.closed_batches = progress.close_skipped_batches(file.contents)
            if end_is_left:
                progress.begin_with_epoch_end(file.contents)

    def clear(self) -> None:
        """Forget the state after the restore."""
        self.saved = self._meta = MappingProxyType({})

    def restore_name(self) -> None:
        """Give the run the saved name, by which files are found, if valid."""
        run = self.saved.get("run")
        if manifest.is_run(run):
            self._runner.run_id = str(run)

    def restore_counters(self, inside: bool) -> None:
        """Set the runner's counters, name and meta, in ``on_train_start``.

        Args:
            inside: Whether the epoch in which the file was written ends in this run.
        """
        saved, runner, trainer = self.saved, self._runner, self._runner.trainer
        self.restore_name()  # read late from a sharded checkpoint
        runner.iter = saved.get("iter", progress.batches(trainer).total.processed)
        runner.start_iter = runner.iter
        if self._global_step is not None:
            progress.go_on_from_step(trainer, self._global_step)
        runner.step_counts.before = 0
        mid_epoch, last = progress.is_resuming_mid_epoch(trainer), progress.is_last_batch(trainer)
        runner.in_epoch = mid_epoch and bool(saved.get("in_epoch", not last))
        runner.inner_iter = progress.batch_idx(trainer) if runner.in_epoch else 0
        runner.begin_pass(progress.batches(trainer).current.processed if inside else 0)
        if runner.counts_epochs:
            # mid-epoch for Lightning, between epochs for mmcv: the closing validation was running
            closed = mid_epoch and not runner.in_epoch
            runner.closed_epoch = trainer.current_epoch if closed else None
        else:
            runner.last_val_iter = saved.get("last_val_iter", runner.iter)
        self.restore_meta()

    def restore_meta(self) -> None:
        """Give the runner the file's meta, with the paths of the run's files."""
        runner = self._runner
        if self.saved:
            runner.meta = {**self._meta, **(runner.meta or {})}
            if "hook_msgs" in self._meta:
                runner.meta["hook_msgs"] = self._meta["hook_msgs"]

    def warn_of_left_values(self) -> None:
        """Warn of what a schedule of the file's run has set, and nothing sets in this run."""
        runner, trainer = self._runner, self._runner.trainer
        if not self.saved:
            return
        names = {updater._sets for updater in natives_with("_sets", runner.hooks)}
        swa = of_family(callbacks_of(trainer), "StochasticWeightAveraging")
        if trainer.lr_scheduler_configs or swa:  # some set the momentum, too
            names |= {"lr", "momentum"}
        left: dict[str, list[str]] = {}
        for optimizer in trainer.optimizers:
            for name, first, now in moved_values(optimizer):
                left.setdefault(name, []).append(f"{now:.6g} (of {first:.6g})")
        for name in [name for name in left if name not in names]:
            runner.logger.warning(
                "the %s stays where the schedule of the checkpoint's run has left it: %s. No hook "
                "and no scheduler of this Trainer sets it",
                *("learning rate" if name == "lr" else name, listed([*dict.fromkeys(left[name])])),
            )

    def warn_of_stop(self) -> None:
        """Warn of an ``EarlyStopping`` that had stopped the file's run: Lightning saves no stop."""
        if not self.saved:
            return
        for callback in callbacks_of(self._runner.trainer):
            if isinstance(callback, EarlyStopping) and callback.wait_count >= callback.patience:
                self._runner.logger.warning(
                    "%s(%r) had no patience left when the file was written: the run goes on until "
                    "the next check of that callback",
                    *(type(callback).__name__, callback.monitor),
                )

    def restore_metrics(self) -> None:
        """Go on with the values for callbacks, and with the schedulers that wait for them."""
        trainer, shown = self._runner.trainer, self._runner.callback_values
        shown.logged_before = frozenset(self.saved.get("logged", ()))
        for values in self._of_rank("metrics") or self._of_rank("metrics", 0):
            shown.restore(values)
            progress.end_as_any_epoch(trainer, self.saved.get("in_end", False))

    def log_values(self) -> list[dict[str, Any]]:
        """Return the values of the rank's log buffer, or rank 0's from a file of fewer ranks."""
        values: list[dict[str, Any]] = self._of_rank("log_buffer")
        return values or self._of_rank("log_buffer", 0)

    def restore_sums(self, fit: FitChanges) -> frozenset[str] | None:
        """Go on from the epoch's sums, in ``on_train_start`` of a run resumed within an epoch.

        Returns:
            The names of values without a sum in the file; None for all.
        """
        sums = self._of_rank("sums")
        writers = self.saved.get(RANKS, len(self.saved.get("sums", ())))
        if not sums or writers != self._runner.world_size:
            return None  # all ranks must have sums of the same values: Lightning reduces each
        restore_epoch_sums(self._runner.trainer, sums, fit)
        return frozenset(sums["without_sum"])

    def _of_rank(self, key: str, rank: int | None = None) -> Any:
        """Return what was saved of a rank, by default of this; an empty list without."""
        of_ranks = self.saved.get(key, [])
        rank = self._runner.trainer.global_rank if rank is None else rank
        return of_ranks[rank] if rank < len(of_ranks) else []

    def restore_rng(self) -> None:
        """Restore the rank's random state, if the checkpoint has a state for the rank."""
        state = self._of_rank("rng")
        if state:
            random_state.set_rng_state(state)

    def places(self) -> list[dict[str, Any]]:
        """Return the places of the rank's training loaders.

        A file of fewer ranks has none of this rank. Lightning's samplers give each rank a share of
        the same order, so that the other ranks stand where rank 0 stood.
        """
        places: list[dict[str, Any]] = self._of_rank("loaders")
        return places or [place_of_another_rank(each) for each in self._of_rank("loaders", 0)]

    def restore_generators(self) -> None:
        """Restore the states of the loaders' own generators."""
        generators = data.train_generators(self._runner.trainer)
        for generator, state in zip(generators, self._of_rank("data"), strict=False):
            generator.set_state(state)
