"""Iterate the training loader after the hooks' changes.

Lightning makes the first iterator before ``on_train_start``: workers copy the data set, and the
sampler is asked. A hook that then replaces the loader, or changes the data set, would be too late
for the first epoch. So Lightning's first iterator reads nothing, and the epoch's iterator is made
after the hooks, from the random state before the hooks: the order of the data is the same as
without hooks, and nothing is drawn twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial

import lightning as L
from lightning.fabric.utilities.data import sized_len

from lightning_hooks.engine.driver.ownership import runs_no_user_code
from lightning_hooks.engine.driver.run_state import RunState
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.releases import keep_first_iterator
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils import random_state

__all__ = ["TrainData"]


class TrainData:
    """The training data of a fit: makes its iterator after the hooks; the random state stays.

    Args:
        runner: The runner, whose loader a hook may set.
        run_state: The state of a resumed run, forgotten when the data begin.
        fit: The fit of the patches.
    """

    def __init__(self, runner: Runner, run_state: RunState, fit: FitChanges) -> None:
        self._runner, self._run_state, self._fit = runner, run_state, fit
        self._before: _RandomState | None = None  # set while the first iterator is to be made
        self._replaced = fit.part()  # until the end of an epoch with a hook's loader
        self._is_replaced = False
        self._is_reloaded = False  # the resumed run's loaders are of the epoch to come

    @property
    def is_resumed(self) -> bool:
        """Whether a checkpoint's state waits for the data to begin."""
        return bool(self._run_state)

    def watch(self, until: contextlib.ExitStack) -> None:
        """Make the first iterator after the hooks, if the hooks or a checkpoint may change it.

        Args:
            until: The part of the fit before the first iterator is used.
        """
        trainer = self._runner.trainer

        def leave_unread() -> None:
            if (self.is_resumed or self._may_change()) and not progress.iterates_anew(trainer):
                self._before = _RandomState(trainer)
                data.leave_unread(trainer)

        keep_first_iterator(trainer, self._fit)
        if self.is_resumed:
            data.save_without_draws(trainer, self._fit)
        watch_places = partial(self._run_state.loader_places.watch, self._fit)
        # first: else the loaders are hidden already
        data.before_iterator(trainer, watch_places, self._fit)
        data.before_iterator(trainer, leave_unread, self._fit, until)

    def follow_reloads(self) -> None:
        """Have a resumed run reload its loaders as the uninterrupted run does.

        Lightning's loops reload before the epoch's event: from the random state of the file, which
        is not restored again. What the file has of the loaders is of those that are gone. A file of
        an error in the epoch's event is one after the reload.
        """

        def reload() -> None:
            is_before = not (self._is_reloaded or progress.begins_epoch(trainer))
            if self.is_resumed and is_before and data.reloads_next(trainer):
                self._run_state.restore_rng()
                self._is_reloaded = True

        trainer = self._runner.trainer
        if self.is_resumed:
            data.set_last_reload(trainer)
            data.before_reload(trainer, reload, self._fit)

    def _may_change(self) -> bool:
        """Whether foreign hooks may replace data."""
        hooks, points = self._runner.hooks, ("before_run", "before_train_epoch")
        foreign = [hook for hook in hooks if not runs_no_user_code(hook)]
        return any(hooks.method_at(hook, point) for hook in foreign for point in points)

    def restore_rng(self) -> None:
        """Restore a checkpoint's random state: an uninterrupted run has drawn nothing since."""
        trainer = self._runner.trainer
        if self._is_reloaded or not self.is_resumed:
            return
        goes_on = data.may_go_on_in_pass(trainer) and not self._why_not()
        if self._before is not None and not goes_on:
            for loader in data.stateful_loaders(trainer):
                # loaders use up the state of a finished pass: the next pass begins anew
                if sized_len(loader) is not None:
                    with random_state.isolated():  # the state may be restored already
                        iter(loader)
        self._run_state.restore_rng()

    def _why_not(self) -> str:
        """Return why a loader cannot go on where it stood; empty if all can."""
        resumed = self._run_state
        return resumed.loader_places.why_not(resumed.places())

    def begin_epoch(self, *, for_run: bool) -> None:
        """Iterate the loader and the data set after the hooks' changes; forget the resumed state.

        Args:
            for_run: Whether a hook's loader is for the rest of the run, not for a single epoch.
        """
        is_resumed = self.is_resumed
        if is_resumed and progress.begins_with_last_validation(self._runner.trainer):
            return  # the data begin with the next epoch
        begin = self._resume if is_resumed else self._iterate
        begin(for_run)
        self._runner.renew()  # the loader may be new

    def _resume(self, for_run: bool) -> None:
        """Iterate from where the file stands; forget the file's state."""
        resumed, in_pass = self._run_state, data.may_go_on_in_pass(self._runner.trainer)
        reason = self._why_not() if in_pass else ""
        self._tell_of_lost_gradients(in_pass)
        if not self._is_reloaded:
            self._begin_loaders(in_pass, reason)
            resumed.restore_generators()
        self._iterate(for_run)
        if in_pass and not reason:
            # the uninterrupted run has the iterators already, and draws nothing to remake them
            resumed.restore_rng()
            resumed.restore_generators()
        resumed.clear()

    def _begin_loaders(self, in_pass: bool, reason: str) -> None:
        """Have the next iterators begin where the loaders stood; warn if a loader cannot.

        Args:
            in_pass: Whether a pass over the data that has begun has batches left.
            reason: Why a loader cannot go on within the pass; empty if all can.
        """
        trainer, resumed = self._runner.trainer, self._run_state
        if difference := data.lost_of_workers(trainer, in_pass):
            self._runner.logger.warning(
                "a training loader with a state_dict() of its own saves no states of its workers: "
                "%s may differ from the uninterrupted run's",
                difference,
            )
        ahead = resumed.saved.get("ahead", 0) if in_pass and data.stateful_loaders(trainer) else 0
        if ahead:
            self._runner.logger.warning(
                "the state_dict() of a training loader is ahead of the training by %d batches, "
                "left out now: of an error in a batch, or read ahead of a loader without a length",
                ahead,
            )
        if in_pass:
            if reason:
                self._runner.logger.warning("%s", _new_pass(trainer, reason))
                return
            data.say_nothing_of_passes(trainer, self._fit)
        elif progress.was_ended_early(trainer):
            self._runner.logger.warning("%s", _left_out(trainer))
            if progress.has_fewer_batches(trainer):
                return  # the loaders stood where their passes do not come any more
        resumed.loader_places.begin(resumed.places())

    def _tell_of_lost_gradients(self, in_pass: bool) -> None:
        """Warn of a file from between the batches of an accumulated step, as this run makes it."""
        runner, trainer = self._runner, self._runner.trainer
        lost = self._run_state.saved.get("waiting", 0)
        if not lost and in_pass:
            lost = progress.batches_in_window(trainer)
        runner.step_counts.lost = lost
        if lost:
            runner.logger.warning(
                "the file was written between the batches of an accumulated step: the next "
                "step has no gradients of the %d batches before the file",
                lost,
            )

    def _iterate(self, for_run: bool) -> None:
        runner, trainer = self._runner, self._runner.trainer
        new, runner.new_data_loader = runner.new_data_loader, None
        if new is not None and not for_run and not self._is_replaced:
            self._is_replaced = True
            data.keep_train_data(trainer, self._replaced)
        replace = new is not None and all(new is not x for x in data.train_loaders(trainer))
        if replace:
            data.replace_loader(trainer, new)
        before, self._before = self._before, None
        if self._is_reloaded:
            self._is_reloaded = False
            if not progress.iterates_anew(trainer):
                data.iterate_again(trainer)  # as Lightning, without a resume
            return
        if progress.iterates_anew(trainer) or not (before or replace):
            return
        # a resumed run draws from the restored state
        with before.restored() if before and not self.is_resumed else contextlib.nullcontext():
            data.renew_iterator(trainer)

    def end_epoch(self) -> None:
        """Go back to the loader replaced for a single epoch, as mmcv does."""
        self._replaced.close()
        self._is_replaced = False


