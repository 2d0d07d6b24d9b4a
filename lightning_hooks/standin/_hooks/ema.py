"""mmcv's ``EMAHook``: averages in buffers of the model, swapped with the parameters."""

from __future__ import annotations

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.utils.arguments import shown

__all__ = ["EMAHook"]


class EMAHook(Hook):
    """Average the parameters in buffers of the model, for old code that reads mmcv's internals.

    ``average = (1 - m) * average + m * parameter`` after iterations, with
    ``m = min(momentum ** interval, (1 + iter) / (warm_up + iter))``. The average of ``a.b`` is the
    model's buffer ``ema_a_b``. Parameters and buffers are swapped at the end of an epoch and back
    at the start of the next, so evaluation and checkpoints see the average.

    Args:
        momentum: The weight of the parameters in an update, in (0, 1).
        interval: Iterations between updates.
        warm_up: Limits ``m`` early in training, see the formula.
        resume_from: A checkpoint to resume from, averages included.

    Source: mmcv's ``EMAHook``, reproduced with its warm-up and its interval; new code should use
    :class:`lightning_hooks.EMAHook`.
    """

    _reads_step = False
    _runs_user_code = True  # so that checkpoint files keep the buffers apart

    def __init__(
        self,
        momentum: float = 0.0002,
        interval: int = 1,
        warm_up: int = 100,
        resume_from: str | None = None,
    ) -> None:
        if not isinstance(interval, int) or interval <= 0:
            raise AssertionError(f"interval must be a positive int, got {shown(interval)}")
        if not 0 < momentum < 1:
            raise AssertionError(f"momentum must be in (0, 1), got {shown(momentum)}")
        self.warm_up = warm_up
        self.interval = interval
        self.momentum = momentum**interval
        self.checkpoint = resume_from

    def before_run(self, runner: Runner) -> None:
        """Register the buffers; resume from ``resume_from``."""
        if runner.trainer.strategy.restore_checkpoint_after_setup:
            name = type(runner.trainer.strategy).__name__
            raise ValueError(
                f"the stand-in's EMAHook does not work with {name}, which shards the parameters; "
                "use lightning_hooks.EMAHook with ModelParallelStrategy"
            )
        model = unwrap(runner.model)
        self.model_parameters = dict(model.named_parameters())
        self.param_ema_buffer = {
            name: f"ema_{name.replace('.', '_')}" for name in self.model_parameters
        }
        for name, parameter in self.model_parameters.items():
            # a buffer's name may have no dot
            model.register_buffer(self.param_ema_buffer[name], parameter.data.clone())
        self.model_buffers = dict(model.named_buffers())
        if self.checkpoint is not None:
            runner.resume(self.checkpoint)

    def after_train_iter(self, runner: Runner) -> None:
        """Update the averages every ``interval`` iterations."""
        step = runner.iter
        if step % self.interval:
            return
        momentum = min(self.momentum, (1 + step) / (self.warm_up + step))
        for name, parameter in self.model_parameters.items():
            average = self.model_buffers[self.param_ema_buffer[name]]
            average.mul_(1 - momentum).add_(parameter.data, alpha=momentum)

    def after_train_epoch(self, runner: Runner) -> None:
        """Swap the averages into the model."""
        self._swap_ema_parameters()

    def before_train_epoch(self, runner: Runner) -> None:
        """Swap the parameters back into the model."""
        self._swap_ema_parameters()

    def _swap_ema_parameters(self) -> None:
        for name, parameter in self.model_parameters.items():
            average = self.model_buffers[self.param_ema_buffer[name]]
            value = parameter.data.clone()
            parameter.data.copy_(average.data)
            average.data.copy_(value)
