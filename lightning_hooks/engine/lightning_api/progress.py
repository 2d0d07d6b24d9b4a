"""Read and change the counters of Lightning's loops."""

from __future__ import annotations

from typing import Any

import lightning as L

from lightning_hooks.engine.lightning_api.method_patch import FitChanges, setting
from lightning_hooks.engine.lightning_api.private_names import data_fetcher, needs
from lightning_hooks.engine.lightning_api.releases import (
    count_ended_epoch,
    leave_epoch,
    restarted,
    restarted_at_epoch_end,
    resumes,
)

__all__ = [
    "accumulates",
    "batch_ends",
    "batch_idx",
    "batches",
    "batches_done",
    "batches_in_window",
    "begin_with_epoch_end",
    "begin_with_validation",
    "begins_epoch",
    "begins_with_last_validation",
    "close_skipped_batches",
    "count_step",
    "end_as_any_epoch",
    "ends_epoch",
    "epoch_end_is_left",
    "epoch_is_over",
    "forget_minimum",
    "go_on_from_step",
    "goes_on_in_epoch",
    "has_batch_left",
    "has_fewer_batches",
    "has_lost_validation",
    "is_at_end",
    "is_last_batch",
    "is_resuming_mid_epoch",
    "iterates_anew",
    "iterations_by_epoch",
    "keep_global_step",
    "last_logged_step",
    "leave_resumed_epoch",
    "logged_step",
    "run_epoch_end",
    "set_epoch",
    "set_iteration",
    "set_max_epochs",
    "set_max_steps",
    "validates_next",
    "validation_is_left",
    "was_ended_early",
]


def batches(trainer: L.Trainer) -> Any:
    """Return Lightning's counts of training batches: ``total`` of the run, ``current`` epoch.

    ``total.completed`` is equal for all callbacks of an event: un-incremented in
    ``on_train_batch_end``, incremented in a following validation. ``current.ready`` includes the
    current batch. The objects stay the same for the life of the Trainer's loop.
    """
    return trainer.fit_loop.epoch_loop.batch_progress


def batch_idx(trainer: L.Trainer) -> int:
    """Return the index of the training batch in the epoch; between epochs, of the last batch."""
    return max(int(batches(trainer).current.ready) - 1, 0)


def batches_done(trainer: L.Trainer) -> int:
    """Return the number of training batches of the epoch that have ended."""
    return int(batches(trainer).current.completed)


def batch_ends(trainer: L.Trainer) -> bool:
    """Whether Lightning is calling, or an error has cut, the events of a training batch's end.

    The batch at which the module skips the rest of the epoch has no such events, and is never
    counted as completed.
    """
    epochs: Any = trainer.fit_loop.epoch_progress.current
    if epochs.processed == epochs.started:
        return False
    current = batches(trainer).current
    return bool(current.completed < current.processed == current.ready)


def is_last_batch(trainer: L.Trainer) -> bool:
    """Return whether the training batch is the epoch's last, also for a loader without length."""
    loop = trainer.fit_loop.epoch_loop
    return bool(loop.batch_progress.is_last_batch or getattr(loop, "_is_training_done", False))


def has_batch_left(trainer: L.Trainer) -> bool:
    """Return whether the pass has a batch left to train on, or to repeat after an error.

    After the batch, a pass that the run's end, or the module, cuts short has none: to Lightning the
    epoch is done.
    """
    counts = batches(trainer).current
    if counts.processed < counts.ready:
        return True
    if ends_epoch(trainer):
        return False
    if counts.completed == counts.processed:
        return not epoch_is_over(trainer)
    epochs: Any = trainer.fit_loop.epoch_progress.current
    is_cut = counts.started < counts.processed and epochs.processed == epochs.ready
    return not (is_cut or is_last_batch(trainer))


def was_ended_early(trainer: L.Trainer) -> bool:
    """Whether the run resumes from the end of an epoch that had batches left."""
    progress = batches(trainer)
    is_between = not is_resuming_mid_epoch(trainer)
    return bool(is_between and progress.current.processed and not progress.is_last_batch)


def has_fewer_batches(trainer: L.Trainer) -> bool:
    """Whether an epoch of the resumed run has no more batches than the file's epoch had done."""
    progress = batches(trainer)
    is_enough = progress.current.processed >= trainer.num_training_batches
    return bool(is_enough and not progress.is_last_batch)