def _new_pass(trainer: L.Trainer, reason: str) -> str:
    """Return the warning for a run that is resumed inside an epoch and begins a new pass."""
    done = progress.batches(trainer).current.processed
    total = trainer.num_training_batches
    left = "what the epoch lacks is" if total == float("inf") else f"{total - done} batches are"
    return (
        f"the run goes on in epoch {trainer.current_epoch + 1} after {done} batches, but the "
        f"training loader begins a new pass, of which {left} taken: samples of the {done} batches "
        f"may be seen again in this epoch, others not at all. The reason: {reason}. A loader that "
        "saves its state, as torchdata's StatefulDataLoader, goes on where it stood, and nothing "
        "repeats after a checkpoint of the end of an epoch"
    )


def _left_out(trainer: L.Trainer) -> str:
    """Return the warning for a run that goes on after an epoch that was ended early."""
    done, epoch = progress.batches(trainer).current.processed, trainer.current_epoch
    of = trainer.num_training_batches
    reason = f"the run that wrote the file ended within epoch {epoch}, after {done} batches of {of}"
    if progress.has_fewer_batches(trainer):
        reason = f"the file has {done} batches of epoch {epoch}, and an epoch of this run has {of}"
    return (
        f"{reason}; to Lightning that epoch is done, and the run goes on with epoch {epoch + 1} "
        "and a new pass over the data"
    )


class _RandomState:
    """The states of the generators from which a training loader may draw."""

    def __init__(self, trainer: L.Trainer) -> None:
        self._generators = random_state.Generators(*data.train_generators(trainer))
        self._states = self._generators.states()

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Draw from these states in the block.

        A generator from which was drawn since goes on after the block as if the block had drawn
        nothing; any other generator as without hooks.
        """
        now, before = self._generators.states(), self._states
        are_equal = [*map(random_state.are_equal, before, now)]
        self._generators.set(before)
        yield
        after = self._generators.states()
        triples = zip(are_equal, after, now, strict=True)
        self._generators.set([of_block if equal else own for equal, of_block, own in triples])
