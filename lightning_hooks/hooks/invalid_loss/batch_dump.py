"""Write the batch that made a loss invalid to a file, with all that is needed to run it again."""

from __future__ import annotations

from typing import Any

from lightning.fabric.utilities import move_data_to_device

from lightning_hooks.hooks.invalid_loss.loss_history import Step, values_of
from lightning_hooks.storage import files, torch_files

__all__ = ["dump_batch", "load_batch", "try_to_dump"]


def dump_batch(step: Step, directory: str, rank: int) -> str:
    """Write a step's batch as ``invalid_iter_<iter>_rank_<rank>.pt``; return the path.

    The file is written atomically. Its dict:

    ==================  =======================================================================
    key                 value
    ==================  =======================================================================
    batch               the batch as the step got it, on the CPU
    terms               the numbers of the step by name, ``loss`` among them
    iter                training iterations before the step
    epoch, inner_iter   epochs before, batches of the epoch before
    rank                the process
    rng_state           the random state before the step, for ``random_state.set_rng_state``
    ==================  =======================================================================

    Args:
        step: The step.
        directory: The directory, created if missing.
        rank: The number of this process.
    """
    path = files.join(directory, f"invalid_iter_{step.iter}_rank_{rank}.pt")
    content = {
        "batch": move_data_to_device(step.batch, "cpu"),
        "terms": values_of(step),
        "iter": step.iter,
        "epoch": step.epoch,
        "inner_iter": step.inner_iter,
        "rank": rank,
        "rng_state": step.rng_state,
    }
    torch_files.save_torch(content, path)
    return path


def try_to_dump(step: Step, directory: str, runner: Any) -> None:
    """Write a step's batch and log the path; a full disk costs a warning."""
    try:
        path = dump_batch(step, directory, runner.rank)
    except Exception as error:  # it must not hide the invalid loss
        runner.logger.warning("the batch of iter %d could not be written: %r", step.iter, error)
    else:
        runner.logger.warning("the batch of iter %d is in %s", step.iter, path)


def load_batch(path: str, *, weights_only: bool = True) -> dict[str, Any]:
    """Load a file that ``CheckInvalidLossHook`` has written of a bad batch.

    Args:
        path: The file, local or fsspec's.
        weights_only: Load tensors, numbers and strings in dicts and lists only. False loads any
            object, which runs code from the file: only for files that you trust.

    Raises:
        pickle.UnpicklingError: if ``weights_only`` and the batch has other objects.
    """
    found: dict[str, Any] = torch_files.load_torch(path, weights_only=weights_only)
    return found
