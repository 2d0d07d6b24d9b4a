"""Keep the place of torch's ordinary ``DataLoader`` in its pass over the data.

A file has, for each training loader, the random state from before the pass and the number of
batches taken. A resumed run makes the pass's iterator from that random state, skips the *indices*
of the batches taken, not their data, and goes on from the random state of the moment of saving. So
the order of the samples is the uninterrupted run's, with any sampler that draws where its pass
begins or from a generator that nothing else draws from.

Nothing runs in a step. While an iterator is made, a :class:`NotedSampler` stands for the loader's
sampler and notes the random state; the indices then come from the sampler itself. Worker processes
copy their random state after each batch, so that their augmentations go on too: a resumed worker
has the same number, and begins in the state after the last batch of its own that precedes the
batches of the present round. The batches of this round, fewer than there are workers, are loaded
again and dropped.
"""

from __future__ import annotations

import copy
import logging
import time
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader, IterableDataset

from lightning_hooks.engine.lightning_api.data import (
    batches_ahead,
    generators_of,
    running_loaders,
    train_loaders,
)
from lightning_hooks.engine.lightning_api.method_patch import FitChanges, setting
from lightning_hooks.engine.lightning_api.progress import has_batch_left
from lightning_hooks.utils.random_state import (
    GENERATORS,
    Generators,
    WorkerStates,
    are_equal,
    isolated,
    restore_worker,
)
from lightning_hooks.utils.warn import warn

__all__ = ["LoaderPlaces", "NotedSampler", "place_of_another_rank"]

SECONDS_OF_A_BATCH = 60
"""How long the end of a pass is waited for until workers have loaded what was asked of them."""


class LoaderPlaces:
    """The places of a Trainer's training loaders, for its files and from a resumed file.

    Args:
        trainer: The Trainer.
    """

    def __init__(self, trainer: L.Trainer) -> None:
        self._trainer = trainer
        self._watched: weakref.WeakKeyDictionary[Any, WatchedLoader]
        self._watched = weakref.WeakKeyDictionary()
        self._after_fit: list[dict[str, Any]] = []

    def watch(self, fit: FitChanges) -> None:
        """Have the next iterators of the present training loaders note their place."""
        if not self._watched:
            fit.callback(self._end)
        for loader in train_loaders(self._trainer):
            if _is_ordinary(loader) and loader not in self._watched:
                self._watched[loader] = WatchedLoader(loader, fit)

    def _of(self, loader: Any) -> WatchedLoader | None:
        # a list of batches has no weak references
        return self._watched.get(loader) if _is_ordinary(loader) else None

    def _end(self) -> None:
        """Keep the places for files saved after the fit: at the error, or of persistent workers."""
        try:
            self._after_fit = self.saved()
        finally:
            # some are left by an error
            for loader, iterator in running_loaders(self._trainer.fit_loop):
                _give_back_sampler(loader, iterator)
            self._watched.clear()

    def saved(self) -> list[dict[str, Any]]:
        """Return the places by loader, of plain types and tensors; empty for one without a place.

        ===========  =========================================================================
        key          value
        ===========  =========================================================================
        batches      batches taken in the pass; missing between passes
        start        the random state before the pass
        first        the random state before the first indices; missing if there are none yet
        again        whether persistent workers have begun in an earlier pass
        check        a checksum of the first indices; None for unknown
        state        the state of the sampler, or of an iterable data set, if it has a state
                     (between passes too: it may count the passes)
        workers      the random state of each worker
        ===========  =========================================================================
        """
        if not self._watched:
            return self._after_fit
        in_pass = has_batch_left(self._trainer)
        ahead = batches_ahead(self._trainer) if in_pass else 0
        places: list[dict[str, Any]] = []
        for loader, iterator in running_loaders(self._trainer.fit_loop):
            watched = self._of(loader)
            place = {} if watched is None else watched.place(loader, iterator, ahead, in_pass)
            places.append(place)
        return places if any(places) else []

    def begin(self, places: list[dict[str, Any]]) -> None:
        """Have the loaders' next iterators begin at saved places."""
        for loader, place in zip(train_loaders(self._trainer), places, strict=False):
            if loader in self._watched:
                self._watched[loader].next_place = place

    def why_not(self, places: list[dict[str, Any]]) -> str:
        """Return why a loader cannot go on within its pass; empty if all can."""
        for index, loader in enumerate(train_loaders(self._trainer)):
            if hasattr(loader, "load_state_dict"):
                continue  # Lightning restores it
            if index < len(places) and "batches" in places[index] and loader in self._watched:
                continue
            return _why_none(loader)
        return ""


