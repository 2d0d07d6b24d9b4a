"""Lightning's private names in use, by feature, and access to the loaders of Lightning's loops.

No other module reads or sets the loaders of a loop (the fit's or an evaluation's).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar, cast

import lightning as L
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.utilities.combined_loader import CombinedLoader

from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "PRIVATE_NAMES",
    "check_private_names",
    "combined_loader",
    "data_fetcher",
    "keep_loaders",
    "needs",
    "private_import",
    "set_fetcher",
    "set_loader",
]

F = TypeVar("F", bound=Callable[..., Any])

_DATA_CONNECTOR = "lightning.pytorch.trainer.connectors.data_connector"
RESULTS = "lightning.pytorch.trainer.connectors.logger_connector.result"
SAMPLERS = "lightning.fabric.utilities.data"

_CALLS = "lightning.pytorch.trainer.call"
_LAUNCHER = "lightning.pytorch.strategies.launchers.multiprocessing:_MultiProcessingLauncher"

_FIT, _VAL = "fit_loop.epoch_loop", "fit_loop.epoch_loop.val_loop"
_LOADER_SOURCE = f"{_DATA_CONNECTOR}:_DataLoaderSource"

PRIVATE_NAMES: dict[str, tuple[str, ...]] = {
    "training data changed by hooks": (
        *(f"fit_loop.{name}" for name in ("_combined_loader", "_data_fetcher", "_data_source")),
        "fit_loop._load_combined_loader_states",
        _LOADER_SOURCE,
        f"{SAMPLERS}:_set_sampler_epoch",
        "CombinedLoader._iterator",
    ),
    "training loaders reloaded in a resumed run": (
        *("fit_loop._last_train_dl_reload_epoch", "fit_loop._should_reload_train_dl"),
    ),
    "the iterator of the first epoch of a resumed run": ("old loop._restarting",),
    "ReduceLROnPlateau in the first epoch of a resumed run": ("fit_loop._restarting",),
    "SIGTERM on one of several ranks": (
        *("_signal_connector.received_sigterm", "_signal_connector._sigterm_notifier_fn"),
        "several ranks._broadcast_sigterm_tensor",
    ),
    "after_train_epoch of a stopped run": ("fit_loop._can_stop_early",),
    "after_train_epoch before the last validation": (f"{_FIT}._is_training_done",),
    "after_train_epoch in train mode": (f"{_VAL}._module_mode",),
    "Lightning's step in LightningLoggerHook": (f"{_FIT}._batches_that_stepped",),
    "the module's logged values in loggers": (
        *(f"{_FIT}._results", f"{_VAL}._results", "_logger_connector._first_loop_iter"),
    ),
    "a returned loss that the module also logs": ("lightning_module._compiler_ctx",),
    "checkpoints written after the validation": (f"{_FIT}._should_check_val_fx",),
    'ckpt_path="last" for hooks in a HookAdapter': (
        *("_checkpoint_connector.resume_start", "_run"),
        f"{_LAUNCHER}._wrapping_function",
    ),
    "callbacks that call the module's setup": (f"{_CALLS}:_call_callback_hooks",),
    "hyper-parameters that are not to be logged": ("lightning_module._log_hyperparams",),
    "checkpoints in shards": (
        *("FSDPStrategy._state_dict_type", "ModelParallelStrategy._save_distributed_checkpoint"),
    ),
    "values of hooks in callback_metrics": ("_logger_connector._callback_metrics",),
    "validations and tests run by hooks": (
        *(f"{_VAL}.{name}" for name in ("_combined_loader", "_data_source", "_max_batches")),
        f"{_VAL}._is_sequential",
        "_logger_connector._first_loop_iter",
        _LOADER_SOURCE,
        f"{RESULTS}:_ResultCollection",
    ),
    "a second validation": (
        *(f"{_VAL}.{name}" for name in ("_results", "_combined_loader", "_data_fetcher")),
        f"{_VAL}._seen_batches_per_dataloader",
        *(f"_logger_connector.{name}" for name in ("_callback_metrics", "_logged_metrics")),
        "_logger_connector._progress_bar_metrics",
    ),
    "an average of the parameters of a toggled-off optimizer": (
        "lightning_module._param_requires_grad_state",
    ),
    "calls of the model by hooks": (
        "lightning_module._current_fx_name",
        "lightning_module._on_before_batch_transfer",
    ),
}
"""The names by feature: a path of attributes from the Trainer or a key of ``OBJECTS``, or
``module:name``.
"""


def _strategy(kind: type, trainer: L.Trainer) -> Any:
    if not isinstance(trainer.strategy, kind):
        raise LookupError("the Trainer has another strategy")
    return trainer.strategy


def _loop_of_several_ranks(trainer: L.Trainer) -> Any:
    if trainer.world_size == 1:
        raise LookupError("the Trainer has one rank")
    return trainer.fit_loop.epoch_loop


def _loop_that_iterates_twice(trainer: L.Trainer) -> Any:
    if hasattr(trainer.fit_loop, "is_resuming"):
        raise LookupError("Lightning makes one iterator for the first epoch of a resumed run")
    return trainer.fit_loop.epoch_loop


OBJECTS: dict[str, Callable[[L.Trainer], Any]] = {
    "CombinedLoader": lambda _: CombinedLoader([]),
    "several ranks": _loop_of_several_ranks,
    "old loop": _loop_that_iterates_twice,
    **{kind.__name__: partial(_strategy, kind) for kind in (FSDPStrategy, ModelParallelStrategy)},
}
"""Other objects of Lightning's; without the object of a run there is nothing to check."""

