"""Iterate the training loader after the hooks' changes.

Lightning makes the first iterator before ``on_train_start``. A hook that then replaces the loader,
or changes the data set, would be too late for the first epoch. So a new iterator is made after the
hooks, from the random state of the first iterator: the order of the data is the same as without
hooks.

A loader without a length may be a stream: Lightning would prefetch and lose a batch. A loader with
a state of its own may stand in mid-epoch. For both kinds the first iterator is a dummy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.data import sized_len

from lightning_hooks.engine.lightning_api import data, progress
from lightning_hooks.engine.lightning_api.method_patch import Fit
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.random_state import follow_workers

__all__ = ["DeferredLoader", "TrainData", "resume_warning"]


def _iterates_once(loader: Any) -> bool:
    """Whether samples taken by one iterator may be missing in the next."""
    return sized_len(loader) is None or hasattr(loader, "load_state_dict")


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


class DeferredLoader:
    """A training loader not iterated before the hooks have changed the data.

    Shown to Lightning until the run begins. An iterator yields a single None, for Lightning's
    prefetched batch of a loader without a length; all other attributes are the loader's.
    """

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[None]:
        return iter([None])

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


class _StatefulDeferredLoader(DeferredLoader):
    """A deferred loader with a state; from Python 3.12 on Lightning finds only class methods."""

    def state_dict(self) -> Any:
        return self.loader.state_dict()

    def load_state_dict(self, state_dict: Any) -> None:
        self.loader.load_state_dict(state_dict)


class TrainData:
    """The training data of a fit: makes its iterator after the hooks; the random state stays."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._before: list[tuple[torch.Generator, torch.Tensor]] = []
        self._made_early = False
        self._deferred: list[Any] = []  # loaders whose first iterator is a dummy
        self._replaced = fit.part()  # until the end of an epoch with a hook's loader
        self._is_replaced = False

    def watch(self, trainer: L.Trainer, hooks_may_change_data: bool, until: ExitStack) -> None:
        """Save the random state whenever Lightning is about to iterate a training loader."""
        strategy = trainer.strategy
        process = strategy.process_dataloader

        def process_dataloader(loader: Any) -> Any:
            processed = process(loader)
            if not trainer.training:
                return processed
            follow_workers(processed)
            self._made_early = True
            generators = [torch.default_generator, *data.generators_of(processed)]
            self._before = [(g, g.get_state()) for g in generators]
            if not (hooks_may_change_data and _iterates_once(processed)):
                return processed
            self._deferred.append(processed)
            stateful = all(hasattr(processed, f"{verb}state_dict") for verb in ("", "load_"))
            return (_StatefulDeferredLoader if stateful else DeferredLoader)(processed)

        until.callback(self._show_loaders, trainer)
        self._fit.patch(strategy, "process_dataloader", instead=process_dataloader, until=until)

    def _show_loaders(self, trainer: L.Trainer) -> None:
        if self._deferred:
            data.show_train_loaders(
                trainer, lambda one: one.loader if isinstance(one, DeferredLoader) else one
            )

    def restore_workers(self, trainer: L.Trainer, states: list[list[Any]]) -> None:
        """Have the next iterator begin with persistent workers in a checkpoint's states."""
        data.restore_workers(trainer, states, self._fit)

    def can_renew(self, trainer: L.Trainer, *, resumed: bool) -> bool:
        """Whether the epoch's iterator exists already and can be remade without loss."""
        if not self._made_early or progress.iterates_anew(trainer):
            return False
        # at the beginning of a pass a loader's state says only: the pass before is over
        begins = resumed and not data.goes_on_in_pass(trainer)
        return all(
            any(loader is deferred for deferred in self._deferred)
            or not _iterates_once(loader)
            or (begins and sized_len(loader) is not None)
            for loader in data.train_loaders(trainer)
        )

    def leave_pass(self, trainer: L.Trainer) -> None:
        """Let deferred loaders use up the state of a finished pass: the next pass begins anew."""
        if not data.goes_on_in_pass(trainer):
            for loader in self._deferred:
                if sized_len(loader) is not None:
                    iter(loader)

    def begin_epoch(
        self, runner: Runner, *, for_run: bool, resumed: bool, hooks_may_change_data: bool
    ) -> None:
        """Make the epoch iterate the loader and the data set after the hooks' changes.

        Args:
            runner: The runner, perhaps with a loader set by a hook.
            for_run: Whether a hook's loader is for the rest of the run, not for a single epoch.
            resumed: Whether to draw from the current random state, restored from a checkpoint.
            hooks_may_change_data: Whether hooks could have changed data; else the iterator stays.
        """
        trainer = runner.trainer
        new, runner.new_data_loader = runner.new_data_loader, None
        if new is not None and not for_run and not self._is_replaced:
            self._is_replaced = True
            self._replaced.callback(data.restore_train_data, trainer, data.train_data(trainer))
        replace = new is not None and all(new is not x for x in data.train_loaders(trainer))
        changed = hooks_may_change_data or bool(self._deferred)
        renew = self.can_renew(trainer, resumed=resumed) and (resumed or changed)
        if replace:
            again = partial(data.replace_loader, trainer, new)
            natural = resumed and self._made_early
            self._make(again, [torch.default_generator, *data.generators_of(new)], natural)
        elif renew:
            drawn_from = [generator for generator, _ in self._before]
            # nothing was drawn since the dummy was made: go on as without hooks
            undrawn = bool(self._deferred) and all(g.get_state().equal(s) for g, s in self._before)
            self._make(partial(data.renew_iterator, trainer), drawn_from, resumed or undrawn)
        self._made_early, self._deferred = False, []

    def end_epoch(self) -> None:
        """Go back to the loader replaced for a single epoch, as mmcv does."""
        self._replaced.close()
        self._is_replaced = False

    def _make(
        self, make: Callable[[], None], drawn_from: list[torch.Generator], natural: bool
    ) -> None:
        """Make the iterator without a trace in the generators, or naturally: from now on."""
        if natural:
            make()
            return
        now = [(generator, generator.get_state()) for generator in drawn_from]
        if self._made_early:
            for generator, state in self._before:
                generator.set_state(state)
        make()
        for generator, state in now:
            generator.set_state(state)
