"""What the supported releases of Lightning lack; no other module knows a release.

===============================  ======  =======================================================
not in Lightning                 before  so
===============================  ======  =======================================================
``fit(weights_only=...)``        2.6     a file with other objects than tensors is refused
``WeightAveraging``              2.6     no callback is one
``val_check_batch`` before fit   2.6     asked by ``val_check_batch()``: None, as in 2.6
``restarted_...`` of the loops   2.5     a file from within an epoch is refused
``is_resuming`` of the fit loop  2.5.3   ``keep_first_iterator()`` does what Lightning does since
===============================  ======  =======================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api.method_patch import FitChanges, setting
from lightning_hooks.engine.lightning_api.private_names import needs, private_import
from lightning_hooks.utils.warn import rank_zero_warn

__all__ = [
    "after_skipped_validation",
    "check_file",
    "check_release",
    "count_ended_epoch",
    "is_weight_averaging",
    "keep_first_iterator",
    "leave_epoch",
    "restarted",
    "restarted_at_epoch_end",
    "resumes",
    "val_check_batch",
]

NEWEST = "2.6"
"""The newest release that the tests run with."""

_WeightAveraging = private_import("lightning.pytorch.callbacks", "WeightAveraging")


def check_release() -> None:
    """Warn of a release of Lightning that is newer than the tests."""
    if _release(L.__version__) > _release(NEWEST):
        rank_zero_warn(
            f"Lightning {L.__version__} is newer than {NEWEST}, the newest release that "
            "lightning_hooks was tested with; a private name that has changed is told by a line of "
            "its own"
        )


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def is_weight_averaging(callback: object) -> bool:
    """Whether a callback is Lightning's ``WeightAveraging``, which restores the raw weights."""
    return _WeightAveraging is not None and isinstance(callback, _WeightAveraging)


def check_file(contents: dict[str, Any], end_is_left: bool) -> None:
    """Check that Lightning can go on exactly where a checkpoint was written.

    Args:
        contents: Lightning's dict.
        end_is_left: Whether the resumed run is to begin with the events of an epoch's end.

    Raises:
        RuntimeError: The file was written within an epoch, and Lightning is older than 2.5.
    """
    if _release(L.__version__) >= (2, 5):
        return
    fit_loop = contents.get("loops", {}).get("fit_loop", {})
    epochs = fit_loop.get("epoch_progress", {}).get("current")
    if epochs is not None and (epochs["processed"] < epochs["ready"] or end_is_left):
        raise RuntimeError(
            f"the checkpoint was written within epoch {epochs['ready']}, where Lightning "
            f"{L.__version__} goes on with other batches and counts: resume from a file of an "
            "epoch's end, or from this file with Lightning 2.5 or newer"
        )


def restarted(loop: Any, where: str) -> bool:
    """Whether a loop of a resumed run begins at a place, as ``"mid_epoch"``; not before 2.5."""
    return bool(getattr(loop, f"restarted_{where}", False))


def count_ended_epoch(fit_loop: Any) -> None:
    """Count the epoch at whose end a run is resumed, in the total too, as from Lightning 2.5 on."""
    if not hasattr(fit_loop, "restarted_on_epoch_end"):
        total = fit_loop.epoch_progress.total
        total.completed = total.processed


def after_skipped_validation(val_loop: Any, call: Callable[[Any], None], fit: FitChanges) -> None:
    """Call a function where a resumed run leaves a validation out that it has had; not before 2.5.

    Args:
        val_loop: The validation loop of the fit.
        call: Called with None.
        fit: The fit.
    """
    if hasattr(val_loop, "increment_progress_to_evaluation_end"):
        fit.patch(val_loop, "increment_progress_to_evaluation_end", after=call)


def restarted_at_epoch_end(fit_loop: Any) -> bool:
    """Whether a resumed run begins with an epoch that has ended, validation included."""
    if hasattr(fit_loop, "restarted_on_epoch_end"):
        return bool(fit_loop.restarted_on_epoch_end and fit_loop.epoch_loop.restarted_on_last)
    epochs = fit_loop.epoch_progress.current
    return bool(fit_loop.restarting and epochs.processed == epochs.ready)


def leave_epoch(fit_loop: Any) -> None:
    """Count the epoch of a resumed run as over; the loops begin the next one as any other."""
    epochs = fit_loop.epoch_progress
    if hasattr(fit_loop, "reset_restart_stage"):
        fit_loop.reset_restart_stage()
    else:
        epochs.current.ready = epochs.total.ready
    for counts in (epochs.current, epochs.total):
        counts.completed = counts.processed = counts.ready
    fit_loop.restarting = fit_loop.epoch_loop.restarting = False


def resumes(fit_loop: Any) -> bool:
    """Whether the fit loop runs the first epoch of a resumed run."""
    return bool(getattr(fit_loop, "is_resuming", False))


@needs("the iterator of the first epoch of a resumed run")
def keep_first_iterator(trainer: L.Trainer, fit: FitChanges) -> None:
    """Iterate the training data of a resumed run's first epoch once, as from Lightning 2.5.3 on.

    Before, Lightning makes a second iterator as the epoch begins: persistent workers would have
    other random states than in the run without a resume.

    Args:
        trainer: The Trainer, before the file is read.
        fit: The fit.
    """
    fit_loop: Any = trainer.fit_loop
    epoch_loop, first_epoch = fit_loop.epoch_loop, fit.part()

    def begin(_: Any) -> None:
        first_epoch.enter_context(setting(fit_loop, is_resuming=True))

    def keep(*_: Any) -> None:
        if resumes(fit_loop):
            first_epoch.enter_context(setting(epoch_loop, _restarting=True))

    if not hasattr(fit_loop, "is_resuming"):
        fit.patch(fit_loop, "load_state_dict", after=begin)
        fit.patch(epoch_loop, "on_run_start", before=keep, after=lambda _: first_epoch.close())


def val_check_batch(trainer: L.Trainer) -> int | float | None:
    """Return the number of batches between two validations; None by time, and before a fit."""
    return getattr(trainer, "val_check_batch", None)