_off: set[str] = set()
"""The features switched off: the installed Lightning lacks a name of each."""


def check_private_names(trainer: L.Trainer) -> None:
    """Switch off each feature whose private names Lightning lacks, with a warning.

    Args:
        trainer: A Trainer with a module, in ``setup``.
    """
    _off.clear()
    known = {name for names in PRIVATE_NAMES.values() for name in names}
    lacking = {name for name in known if not _exists(trainer, name)}
    for feature, names in PRIVATE_NAMES.items() if lacking else ():
        missing = [name for name in names if name in lacking]
        if missing:
            _off.add(feature)
            rank_zero_warn(
                f"Lightning {L.__version__} has no {', '.join(missing)}; switched off: {feature}; "
                "everything else works"
            )


@functools.cache
def _reader(name: str) -> Callable[[L.Trainer], Any]:
    """Return the function that reads a name of the table."""
    module, colon, path = name.rpartition(":")
    if colon:
        return lambda _: attrgetter(path)(importlib.import_module(module))
    first, _, attribute = name.partition(".")
    if first in OBJECTS:
        return lambda trainer: getattr(OBJECTS[first](trainer), attribute)
    return attrgetter(path)


def _exists(trainer: L.Trainer, name: str) -> bool:
    try:
        _reader(name)(trainer)
    except (AttributeError, ImportError):
        return False
    except Exception:  # a property that has no value yet
        return True
    return True


def needs(feature: str) -> Callable[[F], F]:
    """Decorate a function to return None without running while its feature is switched off."""
    assert feature in PRIVATE_NAMES, feature

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return None if feature in _off else function(*args, **kwargs)

        return cast(F, call)

    return decorate


def private_import(module: str, name: str) -> Any:
    """Return an attribute of a module by name, or None if Lightning lacks the name."""
    return getattr(importlib.import_module(module), name, None)


_LoaderSource = private_import(_DATA_CONNECTOR, "_DataLoaderSource")


def combined_loader(loop: Any) -> CombinedLoader | None:
    """Return a loop's loaders, with Lightning's samplers; None before ``setup_data()``."""
    return getattr(loop, "_combined_loader", None)  # None also where Lightning lacks the name


def set_loader(loop: Any, loader: Any) -> None:
    """Set the loader for the next ``loop.setup_data()``."""
    loop._data_source, loop._combined_loader = _LoaderSource(loader, ""), None


def keep_loaders(loop: Any) -> contextlib.AbstractContextManager[None]:
    """Restore a loop's present loaders after the block."""
    own = {"_data_source": loop._data_source, "_combined_loader": loop._combined_loader}
    return setting(loop, **own)


def data_fetcher(loop: Any) -> Any:
    """Return the object that fetches a loop's batches; None without data."""
    return getattr(loop, "_data_fetcher", None)


def set_fetcher(loop: Any, fetcher: Any) -> None:
    """Fetch the batches of the loop's present loaders with ``fetcher``."""
    loop._data_fetcher = fetcher
    if fetcher is not None:
        fetcher.setup(combined_loader(loop))
