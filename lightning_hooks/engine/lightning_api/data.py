"""Read and replace the training data of Lightning's fit loop; prepare and run a batch."""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.utilities.data import extract_batch_size

from lightning_hooks.engine.lightning_api.method_patch import FitChanges, MethodPatch, setting
from lightning_hooks.engine.lightning_api.private_names import (
    SAMPLERS,
    combined_loader,
    data_fetcher,
    keep_loaders,
    needs,
    private_import,
    set_fetcher,
    set_loader,
)
from lightning_hooks.engine.lightning_api.progress import (
    batches,
    is_last_batch,
    is_resuming_mid_epoch,
)
from lightning_hooks.utils.fsdp import is_flattened
from lightning_hooks.utils.random_state import isolated

__all__ = [
    "batch_size",
    "batches_ahead",
    "before_iterator",
    "before_reload",
    "copy_for_another_iterator",
    "end_workers",
    "generators_of",
    "in_forward",
    "iterate_again",
    "iterator_of",
    "keep_train_data",
    "leave_unread",
    "lost_of_workers",
    "may_go_on_in_pass",
    "prepare_batch",
    "reloads_next",
    "renew_iterator",
    "replace_loader",
    "running_loaders",
    "save_without_draws",
    "say_nothing_of_passes",
    "set_last_reload",
    "set_train_length",
    "stateful_loaders",
    "switch_loader",
    "train_generators",
    "train_loaders",
]

_set_sampler_epoch = private_import(SAMPLERS, "_set_sampler_epoch")

ITERATES_NEXT = "_load_combined_loader_states"
"""The method of the fit loop after which Lightning makes the training iterator."""

changes_data = needs("training data changed by hooks")
follows_reloads = needs("training loaders reloaded in a resumed run")


def may_go_on_in_pass(trainer: L.Trainer) -> bool:
    """Whether a resumed run has batches left in a pass over the data that has begun."""
    return is_resuming_mid_epoch(trainer) and not is_last_batch(trainer)


def batches_ahead(trainer: L.Trainer) -> int:
    """Return how many batches Lightning has fetched beyond those trained on.

    The batches are one read ahead of a loader without length, and one whose step has raised.
    """
    read_ahead = len(getattr(data_fetcher(trainer.fit_loop), "batches", ()))
    current = batches(trainer).current
    return read_ahead + max(int(current.ready - current.processed), 0)


def running_loaders(loop: Any) -> list[tuple[Any, Any]]:
    """Return the loaders of a fit or validation loop with their iterators; None for none yet."""
    combined: Any = combined_loader(loop)
    if combined is None:
        return []
    # Lightning iterates validation loaders one after the other
    iterators = () if combined._iterator is None else combined._iterator.iterators
    return [*itertools.zip_longest(combined.flattened, iterators)]


def batch_size(batch: Any) -> int | None:
    """Return Lightning's count of the samples in a batch; None if Lightning cannot count."""
    try:
        return extract_batch_size(batch)
    except (MisconfigurationException, RecursionError):
        return None


def train_loaders(trainer: L.Trainer) -> list[Any]:
    """Return the iterated training loaders, with injected samplers; empty before fit."""
    combined = combined_loader(trainer.fit_loop)
    return [] if combined is None else list(combined.flattened)


def iterator_of(trainer: L.Trainer, loader: Any) -> Any:
    """Return the iterator of the training, or of a validation, over a loader.

    Raises:
        AttributeError: if the loader is not iterated.
    """
    for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop.val_loop):
        for running, iterator in running_loaders(loop):
            if running is loader and iterator is not None:
                return iterator
    raise AttributeError("there is no iterator over the loader now")


def generators_of(loader: Any) -> list[torch.Generator]:
    """Return the generators given to a loader and the loader's samplers."""
    sampler, batch_sampler = (getattr(loader, name, None) for name in ("sampler", "batch_sampler"))
    parts = loader, sampler, batch_sampler, getattr(batch_sampler, "sampler", None)
    generators = [getattr(part, "generator", None) for part in parts]
    return [*dict.fromkeys(each for each in generators if isinstance(each, torch.Generator))]


def train_generators(trainer: L.Trainer) -> list[torch.Generator]:
    """Return the training loaders' own generators; empty before fit."""
    return [generator for x in train_loaders(trainer) for generator in generators_of(x)]