def begins_epoch(trainer: L.Trainer) -> bool:
    """Whether Lightning is calling, or an error has cut, the events of an epoch's start."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    return bool(epochs.started < epochs.ready)


def ends_epoch(trainer: L.Trainer) -> bool:
    """Whether Lightning is calling, or an error has cut, the events of an epoch's end."""
    epochs: Any = trainer.fit_loop.epoch_progress.current
    return bool(epochs.completed < epochs.processed == epochs.ready)


def epoch_is_over(trainer: L.Trainer) -> bool:
    """Whether no training batch of the epoch is left: a validation starting now ends the epoch."""
    stopping = trainer.should_stop and getattr(trainer.fit_loop, "_can_stop_early", False)
    return bool(is_last_batch(trainer) or stopping)


def validates_next(trainer: L.Trainer) -> bool:
    """Whether a validation follows the ending training batch."""
    loop = trainer.fit_loop
    fetcher = data_fetcher(loop)
    is_due = getattr(loop.epoch_loop, "_should_check_val_fx", None)
    return bool(fetcher and is_due and is_due(fetcher))


def is_resuming_mid_epoch(trainer: L.Trainer) -> bool:
    """Whether the run goes on inside an epoch, without an ``on_train_epoch_start``."""
    return restarted(trainer.fit_loop, "mid_epoch")


def resumed_after_last_batch(trainer: L.Trainer) -> bool:
    """Whether the resumed file was written in ``on_train_batch_end``: no batch is left in the pass.

    After the last batch Lightning begins a pass, without an ``on_train_epoch_start``.
    """
    return restarted(trainer.fit_loop.epoch_loop, "on_train_batch_end")


def goes_on_in_epoch(trainer: L.Trainer) -> bool:
    """Whether the epoch in which the file was written ends in the resumed run."""
    if not is_resuming_mid_epoch(trainer):
        return False
    return not (is_last_batch(trainer) and resumed_after_last_batch(trainer))


def accumulates(trainer: L.Trainer) -> bool:
    """Whether the gradients of the training batch wait for the step after a later batch."""
    return batches_in_window(trainer) > 0 and not is_last_batch(trainer)


def batches_in_window(trainer: L.Trainer) -> int:
    """Return how many batches of the epoch have gradients that are not stepped yet."""
    if not trainer.lightning_module.automatic_optimization:
        return 0
    return int(batches(trainer).current.processed % trainer.accumulate_grad_batches)


def iterates_anew(trainer: L.Trainer) -> bool:
    """Whether Lightning itself makes a new iterator for the starting epoch."""
    loop = trainer.fit_loop
    resuming = resumes(loop) or loop.epoch_loop.restarting
    return bool(trainer.current_epoch > 0 and not resuming)


@needs("ReduceLROnPlateau in the first epoch of a resumed run")
def end_as_any_epoch(trainer: L.Trainer, in_end: bool) -> None:
    """Step the ``ReduceLROnPlateau`` schedulers of a resumed run's first epoch, too.

    Lightning saves no metrics, and leaves out the step of the epoch in which a run is resumed, or
    in whose end the file was written. Here ``trainer.callback_metrics`` is the file's.

    Args:
        trainer: The Trainer, in ``on_train_start``.
        in_end: Whether the file was written in the events of an epoch's end: the step is due now.
    """
    trainer.fit_loop._restarting = False
    module, epochs = trainer.lightning_module, trainer.current_epoch
    if not (in_end and module.automatic_optimization and batches(trainer).is_last_batch):
        return
    for config in trainer.lr_scheduler_configs:
        metric = trainer.callback_metrics.get(config.monitor or "")
        waits = config.reduce_on_plateau and config.interval == "epoch" and metric is not None
        if waits and epochs % config.frequency == 0:
            module.lr_scheduler_step(config.scheduler, metric)


def leave_resumed_epoch(trainer: L.Trainer) -> None:
    """Go on with the next epoch after a resume from the end of an epoch, or before its successor.

    With ``max_steps`` set Lightning would add a batch to the finished epoch, or end the run: the
    loops wait for the rest of the epoch. An epoch that an error has kept from beginning would have
    no batches, and one whose last validation this run does not have, another batch. One that has
    fewer batches by now than were done would have another batch, or all.
    """
    loop: Any = trainer.fit_loop
    validated = loop.epoch_loop.val_loop.batch_progress.total
    # the batch that an error has cut short; else each later file would repeat its validation
    validated.ready = validated.started = validated.processed = validated.completed
    _repeat_batch(trainer)
    count_ended_epoch(loop)
    if restarted(loop, "on_epoch_start"):
        loop.epoch_loop.restarting = False
        # Lightning takes the epoch back in ``current`` alone, and does not count it again
        loop.epoch_progress.current.ready = loop.epoch_progress.current.started + 1
    lacks_validation = begins_with_last_validation(trainer) and not validates_next(trainer)
    lacks_batches = is_resuming_mid_epoch(trainer) and has_fewer_batches(trainer)
    if lacks_validation or lacks_batches or restarted_at_epoch_end(loop):
        leave_epoch(loop)


