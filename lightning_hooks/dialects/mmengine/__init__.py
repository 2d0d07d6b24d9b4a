"""Hooks of MMEngine, mmdet 3.x and further projects on MMEngine.

The loop, with the points of a hook::

    hook.before_run(runner)
    hook.after_load_checkpoint(runner, checkpoint)  # in a resumed run
    hook.before_train(runner)
    while epoch < max_epochs:
        hook.before_train_epoch(runner)
        for batch_idx, data_batch in enumerate(train_dataloader):
            hook.before_train_iter(runner, batch_idx=..., data_batch=...)
            hook.after_train_iter(runner, batch_idx=..., data_batch=..., outputs=...)
            iter += 1
        hook.after_train_epoch(runner)
        epoch += 1
        hook.before_val(runner)
        hook.before_val_epoch(runner)
        for batch_idx, data_batch in enumerate(val_dataloader):
            hook.before_val_iter(runner, batch_idx=..., data_batch=...)
            hook.after_val_iter(runner, batch_idx=..., data_batch=..., outputs=...)
        hook.after_val_epoch(runner, metrics=...)
        hook.after_val(runner)
    hook.after_train(runner)
    hook.after_run(runner)

``metrics`` are the values logged by the module; ``outputs`` is the result of the step, with its
``log_vars`` by name, in validation and testing also a list.
``before_save_checkpoint(runner, checkpoint)`` is called for every Lightning checkpoint, and by
``runner.save_checkpoint()``. ``Trainer.test`` corresponds to
mmengine's ``runner.test()``, ``Trainer.validate`` to ``runner.val()``: see
:class:`~lightning_hooks.dialects.mmengine.loops.Evaluation`.

If mmengine is installed, hook files with imports of mmengine run unchanged, and so do mmengine's
hooks. Without mmengine, import ``Hook``, ``HOOKS`` and ``MessageHub`` from this module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning_hooks.dialects.dialect import Arguments, Dialect
from lightning_hooks.dialects.mmengine.loops import Evaluation
from lightning_hooks.dialects.mmengine.message_hub import HistoryBuffer as HistoryBuffer
from lightning_hooks.dialects.mmengine.message_hub import MessageHub as MessageHub
from lightning_hooks.dialects.mmengine.param_scheduler import hooks_of_param_scheduler
from lightning_hooks.dialects.mmengine.runner_facade import RunnerFacade
from lightning_hooks.engine.registry import HOOKS as HOOKS

__all__ = [
    "DIALECT",
    "HOOKS",
    "HistoryBuffer",
    "Hook",
    "MessageHub",
    "hooks_of_param_scheduler",
]

_MODES = ("train", "val", "test")
_POINTS = tuple(
    f"{when}_{what}"
    for what in ("run", *_MODES, *(f"{m}_{span}" for m in _MODES for span in ("epoch", "iter")))
    for when in ("before", "after")
)
_CHECKPOINT = ("before_save_checkpoint", "after_load_checkpoint")


def _with_log_vars(outputs: Any) -> Any:
    """Return the outputs of a step with its ``log_vars`` by name, as mmengine's hooks get them."""
    if not isinstance(outputs, Mapping) or not isinstance(outputs.get("log_vars"), Mapping):
        return outputs
    own = {name: value for name, value in outputs.items() if name != "log_vars"}
    return {**own, **outputs["log_vars"]}


def _arguments(facade: RunnerFacade, point: str, method: Any) -> Arguments:
    runner = facade.native_runner
    kwargs: dict[str, Any] = {}
    if point.endswith("_iter"):
        is_one_epoch = not runner.counts_epochs and "train" in point
        index = runner.iter if is_one_epoch else runner.inner_iter
        kwargs = {"batch_idx": index, "data_batch": runner.data_batch}
        if point.startswith("after"):
            kwargs["outputs"] = _with_log_vars(runner.outputs)
            if "train" not in point and isinstance(runner.result, (list, tuple)):
                kwargs["outputs"] = runner.result  # mmengine passes a list of samples
    elif point in ("after_val_epoch", "after_test_epoch"):
        kwargs = {"metrics": facade.metrics}
    return (facade,), kwargs


DIALECT = Dialect(
    name="mmengine",
    points={
        "before_run": ("before_run", "before_train"),
        "before_train_epoch": ("before_train_epoch",),
        "before_train_iter": ("before_train_iter",),
        "after_train_iter": ("after_train_iter",),
        "after_train_epoch": ("after_train_epoch",),
        "before_val_epoch": ("before_val", "before_val_epoch"),
        "before_val_iter": ("before_val_iter",),
        "after_val_iter": ("after_val_iter",),
        "after_val_epoch": ("after_val_epoch", "after_val"),
        "after_run": ("after_train", "after_run"),
        # a run counted in iterations is one epoch
        "before_epoch": ("before_train_epoch",),
        "after_epoch": ("after_train_epoch",),
    },
    facade=RunnerFacade,
    arguments=_arguments,
    base="Hook",
    facade_points=(
        *("before_train_epoch", "after_train_epoch"),
        *("before_train_iter", "after_train_iter"),
    ),
    delegates={
        f"{when}_{mode}_{span}": f"_{when}_{span}"
        for when in ("before", "after")
        for mode in _MODES
        for span in ("epoch", "iter")
    },
    further=(*_CHECKPOINT, *(point for point in _POINTS if "test" in point)),
    has_priority=True,
    at_setup=Evaluation.join,
)