PATIENCE = 10
"""Seconds of skipping indices before a line says so."""


def place_of_another_rank(place: dict[str, Any]) -> dict[str, Any]:
    """Return the place of a rank that is as far in its pass as the rank of a place."""
    if not {"start", "batches"} <= place.keys():
        return {}
    known = {name: place[name] for name in place.keys() & {"start", "first", "batches"}}
    return known | {"check": None}


def _is_ordinary(loader: Any) -> bool:
    names = "_get_iterator", "_index_sampler"
    is_known = isinstance(loader, DataLoader) and all(hasattr(loader, name) for name in names)
    return is_known and not hasattr(loader, "load_state_dict")


def _why_none(loader: Any) -> str:
    if not _is_ordinary(loader):
        return f"{type(loader).__name__} is no DataLoader of torch and saves no state"
    if isinstance(loader.dataset, IterableDataset):
        return f"{type(loader.dataset).__name__} is iterable, and saves no state that can be used"
    if not getattr(loader, "in_order", True):
        return "its workers answer in any order (in_order=False)"
    return "the file does not have its place"


class WatchedLoader:
    """A training loader whose iterators note their place.

    Args:
        loader: The loader.
        fit: The fit, after which the loader is as before.
    """

    def __init__(self, loader: Any, fit: FitChanges) -> None:
        self.next_place: dict[str, Any] = {}
        """Where the next iterator is to begin; empty: at the beginning of a pass."""
        self._sampler: NotedSampler | None = None  # of the last iterator
        if loader.num_workers and getattr(loader, "_iterator", None) is not None:
            warn(
                "the persistent workers of a training loader were started before the fit: a run "
                "resumed from a file of the first pass begins a new pass. Iterate the loader in "
                "the fit alone"
            )
        make = partial(self._make, weakref.ref(loader), loader._get_iterator)
        fit.patch(loader, "_get_iterator", instead=make)

    def _make(self, of_loader: weakref.ref[Any], make: Callable[[], Any]) -> Any:
        """Make an iterator that notes its place, and begins at the next place."""
        loader: Any = of_loader()
        place, self.next_place = self.next_place, {}
        if len(place.get("workers", ())) not in (0, loader.num_workers):
            del place["workers"]
            warn(
                "a training loader has another number of workers than before the resume: random "
                "augmentations in its workers differ from the uninterrupted run's"
            )
        generators = Generators(*generators_of(loader))
        workers = _Workers(loader, place) if loader.num_workers else None
        self._sampler = sampler = NotedSampler(loader._index_sampler, generators, workers, place)
        with ExitStack() as making:
            if "batches" in place:
                making.enter_context(generators.kept())
            if "state" in place:
                _load_state(loader, place)
            if workers is not None:
                making.enter_context(workers.watched(loader))
            making.enter_context(_shown(sampler, loader))
            iterator = make()
            sampler.iterator = weakref.ref(iterator)
        if "batches" in place:
            iterator._num_yielded = place["batches"] if workers is None else workers.skipped
            while iterator._num_yielded < place["batches"]:
                next(iterator)
        return iterator

    def place(self, loader: Any, iterator: Any, ahead: int, in_pass: bool) -> dict[str, Any]:
        """Return the place of an iterator of the loader.

        Args:
            loader: The loader.
            iterator: The iterator; None before the first and after the fit.
            ahead: The batches fetched, but not trained on.
            in_pass: Whether the pass has batches left.
        """
        if iterator is None:
            return self._between_passes(loader, self._sampler, None)
        sampler = getattr(iterator, "_index_sampler", None)
        if not isinstance(sampler, NotedSampler):  # an iterator of the user's
            return {}
        is_iterable = isinstance(loader.dataset, IterableDataset)
        if not in_pass:
            sent = None if is_iterable else iterator._send_idx if loader.num_workers else 0
            return self._between_passes(loader, sampler, sent)
        part = None if loader.num_workers or ahead else _stateful_part(loader)
        if part is None and (is_iterable or not getattr(loader, "in_order", True)):
            return {}
        batches = max(iterator._num_yielded - ahead, 0)
        return (
            sampler.place(batches)
            if part is None
            else {"batches": batches, "state": part.state_dict()}
        )

    @staticmethod
    def _between_passes(
        loader: Any, sampler: NotedSampler | None, sent: int | None
    ) -> dict[str, Any]:
        """Return what the next pass begins with.

        Args:
            loader: The loader.
            sampler: The sampler of the last iterator; None without.
            sent: The batches that the workers were asked for; None if they may have ended earlier.
        """
        part = _stateful_part(loader)
        place = {} if part is None else {"state": part.state_dict()}
        if sampler is not None and loader.persistent_workers:
            place |= sampler.place_between_passes(sent)
        return place


