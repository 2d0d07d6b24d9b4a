"""Open and close the epochs of a run; a run by iteration is a single epoch for hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from lightning_hooks.engine.driver.ownership import trains_like_mmcv
from lightning_hooks.engine.driver.point_dispatcher import PointDispatcher
from lightning_hooks.engine.driver.step_capture import trim_log_buffer
from lightning_hooks.engine.driver.train_data import TrainData
from lightning_hooks.engine.hosted import HostedHook
from lightning_hooks.engine.lightning_api import progress, validation
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.runner import metrics
from lightning_hooks.engine.runner.runner import IterRunner, Runner
from lightning_hooks.utils.fsdp import state_here

__all__ = ["EpochCycle", "IterCycle"]


class EpochCycle:
    """The epochs of a run counted in epochs.

    Lightning validates inside the training epoch: a validation after the last batch closes the
    epoch.
    """

    acts_in_batches = False
    """Whether :meth:`begin_batch` and :meth:`end_batch` do something."""

    def __init__(
        self, runner: Runner, calls: PointDispatcher, train_data: TrainData, fit: FitChanges
    ) -> None:
        self._runner, self._calls, self._train_data = runner, calls, train_data
        self._val_log, self._val_loader = fit.part(), fit.part()

    # -- the run ---------------------------------------------------------------------------

    def begin_run(self) -> None:
        """Reopen the epoch of a run resumed in mid-epoch."""
        runner = self._runner
        runner.loader_of_run = runner.new_data_loader
        if runner.in_epoch:
            with _weights_kept(runner.module):
                self.begin_epoch()

    def end_run(self) -> None:
        """Do nothing: the last epoch is closed."""

    # -- a training epoch ------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """Call ``before_train_epoch``."""
        runner = self._runner
        runner.mode = "train"
        runner.own_max_iters = None
        if not runner.in_epoch:  # else a resumed run goes on inside the epoch
            runner.begin_pass()
        runner.renew()
        if trains_like_mmcv(runner.module):
            runner.module.train()
        trim_log_buffer(runner)
        self._train_data.restore_rng()
        self._calls.run_at_border("before_train_epoch")
        runner.in_epoch = True
        runner.inner_iter = None
        self._calls.capture_train_mode()
        self._train_data.begin_epoch(for_run=runner.new_data_loader is runner.loader_of_run)

    def begin_batch(self, batch_idx: int) -> None:
        """Do nothing: the counters are Lightning's."""

    def end_batch(self) -> None:
        """Do nothing: Lightning ends the run."""

    def end_epoch(self) -> None:
        """Call ``after_train_epoch``, unless a validation has closed the epoch."""
        if self._runner.in_epoch:
            # without a batch at which the module has ended the epoch
            self._runner.inner_iter = max(progress.batches_done(self._runner.trainer) - 1, 0)
            self._close_epoch()
        self._train_data.end_epoch()

    def _close_epoch(self) -> None:
        runner = self._runner
        metrics.publish_averages(runner)  # before the loggers forget the epoch
        self._calls.run_at_border("after_train_epoch")
        metrics.publish_results(runner)
        runner.in_epoch = False
        runner.closed_epoch = runner.trainer.current_epoch
        self._runner.agree_to_stop()

    # -- a validation ----------------------------------------------------------------------

    def begin_validation(self) -> None:
        """Close the epoch if all batches are done; call ``before_val_epoch``."""
        runner, trainer = self._runner, self._runner.trainer
        if runner.in_epoch and progress.epoch_is_over(trainer):
            validation.train_as_before_validation(trainer)
            with torch.enable_grad():
                self._close_epoch()
            validation.evaluate_as_before(trainer)
        elif runner.in_epoch:
            metrics.publish_averages(runner)
        runner.inner_iter = progress.batch_idx(trainer)
        runner.mode = "val"
        self._val_log.enter_context(runner.val_log())
        self._calls.run_at_border("before_val_epoch")
        if runner.new_val_loader is not None:
            validation.replace_val_loader(trainer, runner.new_val_loader, self._val_loader)
            self._val_loader.callback(setattr, runner, "new_val_loader", None)

    def end_validation(self) -> None:
        """Call ``after_val_epoch``; inside an epoch training goes on."""
        runner = self._runner
        self._val_loader.close()
        runner.log_buffer.update(validation.val_metrics(runner.trainer))
        self._call_after_validation()
        metrics.publish_results(runner)
        self._val_log.close()
        if runner.in_epoch and runner.counts_epochs:
            runner.mode = "train"
            runner.inner_iter = None
        self._runner.agree_to_stop()

    def _call_after_validation(self) -> None:
        self._calls.run_at_border("after_val_epoch")