class Hook:
    """The base of mmengine's hooks: override any of the points.

    The default points of all modes call ``_before_epoch(runner, mode)``, ``_after_epoch``,
    ``_before_iter(runner, batch_idx, data_batch, mode)`` and ``_after_iter(..., outputs, mode)``:
    override these methods for all modes at once.
    """

    hook_dialect = "mmengine"
    priority: int | str = "NORMAL"
    stages = _POINTS

    def before_run(self, runner: RunnerFacade) -> None:
        """Before the run."""

    def after_run(self, runner: RunnerFacade) -> None:
        """After the run."""

    def before_train(self, runner: RunnerFacade) -> None:
        """Before the first epoch."""

    def after_train(self, runner: RunnerFacade) -> None:
        """After the last epoch."""

    def before_val(self, runner: RunnerFacade) -> None:
        """Before each validation."""

    def after_val(self, runner: RunnerFacade) -> None:
        """After each validation."""

    def before_test(self, runner: RunnerFacade) -> None:
        """Before a test."""

    def after_test(self, runner: RunnerFacade) -> None:
        """After a test."""

    def before_save_checkpoint(self, runner: RunnerFacade, checkpoint: dict[str, Any]) -> None:
        """Before writing a checkpoint; hooks may change the dict."""

    def after_load_checkpoint(self, runner: RunnerFacade, checkpoint: dict[str, Any]) -> None:
        """After loading a checkpoint."""

    def before_train_epoch(self, runner: RunnerFacade) -> None:
        """Before each training epoch."""
        self._before_epoch(runner, mode="train")

    def before_val_epoch(self, runner: RunnerFacade) -> None:
        """Before each validation epoch."""
        self._before_epoch(runner, mode="val")

    def before_test_epoch(self, runner: RunnerFacade) -> None:
        """Before the pass of a test."""
        self._before_epoch(runner, mode="test")

    def after_train_epoch(self, runner: RunnerFacade) -> None:
        """After each training epoch."""
        self._after_epoch(runner, mode="train")

    def after_val_epoch(
        self, runner: RunnerFacade, metrics: dict[str, float] | None = None
    ) -> None:
        """After each validation epoch."""
        self._after_epoch(runner, mode="val")

    def after_test_epoch(
        self, runner: RunnerFacade, metrics: dict[str, float] | None = None
    ) -> None:
        """After the pass of a test."""
        self._after_epoch(runner, mode="test")

    def before_train_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None
    ) -> None:
        """Before each training step."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="train")

    def before_val_iter(self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None) -> None:
        """Before each validation step."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="val")

    def before_test_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None
    ) -> None:
        """Before each test step."""
        self._before_iter(runner, batch_idx=batch_idx, data_batch=data_batch, mode="test")

    def after_train_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """After each training step; ``runner.iter`` is the step's number, from 0."""
        self._after_iter(
            runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="train"
        )

    def after_val_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """After each validation step."""
        self._after_iter(
            runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="val"
        )

    def after_test_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None, outputs: Any = None
    ) -> None:
        """After each test step."""
        self._after_iter(
            runner, batch_idx=batch_idx, data_batch=data_batch, outputs=outputs, mode="test"
        )

    def _before_epoch(self, runner: RunnerFacade, mode: str = "train") -> None:
        """Before each epoch of any mode."""

    def _after_epoch(self, runner: RunnerFacade, mode: str = "train") -> None:
        """After each epoch of any mode."""

    def _before_iter(
        self, runner: RunnerFacade, batch_idx: int, data_batch: Any = None, mode: str = "train"
    ) -> None:
        """Before each step of any mode."""

    def _after_iter(
        self,
        runner: RunnerFacade,
        batch_idx: int,
        data_batch: Any = None,
        outputs: Any = None,
        mode: str = "train",
    ) -> None:
        """After each step of any mode."""

    # -- helpers ---------------------------------------------------------------------------

    def every_n_epochs(self, runner: RunnerFacade, n: int, start: int = 0) -> bool:
        """Return whether ``n`` divides the number of epochs since ``start`` (``n > 0``)."""
        done = runner.epoch + 1 - start
        return bool(done % n == 0) if n > 0 and done >= 0 else False

    def every_n_train_iters(self, runner: RunnerFacade, n: int, start: int = 0) -> bool:
        """Return whether ``n`` divides the number of iterations since ``start``."""
        done = runner.iter + 1 - start
        return bool(done % n == 0) if n > 0 and done >= 0 else False

    def every_n_inner_iters(self, batch_idx: int, n: int) -> bool:
        """Return whether ``n`` divides the number of batches so far."""
        return (batch_idx + 1) % n == 0 if n > 0 else False

    def end_of_epoch(self, dataloader: Any, batch_idx: int) -> bool:
        """Return whether the batch is the last of the loader."""
        return bool(batch_idx + 1 == len(dataloader))

    def is_last_train_epoch(self, runner: RunnerFacade) -> bool:
        """Return whether the current epoch is the last."""
        return bool(runner.epoch + 1 == runner.max_epochs)

    def is_last_train_iter(self, runner: RunnerFacade) -> bool:
        """Return whether the current iteration is the last."""
        return bool(runner.iter + 1 == runner.max_iters)