def _repeat_batch(trainer: L.Trainer) -> None:
    """Forget the batch that an error has cut short before its end; the run repeats the batch.

    Lightning's loops forget the batch in ``current`` alone, so that a later file would repeat
    another batch, and count an optimizer step for the loggers.
    """
    progress: Any = batches(trainer)
    if progress.current.processed == progress.current.ready:
        return
    for counts in (progress.current, progress.total):
        counts.ready = counts.started = counts.processed
    progress.is_last_batch = False
    if not batches_in_window(trainer):
        trainer.fit_loop.epoch_loop._batches_that_stepped -= 1


def validation_is_left(trainer: L.Trainer) -> bool:
    """Whether a file written now is one before a validation, which the resumed run begins with.

    The validation follows the training batch that ends, or an error has cut the validation short.
    """
    if trainer.validating:
        return bool(trainer.interrupted)
    return batch_ends(trainer) and validates_next(trainer)


def has_lost_validation(trainer: L.Trainer) -> bool:
    """Whether the file, which had the last step of the run, was written before a validation."""
    counts: Any = trainer.fit_loop.epoch_loop.val_loop.batch_progress.total
    return bool(counts.processed < counts.ready)


def is_at_end(trainer: L.Trainer) -> bool:
    """Whether the run has made its ``max_steps``."""
    return bool(0 <= trainer.max_steps <= trainer.global_step)


def begin_with_validation(checkpoint: dict[str, Any], is_cut: bool) -> None:
    """Have the run resumed from a file begin with a whole validation.

    From a file of the end of a training batch, Lightning would leave the validation out; from a
    file of a cut validation, go on with the next batch of the validation, or leave the rest out.
    Here, the loops' states are those of an error in the first batch of the validation.

    Args:
        checkpoint: Lightning's dict, changed.
        is_cut: Whether the validation has begun.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    trained, validated = (
        loops.get(f"epoch_loop.{name}") for name in ("batch_progress", "val_loop.batch_progress")
    )
    if trained is None or validated is None:
        return
    for counts in (trained["total"], trained["current"]):
        counts["completed"] = counts["processed"]
    done = validated["total"]["completed"]
    done -= validated["current"]["completed"] if is_cut else 0
    validated["current"] = dict.fromkeys(validated["current"], 0)
    validated["total"] = {"ready": done + 1, "started": done + 1, "processed": done}
    validated["total"]["completed"] = done
    validated["is_last_batch"] = False


def epoch_end_is_left(trainer: L.Trainer) -> bool:
    """Whether a file written now is one before the events of the epoch's end.

    The last batch ends, no validation follows; or an error has cut the events.
    """
    if ends_epoch(trainer):
        return bool(trainer.interrupted)
    return batch_ends(trainer) and is_last_batch(trainer) and not trainer.validating


def begin_with_epoch_end(checkpoint: dict[str, Any]) -> None:
    """Have the run resumed from a file begin with the whole events of the epoch's end.

    Lightning would leave the events out.

    Args:
        checkpoint: Lightning's dict, as read from the file, changed.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    batches = loops.get("epoch_loop.batch_progress", {})
    for counts in (batches[name] for name in ("total", "current") if name in batches):
        counts["completed"] = counts.get("processed", 0)
    batches["is_last_batch"] = True  # to Lightning not, where a limit exceeds the pass's length
    for counts in loops.get("epoch_progress", {}).values():
        counts["processed"] = counts.get("completed", 0)