@contextmanager
def _shown(sampler: NotedSampler, loader: Any) -> Iterator[None]:
    """Show a sampler to the iterator that is made in the block.

    A ``DataLoader`` refuses a new sampler, because a running iterator would not follow.
    """
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    own = vars(loader)[name]
    vars(loader)[name] = sampler
    try:
        yield
    finally:
        vars(loader)[name] = own


def _give_back_sampler(loader: Any, iterator: Any) -> None:
    """Give an iterator the loader's own sampler; persistent workers are for the next fit too."""
    sampler = getattr(iterator, "_index_sampler", None)
    if isinstance(sampler, NotedSampler) and not loader.persistent_workers:
        iterator._index_sampler, iterator._sampler_iter = sampler.own, sampler.indices


def _stateful_part(loader: Any) -> Any:
    """Return what has a state of its own: an iterable data set or a sampler; None without."""
    parts: list[Any] = [loader.dataset]
    if not isinstance(loader.dataset, IterableDataset):
        inner = getattr(loader.batch_sampler, "sampler", None)
        parts = [loader.batch_sampler, inner, loader.sampler]
    both = "state_dict", "load_state_dict"
    return next((part for part in parts if all(hasattr(part, name) for name in both)), None)


def _load_state(loader: Any, place: dict[str, Any]) -> None:
    """Give the data set, or the sampler, its saved state.

    After a whole pass the state may be one from which nothing follows. In the uninterrupted run the
    pass has used it up, and the next pass begins anew: so it does here.
    """
    part = _stateful_part(loader)
    part.load_state_dict(copy.deepcopy(place["state"]))
    if "batches" in place or (loader.num_workers and part is loader.dataset):
        return
    with isolated(*generators_of(loader)):
        is_used_up = next(iter(part), part) is part
    if not is_used_up:
        part.load_state_dict(place["state"])


class NotedSampler:
    """Stands for the sampler of a loader's iterator; notes the random state before each pass.

    Args:
        sampler: The loader's sampler of indices, or of lists of indices.
        generators: What the sampler may draw from.
        workers: The iterator's workers; None without.
        place: Where the iterator is to begin; empty: at the beginning of a pass.
    """

    indices: Iterator[Any]
    """The sampler's own iterator in the present pass."""
    iterator: Callable[[], Any] | None = None
    """The loader's iterator; None while it is made: with workers it asks for indices already."""

    def __init__(
        self, sampler: Any, generators: Generators, workers: _Workers | None, place: dict[str, Any]
    ) -> None:
        self.own, self._generators, self._workers = sampler, generators, workers
        self._place = place if "start" in place else {}
        self._noted: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.own)

    def __iter__(self) -> Iterator[Any]:
        """Begin a pass; note the random state, or restore the saved one."""
        if self.iterator is not None and self._workers is not None:
            self._workers.begin_pass(self.iterator()._send_idx)
        again = self.iterator is not None or self._place.get("again", False)
        if again or not self._noted:  # a new iterator with workers asks twice for one pass
            if self._place:
                self._generators.load(self._place["start"])
            self._noted = {"start": self._generators.states(), "again": again}
        self.indices = iter(self.own)
        return chain.from_iterable(self._parts(self.indices))

    def _parts(self, indices: Iterator[Any]) -> Iterator[Any]:
        """Yield the first indices, which may be skipped, and the iterator over all others."""
        place, self._place = self._place, {}
        if "check" not in place:  # no indices were asked for
            place = {}
        generators, is_made = self._generators, self.iterator is not None
        skips = 0 if not place else self._workers.skipped if self._workers else place["batches"]
        with generators.kept() if is_made and place else nullcontext():
            of_run = generators.states() if is_made and place else []
            if "first" in place:
                generators.load(place["first"])
            self._noted["first"] = generators.states()
            first = [*islice(indices, 1)]
            self._noted["check"] = zlib.crc32(repr(first).encode())
            if place:
                self._skip(indices, skips, place, of_run)
        yield from [] if skips else [first]
        yield indices

    def _skip(self, indices: Iterator[Any], count: int, place: dict[str, Any], of_run: Any) -> None:
        """Skip indices after the first; warn if the order may differ."""
        before = self._generators.states()
        name = type(getattr(self.own, "sampler", self.own)).__name__
        begin, is_told = time.monotonic(), False
        for done, _ in enumerate(islice(indices, max(count - 1, 0)), start=2):
            if not is_told and time.monotonic() - begin > PATIENCE:
                is_told = True
                logging.getLogger("lightning_hooks").warning(
                    "skipping the indices of %s to where the file stood, %d of %d batches so far; "
                    "Ctrl-C ends the wait",
                    *(name, done, count),
                )
        after = self._generators.states()
        if place["check"] not in (None, self._noted["check"]):
            warn(
                f"{name} gives other indices than in the run that wrote the file: the rest of the "
                "pass has other samples than the uninterrupted run's. The loader, or the "
                "number of ranks, has changed, or the sampler has a state without a state_dict()"
            )
        elif _draws_from_shared(before, after, of_run):
            warn(
                f"{name} draws random numbers for each batch from a generator of the process, "
                "from which others draw too: the rest of the pass may have other samples than "
                "the uninterrupted run's. Give the sampler a torch.Generator"
            )

    def place(self, batches: int) -> dict[str, Any]:
        """Return the place after a number of batches of the present pass."""
        if self._place:  # a resumed run that has taken no batch yet
            return {**self._place, "batches": batches}
        place = {**self._noted, "batches": batches}
        if "first" in place:  # what the two states share is in a file once
            pairs = zip(place["start"], place["first"], strict=True)
            place["first"] = [start if are_equal(start, first) else first for start, first in pairs]
        for name in place.keys() & {"start", "first"}:
            place[name] = Generators.plain(place[name])
        if self._workers is not None:
            place["workers"] = self._workers.after_rounds_of(batches)
        return place

    def place_between_passes(self, sent: int | None) -> dict[str, Any]:
        """Return the states of persistent workers.

        Args:
            sent: The batches that the workers were asked for; None if they may end earlier.
        """
        return {} if self._workers is None else {"workers": self._workers.after_all(sent)}


