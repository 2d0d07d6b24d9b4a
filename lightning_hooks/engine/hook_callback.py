"""The interface between the driver and callbacks with hooks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.checkpoint_file import CheckpointFile
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.priority import default_priority

__all__ = [
    "HookCallback",
    "RunnerOptions",
    "natives_with",
]


@dataclasses.dataclass(frozen=True)
class RunnerOptions:
    """Options of the Runner; None means unset."""

    by_epoch: bool | None = None
    work_dir: str | None = None
    meta: dict[str, Any] | None = None
    model: Callable[[Any], torch.nn.Module] | None = None
    attributes: dict[str, Any] | None = None
    owns_backward: bool | Literal["auto"] | None = None
    runner: Any = None


NO_OPTIONS = RunnerOptions()


class HookCallback(Callback):
    """A callback with hooks for the driver: a single hook, or an adapter with many."""

    _hosted_at: int | None = None
    """The index of a hook among the hosted hooks of the Trainer; None for a hook not hosted."""

    _joined_fit: FitChanges | None = None
    """The fit, or evaluation, for which the callback is set up; None between fits."""

    def _entries(self) -> Sequence[tuple[Any, int]]:
        """The hooks with priorities, in the order given; for a single hook the hook itself."""
        return [(self, default_priority(self))]

    def _runner_options(self) -> RunnerOptions:
        """The options set for the Runner."""
        return NO_OPTIONS

    # -- what the engine and other hooks ask of a hook ---------------------------------------

    def _method_at(self, point: str) -> Callable[..., None] | None:
        """Return the method to call at a point; None without one of the hook's own."""
        return None

    _runs_user_code: bool = False
    """Whether the hook calls a function, or a hook, of the user."""

    _reads_step: bool = True
    """Whether the hook reads ``runner.outputs``, or the log buffer's values of the step.

    Without such a hook a Trainer does not collect the values.
    """

    _reads_log_buffer: bool = False
    """Whether a hook with ``_reads_step = False`` reads the step's values in the log buffer.

    The values are added when the batch ends, at a lower cost than the step's result.
    """

    def _unused_events(self, trainer: L.Trainer) -> Collection[str]:
        """Return the events of a batch that the class defines and the beginning run needs not.

        The engine asks once, after all hooks' ``before_run``.
        """
        return ()

    _sets: str = ""
    """The number of the parameter groups that the hook sets, such as ``"lr"``."""

    _averages_weights: bool = False
    """Whether the hook evaluates and saves an average of the weights."""

    def _around_evaluation(self, trainer: L.Trainer) -> AbstractContextManager[None]:
        """Enclose an evaluation by a hook, as to give the module other weights in the block."""
        return nullcontext()

    def _look_before_step(self, runner: Any) -> None:
        """Look at the module before the next step, as after parts of it were unfrozen."""

    @property
    def _kept_kinds(self) -> Sequence[str]:
        """The kinds of checkpoints kept, ``"best"`` and ``"last"``."""
        return ()

    @property
    def _writes_files(self) -> bool:
        """Whether the hook writes files or to a tracker where ``runner.may_write``."""
        return False

    @property
    def _refuses_files(self) -> bool:
        """Whether the state of the run is bad, so that no file may hold the state."""
        return False

    def _checkpoint_directory(self, runner: Any) -> str | None:
        """Return the directory of the hook's checkpoints; None without checkpoints."""
        return None

    def _owns_backward(self, module: L.LightningModule) -> bool:
        """Return whether an optimizer hook runs backward and steps; not asked of other hooks."""
        return True

    def _iterations_of(self, steps: int, trainer: L.Trainer) -> int:
        """Return the number of iterations of Lightning's ``steps`` where the hook owns steps."""
        return steps

    def _log_values(self, runner: Any) -> None:
        """Write the values of a whole epoch in the runner's log buffer."""

    @property
    def _takes(self) -> Collection[str]:
        """The kinds of samples that the hook logs, such as ``images``."""
        return ()

    def _log_sample(self, runner: Any, name: str, sample: Any) -> None:
        """Write an image, a table or a histogram."""

    def _log_given(self, runner: Any, values: Mapping[str, Any]) -> None:
        """Log numbers of a Lightning ``Logger``, by its names."""

    _given: Any = None
    """The numbers of a Lightning ``Logger`` that are not logged yet."""

    def _log_params(self, runner: Any, params: Mapping[str, Any]) -> None:
        """Log hyper-parameters of a Lightning ``Logger``."""

    def _add_to_file(self, file: CheckpointFile) -> None:
        """Add to a checkpoint file that is about to be written."""

    def _take_from_file(self, file: CheckpointFile) -> None:
        """Take from a checkpoint file, before the module's weights are loaded."""

    def _save_after_error(self, trainer: L.Trainer, exception: BaseException) -> None:
        """Save the run; called before any hook's ``on_exception``, where trackers end the run."""

    def on_checkpoint_saved(self, path: str) -> None:
        """Use a file that a hook of the run has written; the writing thread of rank 0 calls."""

    def on_checkpoints_deleted(self, paths: Sequence[str]) -> None:
        """Note files that a hook of the run has deleted; the writing thread of rank 0 calls."""


def natives_with(method: str, hooks: Iterable[Any]) -> list[HookCallback]:
    """Return the native hooks that override a method of :class:`HookCallback`."""
    stock = getattr(HookCallback, method)
    natives = [hook for hook in hooks if isinstance(hook, HookCallback)]
    return [hook for hook in natives if getattr(type(hook), method) is not stock]