def close_skipped_batches(checkpoint: dict[str, Any]) -> int:
    """Count the batches at which the module has skipped the rest of an epoch as done.

    Lightning leaves them open, and finds by open batches where a file was written: the resumed run
    would repeat a batch.

    Args:
        checkpoint: Lightning's dict, as read from the file, changed.

    Returns:
        The number of these batches.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop", {})
    counts = loops.get("epoch_loop.batch_progress")
    if counts is None:
        return 0
    total, current = counts["total"], counts["current"]
    epochs, done = loops["epoch_progress"]["current"], total["completed"]
    if epochs["processed"] == epochs["started"]:  # between epochs
        current.update(dict.fromkeys(current, current["completed"]))
    earlier = total["processed"] - current["processed"]  # a batch cut by an error is not processed
    total.update({name: earlier + count for name, count in current.items()})
    return int(total["completed"] - done)


def run_epoch_end(trainer: L.Trainer, fit: FitChanges) -> None:
    """Have the epoch of a file of :func:`begin_with_epoch_end` end without a batch or validation.

    Args:
        trainer: The Trainer, in ``on_train_start``.
        fit: The fit.
    """
    loop: Any = trainer.fit_loop.epoch_loop
    # a restarting loop waits for a validation
    fit.patch(loop, "on_run_start", after=lambda _: setattr(loop, "restarting", False))


def begins_with_last_validation(trainer: L.Trainer) -> bool:
    """Whether the resumed run begins with the validation that ends the epoch."""
    is_last = is_resuming_mid_epoch(trainer) and is_last_batch(trainer)
    return is_last and not resumed_after_last_batch(trainer)


def logged_step(trainer: L.Trainer) -> int:
    """Return the step of Lightning's loggers: the number of earlier batches with a step."""
    loop = trainer.fit_loop.epoch_loop
    batches = loop.batch_progress.current
    # an epoch's values have the step of the last batch, counted by then
    has_ended = trainer.training and batches.ready == batches.completed > 0
    return int(getattr(loop, "_batches_that_stepped", trainer.global_step)) - has_ended


def last_logged_step(trainer: L.Trainer) -> int:
    """Return the last step of Lightning's loggers before the beginning or resumed run."""
    if not trainer.lightning_module.automatic_optimization:
        # each of several optimizers counts global steps
        return int(batches(trainer).total.processed) - 1
    return int(trainer.global_step) - 1


def iterations_by_epoch(trainer: L.Trainer, steps: int, every: int) -> int:
    """Return the iterations of steps made after ``every`` batches and at the end of an epoch."""
    batches = trainer.num_training_batches
    if every == 1 or batches == float("inf"):
        return steps * every
    epochs, rest = divmod(steps, -(-int(batches) // every))
    return epochs * int(batches) + min(rest * every, int(batches))


def count_step(trainer: L.Trainer) -> None:
    """Count an optimizer step made without Lightning, under manual optimization."""
    steps = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    steps.increment_ready()
    steps.increment_completed()


def keep_global_step(trainer: L.Trainer) -> None:
    """Count the steps of manual optimization for automatic optimization too.

    ``trainer.global_step`` reads either count, by the module's current flag.
    """
    loop = trainer.fit_loop.epoch_loop
    total = loop.automatic_optimization.optim_progress.optimizer.step.total
    total.ready = total.completed = loop.manual_optimization.optim_step_progress.total.completed


def go_on_from_step(trainer: L.Trainer, steps: int) -> None:
    """Count on from the steps of a file, by whichever optimization they were made.

    Automatic and manual optimization have counts of their own, and ``trainer.global_step`` reads
    either: a resumed run may make its steps otherwise than the run that wrote the file.
    """
    if trainer.global_step == steps:
        return
    loop, automatic = trainer.fit_loop.epoch_loop, trainer.lightning_module.automatic_optimization
    counts: Any = loop.manual_optimization.optim_step_progress
    if automatic:
        counts = loop.automatic_optimization.optim_progress.optimizer.step
    counts.total.ready = counts.total.completed = steps


def set_epoch(trainer: L.Trainer, done: int) -> None:
    """Set the number of epochs done, for a hook that sets ``runner.epoch``."""
    counts: Any = trainer.fit_loop.epoch_progress.current
    counts.processed = counts.completed = done


def set_iteration(trainer: L.Trainer, done: int) -> None:
    """Set the number of batches done in a run with its own loop."""
    total = batches(trainer).total
    total.ready = total.started = total.processed = total.completed = done


def set_max_epochs(trainer: L.Trainer, epochs: int | None) -> None:
    """End the run after so many epochs, of earlier fits too."""
    trainer.fit_loop.max_epochs = epochs


def set_max_steps(trainer: L.Trainer, steps: int) -> None:
    """End the run after so many optimizer steps, of earlier fits too."""
    trainer.fit_loop.epoch_loop.max_steps = steps


def forget_minimum(trainer: L.Trainer, fit: FitChanges) -> None:
    """Let a fit end before ``min_epochs`` and ``min_steps``."""
    fit.enter_context(setting(trainer.fit_loop, min_epochs=0))
    fit.enter_context(setting(trainer.fit_loop.epoch_loop, min_steps=None))
