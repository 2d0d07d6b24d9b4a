"""Iterate the training loader after the hooks' changes.

Lightning makes the first iterator before ``on_train_start``: workers copy the data set, and the
sampler is asked. A hook that then replaces the loader, or changes the data set, would be too late
for the first epoch. So Lightning's first iterator reads nothing, and the epoch's iterator is made
after the hooks, from the random state before the hooks: the order of the data is the same as
without hooks, and nothing is drawn twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import lightning as L
from lightning.fabric.utilities.data import sized_len

from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.method_patch import Fit
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils import random_state

__all__ = ["TrainData", "resume_warning"]


def resume_warning(trainer: L.Trainer) -> str:
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


class TrainData:
    """The training data of a fit: makes its iterator after the hooks; the random state stays."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._before: _RandomState | None = None  # set while the first iterator is to be made
        self._replaced = fit.part()  # until the end of an epoch with a hook's loader
        self._is_replaced = False

    def watch(
        self, trainer: L.Trainer, defers: Callable[[], bool], until: contextlib.ExitStack
    ) -> None:
        """Make the first iterator after the hooks, if ``defers()`` when Lightning would make it."""

        def before_iterator() -> None:
            for loader in data.train_loaders(trainer):
                random_state.follow_workers(loader)
            if defers() and not progress.iterates_anew(trainer):
                self._before = _RandomState(trainer)
                data.leave_unread(trainer)

        data.before_iterator(trainer, before_iterator, self._fit, until)

    def restore_workers(self, trainer: L.Trainer, states: list[list[Any]]) -> None:
        """Have the next iterator begin with persistent workers in a checkpoint's states."""
        data.restore_workers(trainer, states, self._fit)

    def leave_pass(self, trainer: L.Trainer) -> None:
        """Let loaders use up the state of a finished pass: the next pass begins anew."""
        if self._before is not None and not data.goes_on_in_pass(trainer):
            for loader in data.train_loaders(trainer):
                if hasattr(loader, "load_state_dict") and sized_len(loader) is not None:
                    iter(loader)

    def begin_epoch(self, runner: Runner, *, for_run: bool, resumed: bool) -> None:
        """Make the epoch iterate the loader and the data set after the hooks' changes.

        Args:
            runner: The runner, perhaps with a loader set by a hook.
            for_run: Whether a hook's loader is for the rest of the run, not for a single epoch.
            resumed: Whether to draw from the current random state, restored from a checkpoint.
        """
        trainer = runner.trainer
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
        with contextlib.nullcontext() if before is None or resumed else before.restored():
            data.renew_iterator(trainer)

    def end_epoch(self) -> None:
        """Go back to the loader replaced for a single epoch, as mmcv does."""
        self._replaced.close()
        self._is_replaced = False


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