def copy_for_another_iterator(loader: Any) -> Any:
    """Return a loader to iterate beside the loop's own passes.

    Persistent workers serve one pass at a time. A resumed run starts new workers, which draw a
    seed; so the other iterator has new workers in every run.
    """
    if not getattr(loader, "persistent_workers", False):
        return loader
    again = copy.copy(loader)
    again._iterator = None
    vars(again).pop("_get_iterator", None)  # what is noted of the pass stays
    return again


def end_workers(loader: Any) -> bool:
    """End a loader's persistent workers, which keep a copy of the data set; return if it has any.

    The next iterator starts new workers.
    """
    persist = bool(getattr(loader, "persistent_workers", False))
    if persist:
        loader._iterator = None
    return persist


class _Unread:
    """Stands for a loader while Lightning makes an iterator, and shows the loader again.

    The iterator yields a single None, for the batch prefetched from a loader without a length.
    """

    def __init__(self, loader: Any, show: Callable[[], None]) -> None:
        self._loader, self._show = loader, show

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[None]:
        self._show()
        return iter([None])


@changes_data
def leave_unread(trainer: L.Trainer) -> None:
    """Have the training iterator that Lightning is about to make read nothing from the loaders."""
    combined: Any = combined_loader(trainer.fit_loop)
    loaders = combined.flattened
    show = partial(setattr, combined, "flattened", loaders)
    combined.flattened = [_Unread(loader, show) for loader in loaders]


@changes_data
def before_iterator(
    trainer: L.Trainer, call: Callable[[], None], fit: FitChanges, until: ExitStack | None = None
) -> None:
    """Call a function when Lightning is about to make an iterator of newly set up loaders."""
    fit.patch(trainer.fit_loop, ITERATES_NEXT, after=lambda _: call(), until=until)


@follows_reloads
def set_last_reload(trainer: L.Trainer) -> None:
    """Set the epoch of a resumed run's last reload to that of the uninterrupted run."""
    every = _reload_epochs(trainer)
    if every:
        begun = trainer.current_epoch - (not is_resuming_mid_epoch(trainer))
        loop: Any = trainer.fit_loop
        loop._last_train_dl_reload_epoch = begun // every * every


def _reload_epochs(trainer: Any) -> int:
    """Return after how many epochs Lightning reloads the training loaders; 0 for never."""
    return int(trainer.reload_dataloaders_every_n_epochs)


@follows_reloads
def before_reload(trainer: L.Trainer, call: Callable[[], None], fit: FitChanges) -> None:
    """Call a function when Lightning may be about to reload the training loaders."""
    if _reload_epochs(trainer):
        fit.patch(trainer.fit_loop, "setup_data", before=call)


def reloads_next(trainer: L.Trainer) -> bool:
    """Whether Lightning is about to reload the training loaders."""
    loop: Any = trainer.fit_loop
    return bool(loop._should_reload_train_dl)


def iterate_again(trainer: L.Trainer) -> None:
    """Make another training iterator, of the same loaders and workers."""
    iter(data_fetcher(trainer.fit_loop))


def say_nothing_of_passes(trainer: L.Trainer, fit: FitChanges) -> None:
    """Suppress Lightning's warning that a loader without a state cannot be resumed."""
    loop, once = trainer.fit_loop.epoch_loop, fit.part()
    reset = loop.reset

    def quiet() -> None:
        once.close()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before")
            reset()

    fit.patch(loop, "reset", instead=quiet, until=once)


def save_without_draws(trainer: L.Trainer, fit: FitChanges) -> None:
    """Have a file draw no random numbers, as a loader with a state does that has no iterator yet.

    So it is in a resumed run that begins with the validation at the end of an epoch.
    """
    loop: Any = trainer.fit_loop
    states = loop.on_save_checkpoint

    def isolated_states() -> Any:
        with isolated():
            return states()

    fit.patch(loop, "on_save_checkpoint", instead=isolated_states)


def stateful_loaders(trainer: L.Trainer) -> list[Any]:
    """Return the training loaders with a state of their own, which Lightning saves and restores."""
    return [loader for loader in train_loaders(trainer) if hasattr(loader, "load_state_dict")]