def _draws_from_shared(before: list[Any], after: list[Any], of_run: list[Any]) -> bool:
    """Whether a sampler, while skipped, has drawn what may be drawn by others in the run.

    Args:
        before: The states before the indices were skipped.
        after: The states after.
        of_run: The states of the run; empty if unknown.
    """
    for index in range(len(GENERATORS)):
        is_drawn_from = not are_equal(before[index], after[index])
        if is_drawn_from and not (of_run and are_equal(after[index], of_run[index])):
            return True
    return False


class _Workers:
    """The random states of an iterator's workers, by the number of batches taken.

    The workers get the batches of a pass in turn, a round at a time.

    Args:
        loader: The loader.
        place: Where the iterator is to begin.
    """

    def __init__(self, loader: Any, place: dict[str, Any]) -> None:
        self._count, self._place = loader.num_workers, place
        # ahead of training are the rest of a round, the prefetched batches, and Lightning's fetched
        self._states = WorkerStates(loader.collate_fn, self._count, loader.prefetch_factor + 6)
        self._first_round = place.get("batches", 0) // self._count
        self._before = [0] * self._count  # batches of each worker in earlier passes

    @property
    def skipped(self) -> int:
        """The batches of the full rounds before the place."""
        return int(self._first_round * self._count)

    @contextmanager
    def watched(self, loader: Any) -> Iterator[None]:
        """Have the workers started in the block copy their states, and begin in the saved ones."""
        values: dict[str, Any] = {"collate_fn": self._states}
        states = self._place.get("workers", [])
        if states:
            self._states.begin_in(states)
            values["worker_init_fn"] = partial(restore_worker, loader.worker_init_fn, states)
            if "batches" not in self._place:
                # an uninterrupted run has the workers already, and draws no seed
                values["generator"] = torch.Generator()
        with setting(loader, **values):
            yield

    def begin_pass(self, sent: int) -> None:
        """Begin another pass, after a number of batches that the workers were asked for."""
        self._before, self._first_round = self._after(sent), 0

    def _after(self, sent: int) -> list[int]:
        shares = [len(range(worker, sent, self._count)) for worker in range(self._count)]
        return [*map(sum, zip(self._before, shares, strict=True))]

    def after_rounds_of(self, batches: int) -> list[Any]:
        """Return the states after the full rounds in a number of batches of the pass."""
        rounds = batches // self._count - self._first_round
        return self._states.read([before + rounds for before in self._before])

    def after_all(self, sent: int | None) -> list[Any]:
        """Return the states after the batches that the workers were asked for."""
        if sent is not None:
            until = time.monotonic() + SECONDS_OF_A_BATCH
            while self._states.copies < sum(self._after(sent)) and time.monotonic() < until:
                time.sleep(0.001)
        return self._states.read()
