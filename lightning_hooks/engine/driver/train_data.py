"""Iterate the training loader after the hooks' changes.

Lightning makes the first iterator before ``on_train_start``: workers copy the data set, and the
sampler is asked. A hook that then replaces the loader, or changes the data set, would be too late
for the first epoch. So Lightning's first iterator reads nothing, and the epoch's iterator is made
after the hooks, from the random state before the hooks: the order of the data is the same as
without hooks, and nothing is drawn twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import lightning as L
from lightning.fabric.utilities.data import sized_len
from lightning.pytorch.callbacks import Checkpoint

from lightning_hooks.engine.driver.ownership import has_foreign, runs_no_user_code
from lightning_hooks.engine.driver.run_state import RunState
from lightning_hooks.engine.hook_callback import HookCallback, callbacks_of
from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
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

    @property
    def is_resumed(self) -> bool:
        """Whether a checkpoint's state waits for the data to begin."""
        return bool(self._run_state)

    def watch(self, until: contextlib.ExitStack) -> None:
        """Make the first iterator after the hooks, if the hooks or a checkpoint may change it."""
        trainer = self._runner.trainer

        def before_iterator() -> None:
            if _may_save(trainer, self._runner.hooks):
                self._run_state.watch_workers(trainer, self._fit)
            if self._may_change() and not progress.iterates_anew(trainer):
                self._before = _RandomState(trainer)
                data.leave_unread(trainer)

        data.before_iterator(trainer, before_iterator, self._fit, until)

    def _may_change(self) -> bool:
        """Whether foreign hooks may replace data, or a checkpoint's random state is restored."""
        hooks, points = self._runner.hooks, ("before_run", "before_train_epoch")
        foreign = [hook for hook in hooks if not runs_no_user_code(hook)]
        changes = (hooks.method_at(hook, point) for hook in foreign for point in points)
        return bool(self._run_state) or any(changes)

    def restore_rng(self) -> None:
        """Restore a checkpoint's random state: an uninterrupted run has drawn nothing since."""
        trainer = self._runner.trainer
        if not self._run_state:
            return
        if self._before is not None and not data.goes_on_in_pass(trainer):
            for loader in data.train_loaders(trainer):
                # loaders use up the state of a finished pass: the next pass begins anew
                if hasattr(loader, "load_state_dict") and sized_len(loader) is not None:
                    iter(loader)
        self._run_state.restore_rng(trainer.global_rank)

    def begin_epoch(self, *, for_run: bool) -> None:
        """Iterate the loader and the data set after the hooks' changes; forget the resumed state.

        Args:
            for_run: Whether a hook's loader is for the rest of the run, not for a single epoch.
        """
        runner, resumed, trainer = self._runner, self._run_state, self._runner.trainer
        goes_on = data.goes_on_in_pass(trainer)
        if resumed:
            if not goes_on:
                resumed.restore_workers(trainer, self._fit)
            resumed.restore_generators(trainer)
        self._iterate(for_run)
        if resumed and goes_on:
            resumed.restore_rng(runner.rank)
            resumed.restore_generators(trainer)
        runner.renew()  # the loader may be new
        resumed.clear()

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
        if progress.iterates_anew(trainer) or not (before or replace):
            return
        # a resumed run draws from the restored state
        with before.restored() if before and not self._run_state else contextlib.nullcontext():
            data.renew_iterator(trainer)

    def end_epoch(self) -> None:
        """Go back to the loader replaced for a single epoch, as mmcv does."""
        self._replaced.close()
        self._is_replaced = False


def _may_save(trainer: L.Trainer, hooks: Sequence[Any]) -> bool:
    """Return whether a checkpoint callback, or code of the user, may write a file in the fit."""
    if has_foreign(hooks) or any(hook.kept_kinds for hook in hooks):
        return True
    others = [c for c in callbacks_of(trainer) if not isinstance(c, HookCallback)]
    known = ("lightning.", "lightning_hooks.")
    return any(
        isinstance(callback, Checkpoint) or not type(callback).__module__.startswith(known)
        for callback in others
    )


class _RandomState:
    """The states of the generators from which a training loader may draw."""

    def __init__(self, trainer: L.Trainer) -> None:
        own = [(g.get_state, g.set_state) for g in data.train_generators(trainer)]
        self._generators: list[tuple[Callable[[], Any], Callable[[Any], Any]]]
        self._generators = [*random_state.GENERATORS, *own]
        self._states = self._now()

    def _now(self) -> list[Any]:
        return [get() for get, _ in self._generators]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Draw from these states in the block.

        A generator from which was drawn since goes on after the block as if the block had drawn
        nothing; any other generator as without hooks.
        """
        found = [*zip(self._generators, self._states, self._now(), strict=True)]
        drawn = [one for one in found if not random_state.are_equal(one[1], one[2])]
        for (_, restore), before, _ in drawn:
            restore(before)
        yield
        for (_, restore), _, now in drawn:
            restore(now)