def lost_of_workers(trainer: L.Trainer, in_pass: bool) -> str:
    """Return what a resumed run lacks of the workers of loaders with a state of their own.

    Args:
        trainer: The Trainer.
        in_pass: Whether the run goes on within a pass over the data.
    """
    stateful = stateful_loaders(trainer)
    with_workers = [loader for loader in stateful if getattr(loader, "num_workers", 0)]
    if in_pass:
        return "random augmentations" if with_workers else ""
    persist = any(getattr(loader, "persistent_workers", False) for loader in with_workers)
    return "with persistent workers, the order of the data and random augmentations" * persist


@changes_data
def renew_iterator(trainer: L.Trainer) -> None:
    """Remake the training iterator: new workers see the current data set."""
    fetcher = data_fetcher(trainer.fit_loop)
    if fetcher is None:
        raise RuntimeError("there is no training data to iterate yet")
    for loader in train_loaders(trainer):
        end_workers(loader)
        _set_sampler_epoch(loader, trainer.current_epoch)  # Lightning's call follows: too late
    iter(fetcher)


def prepare_batch(trainer: L.Trainer, batch: Any, dataloader_idx: int = 0) -> Any:
    """Return a batch prepared for a step: converted and transferred by the module's methods."""
    module: Any = trainer.lightning_module
    batch = trainer.precision_plugin.convert_input(batch)
    convert = getattr(module, "_on_before_batch_transfer", None)
    if convert is not None:
        batch = convert(batch, dataloader_idx=dataloader_idx)
    return trainer.strategy.batch_to_device(batch, dataloader_idx=dataloader_idx)


def in_forward(trainer: L.Trainer, run: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a function that uses layers of the module, with FSDP's parameters whole.

    If FSDP wraps the module, all ranks must call ``in_forward`` equally often. Otherwise the
    function is simply called.

    Args:
        trainer: The Trainer.
        run: The function.
        *args: Arguments of the function; FSDP moves and casts tensors among them.
        **kwargs: Keyword arguments of the function.
    """
    model: Any = trainer.model
    if not is_flattened(model) or model.training_state.name == "FORWARD_BACKWARD":
        return run(*args, **kwargs)

    def forward(*args: Any, **kwargs: Any) -> Any:
        patch.remove()  # the function may call the module itself
        return run(*args, **kwargs)

    patch = MethodPatch(trainer.lightning_module, "forward", instead=forward)
    try:
        return model(*args, **kwargs)
    finally:
        patch.remove()


@changes_data
def keep_train_data(trainer: L.Trainer, until: ExitStack) -> None:
    """Go back to the present loaders after ``until``."""
    loop = trainer.fit_loop
    until.callback(lambda: set_fetcher(loop, data_fetcher(loop)))  # called last
    until.enter_context(setting(trainer, val_check_batch=trainer.val_check_batch))
    until.enter_context(setting(loop, max_batches=loop.max_batches))
    until.enter_context(keep_loaders(loop))


@changes_data
def replace_loader(trainer: L.Trainer, loader: Any) -> None:
    """Train on ``loader`` from the next iterator on: samplers, limits and counts follow.

    Nothing is read from the loader: the caller makes the iterator, or Lightning does.
    """
    loop = trainer.fit_loop
    set_loader(loop, loader)
    patch = MethodPatch(loop, ITERATES_NEXT, after=lambda _: leave_unread(trainer))
    try:
        loop.setup_data()
    finally:
        patch.remove()
    for inner in train_loaders(trainer):
        _set_sampler_epoch(inner, trainer.current_epoch)


@changes_data
def switch_loader(trainer: L.Trainer, loader: Any) -> None:
    """Train on ``loader`` from the next batch on, in the midst of an epoch."""
    loop = trainer.fit_loop
    fetcher = data_fetcher(loop)  # the running epoch uses this fetcher
    replace_loader(trainer, loader)
    set_fetcher(loop, fetcher)
    iter(fetcher)


@changes_data
def set_train_length(trainer: L.Trainer, batches: int) -> None:
    """Set the number of batches of the beginning epoch."""
    loop: Any = trainer.fit_loop
    loop.max_batches = batches
    combined: Any = combined_loader(loop)
    combined.limits = batches