class IterCycle(EpochCycle):
    """The single epoch of a run counted in iterations; Lightning's epochs are passes over the data.

    ``before_epoch`` and ``after_epoch`` are called around the run. A validation calls the points of
    batches, and the loggers for the module's logged values.
    """

    acts_in_batches = True
    _runner: IterRunner

    def begin_run(self) -> None:
        """Call ``before_epoch``."""
        runner, trainer = self._runner, self._runner.trainer
        runner.epoch = trainer.current_epoch
        ended = progress.begins_with_last_validation(trainer)
        inside = progress.is_resuming_mid_epoch(trainer) and not ended
        if inside:
            self._train_data.restore_rng()
        self._calls.run_at_border("before_epoch")
        runner.in_epoch = True
        # else on_train_epoch_start begins the pass
        if inside or not self._train_data.is_resumed:
            self._train_data.begin_epoch(for_run=True)
        self._stop_at_limit(runner.iter)  # of a finished run that is resumed

    def end_run(self) -> None:
        """Call ``after_epoch``."""
        self._runner.inner_iter += 1  # as in mmcv
        self._calls.run_at_border("after_epoch")

    def begin_epoch(self) -> None:
        """Begin a pass over the data."""
        self._runner.begin_pass()
        self._runner.renew()
        trim_log_buffer(self._runner)
        self._train_data.restore_rng()
        self._train_data.begin_epoch(for_run=True)

    def begin_batch(self, batch_idx: int) -> None:
        """Count the batch as mmcv does."""
        runner = self._runner
        runner.mode = "train"
        runner.begin_batch(batch_idx)
        if trains_like_mmcv(runner.module):
            runner.module.train()

    def end_batch(self) -> None:
        """End the run after the last iteration: Lightning counts optimizer steps made by hooks."""
        self._stop_at_limit(self._runner.iter + 1)

    def _stop_at_limit(self, iterations: int) -> None:
        runner = self._runner
        limit = runner.max_iters if runner.hooks_own_step else None
        if limit is not None and iterations >= limit:
            runner.trainer.should_stop = True

    def end_epoch(self) -> None:
        """Go on with the same loader."""
        metrics.publish_averages(self._runner)
        self._runner.agree_to_stop()

    def begin_validation(self) -> None:
        """Switch the mode; of mmcv's hooks call no point."""
        metrics.publish_averages(self._runner)
        self._runner.mode = "val"
        self._val_log.enter_context(self._runner.val_log())
        self._call_hosted("before_val_epoch")

    def end_validation(self) -> None:
        """Have the loggers write the module's logged values."""
        super().end_validation()
        self._call_hosted("after_val_epoch")

    def _call_hosted(self, point: str) -> None:
        """Call a point of hooks of other libraries, which validate in a run by iteration too."""
        calls = self._calls.calls_for(point)
        self._calls.run(point, [call for call in calls if isinstance(call[0], HostedHook)])

    def _call_after_validation(self) -> None:
        """Pass the module's logged values to the loggers."""
        runner = self._runner
        runner.last_val_iter = runner.iter
        buffer, times = runner.log_buffer, {"time", "data_time"}
        has_values = buffer.output or {*buffer.val_history} - times
        if has_values:
            for hook, method in self._calls.calls_for("after_val_epoch"):
                if is_family(hook, "LoggerHook"):
                    method(runner)


@contextlib.contextmanager
def _weights_kept(module: torch.nn.Module) -> Iterator[None]:
    """Restore parameters and buffers after the block.

    For a second ``before_train_epoch`` of an epoch already begun: a hook that swaps weights at
    this point has swapped before the checkpoint was written.
    """
    before = {
        name: value.detach().clone()
        for name, value in state_here(module).items()
        if isinstance(value, torch.Tensor)
    }
    yield
    with torch.no_grad():
        for name, value in state_here(module).items():
            if name in before and isinstance(value, torch.Tensor):
                value.copy_(before[name])
