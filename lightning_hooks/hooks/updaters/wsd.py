"""``WSDLrUpdaterHook``: a long constant rate and a decay at the end, planned or on demand."""

from __future__ import annotations

import contextlib
from typing import Any

import lightning as L
from lightning.pytorch.trainer.states import TrainerFn

from lightning_hooks import schedules
from lightning_hooks.engine.driver.driver import Driver
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.updaters.lr import LrUpdaterHook
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_choice, check_number, shown

__all__ = ["REQUEST", "WSDLrUpdaterHook"]

REQUEST = "start_decay"
"""The file in a run's work directory that asks for the decay: ``lightning-hooks decay RUN``."""


@HOOKS.register_module()
class WSDLrUpdaterHook(LrUpdaterHook):
    """Keeps the rate and decays it at the end of the run: :func:`~lightning_hooks.schedules.wsd`.

    "Warm-up, stable, decay": with a warm-up, as ``warmup="linear", warmup_iters=0.01``. The decay
    may also begin on demand: ``start_decay(runner)``, or ``lightning-hooks decay RUN`` from another
    terminal, decays the rate from now on, over the same length, and ends the run there. A run looks
    for the command where an epoch begins and where a validation has ended.

    Args:
        decay: The length of the decay in iterations (epochs, with ``by_epoch=True``); a float is a
            share of the run.
        shape: The shape of the decay, ``"linear"``, ``"cosine"`` or ``"1-sqrt"``.
        min_lr_ratio: The rate at the end as a ratio of the base rate, from 0 to 1.
        by_epoch: Count in epochs, or in iterations.
        kwargs: Arguments of :class:`~lightning_hooks.hooks.updaters.lr.LrUpdaterHook`.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for an argument outside its range, and at the start of a run shorter than the
            decay.

    Source: Hu et al., "MiniCPM" (https://arxiv.org/abs/2404.06395); the shapes of transformers'
    ``get_wsd_schedule``.

    >>> from lightning_hooks.schedules import sample
    >>> sample(WSDLrUpdaterHook(decay=0.5), max_epochs=1, iters_per_epoch=8, base_lr=1.0)
    [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]
    """

    _needs_length = True

    span: tuple[int, int] | None = None
    """The first position and the end of a decay on demand."""

    def __init__(
        self,
        decay: int | float = 0.2,
        shape: str = "linear",
        min_lr_ratio: float = 0.0,
        by_epoch: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(by_epoch=by_epoch, **kwargs)
        schedules.check_length("decay", decay)
        check_choice("shape", shape, list(schedules.SHAPES))
        if check_number("min_lr_ratio", min_lr_ratio, least=0) > 1:
            raise ValueError(f"min_lr_ratio must be at most 1, got {shown(min_lr_ratio)}")
        self.decay = decay
        self.shape = shape
        self.min_lr_ratio = min_lr_ratio

    def _value(self, base: float, position: int, total: int) -> float:
        """Return :func:`~lightning_hooks.schedules.wsd`, of the decay on demand if there is one."""
        decay = self.decay
        if self.span is not None:
            decay, total = self.span[1] - self.span[0], self.span[1]
        return schedules.wsd(
            base, position, total, decay=decay, shape=self.shape, ratio=self.min_lr_ratio
        )

    def _check(self, total: int) -> None:
        """Raise ValueError for a run shorter than the decay."""
        if schedules.length_of(self.decay, total) > total:
            raise ValueError(f"decay={self.decay} is longer than the run, which has {total}")

    # -- on demand ---------------------------------------------------------------------------

    def start_decay(self, runner: Runner) -> None:
        """Begin the decay now, and end the run with it.

        With several ranks, call the method on all of them in the same iteration. A decay that has
        begun goes on. A checkpoint has the moment, so a resumed run decays on.

        Args:
            runner: The runner of a point, in a run.
        """
        position, total = self._progress(self._as_counted(runner))
        assert total is not None
        length = schedules.length_of(self.decay, total)
        unit = "epoch" if self.by_epoch else self._iteration_unit
        begin = total - length if self.span is None else self.span[0]
        if position >= begin:
            runner.logger.info("the decay of the learning rate has begun at %s %d", unit, begin)
            return
        self.span = position, position + length
        runner.logger.info(
            "the learning rate decays from now on, %s %d, until the run ends at %d",
            unit,
            *self.span,
        )

    def _look_for_request(self, runner: Runner) -> None:
        """Begin the decay if the command has asked for it; the ranks agree."""
        if self.span is not None:
            return
        asked = runner.rank == 0 and files.exists(files.join(runner.work_dir, REQUEST))
        if runner.world_size > 1:
            asked = runner.trainer.strategy.reduce_boolean_decision(asked, all=False)
        if asked:
            self.start_decay(runner)
            if self.span is None:  # the planned decay has begun, and no later run is to begin one
                _remove_request(runner)

    def _end_with_decay(self, runner: Runner) -> None:
        """End the run after the decay's last epoch or iteration; all ranks count the same."""
        counted = self._as_counted(runner)
        done = counted.epoch if self.by_epoch else counted.iter
        # of the units only Lightning's steps are counted by now
        has_counted = self._by_step and not (self.by_epoch or runner.hooks_own_step)
        if self.span is not None and done + (not has_counted) >= self.span[1]:
            runner.trainer.should_stop = True

    def after_train_iter(self, runner: Runner) -> None:
        """End the run after the decay."""
        if not self.by_epoch and self.span is not None:
            self._end_with_decay(runner)

    def after_train_epoch(self, runner: Runner) -> None:
        """End the run after the decay."""
        if self.by_epoch:
            self._end_with_decay(runner)

    def after_run(self, runner: Runner) -> None:
        """Remove the command's request."""
        if self.span is not None:
            _remove_request(runner)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Forget an earlier run's decay and request; warn as other hooks do."""
        runner = Driver.of(trainer).runner
        if runner.iter == 0:
            self.span = None
            _remove_request(runner)
        super().on_train_start(trainer, pl_module)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look for the command; set added groups."""
        self._look_for_request(Driver.of(trainer).runner)
        super().on_train_epoch_start(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look for the command."""
        if trainer.state.fn == TrainerFn.FITTING and not trainer.sanity_checking:
            self._look_for_request(Driver.of(trainer).runner)

    # -- the state: the moment of a decay on demand --------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the base, and first position and end of a decay on demand."""
        span = {} if self.span is None else {"decay": list(self.span)}
        return {**super().state_dict(), **span}

    def on_load_checkpoint(
        self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Reset the state."""
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        self.span = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state; nonsense of a file is left out."""
        super().load_state_dict(state_dict)
        span = state_dict.get("decay")
        if (
            isinstance(span, list)
            and [type(end) for end in span] == [int, int]
            and span[0] < span[1]
        ):
            self.span = span[0], span[1]


def _remove_request(runner: Runner) -> None:
    """Remove the command's file, so that no later run obeys the command."""
    if runner.is_writer:
        with contextlib.suppress(OSError):
            files.remove(files.join(runner.work_dir, REQUEST))
