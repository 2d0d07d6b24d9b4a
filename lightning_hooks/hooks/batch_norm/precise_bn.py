"""``PreciseBNHook``: set BatchNorm statistics to the population's before a validation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

from lightning.pytorch.trainer.states import RunningStage

from lightning_hooks.engine.hook import Hook
from lightning_hooks.engine.lightning_api import data, model_state, validation
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.engine.runner.model_wrapper import isolated_model_calls, takes_batch_idx
from lightning_hooks.engine.runner.runner import Runner
from lightning_hooks.hooks.batch_norm.population_stats import bn_layers, update_bn_stats
from lightning_hooks.utils.arguments import check_int, shown
from lightning_hooks.utils.progress_bar import with_bar
from lightning_hooks.utils.random_state import isolated
from lightning_hooks.utils.warn import warn

__all__ = ["PreciseBNHook", "batches_for"]


def batches_for(num_samples: int, batch_size: int, world_size: int) -> int:
    """Return the number of batches per rank for at least ``num_samples`` samples in all.

    >>> batches_for(8192, 32, 8), batches_for(10, 4, 1), batches_for(3, 4, 1)
    (32, 3, 1)
    """
    return -(-num_samples // (batch_size * world_size))


@HOOKS.register_module()
class PreciseBNHook(Hook):
    """Replaces the moving averages of BatchNorm layers by the statistics of many samples.

    After the training epoch the model runs over the data again, without learning, and
    :func:`~lightning_hooks.update_bn_stats` writes mean and variance, weighted by sample and equal
    on all ranks. Layers in eval mode, frozen or unused layers and layers without statistics are
    left alone. The update comes before the validation at the end of the epoch and before hooks that
    save, with the raw weights. An average of the weights needs its own statistics, with or without
    this hook: ``EMAHook(precise_bn=True)``.

    Nothing else changes: train flags, momenta, other buffers, logged values, torchmetrics' states,
    the random state and the order of the data are restored, also after an error.

    Args:
        num_samples: Samples to run, of all ranks together, in whole batches; at most all samples.
        interval: Epochs between two updates, at least 1.
        num_iters: Batches to run on each rank, instead of ``num_samples``.
        dataloader: This rank's part of the data; the training loader by default.
        forward: A function ``forward(module, batch)`` to run a batch on the device; by default the
            model's ``train_step`` or the module's ``training_step``.

    Raises:
        TypeError: for an argument of the wrong type.
        ValueError: for numbers below 1; at the start of a run counted in iterations, for a training
            step that steps the optimizer itself without ``forward``, and for a loader of unknown
            batch size without ``num_iters``.

    Source: mmclassification's ``PreciseBNHook``; ``num_iters`` and ``dataloader`` are from
    mmaction2's.

    Note:
        Departures from mmclassification: the variance is the population's, and batches count by
        size (mmclassification: the mean of the batches' variances); ``num_samples`` is rounded up
        to whole batches (mmclassification: down, perhaps to no batch, which sets every layer to 0);
        the priority is ``ABOVE_NORMAL`` (mmclassification: ``NORMAL``); dropout is off; layers with
        frozen weight and bias keep their statistics; a loader shorter than ``num_iters`` is a
        warning.
    """

    priority = "ABOVE_NORMAL"
    """Before the hooks that save, average or validate."""

    _reads_step = False
    user: str | None = None
    """The class of the average whose statistics this hook estimates, if any."""
    _warned: frozenset[str] = frozenset()

    def __init__(
        self,
        num_samples: int = 8192,
        interval: int = 1,
        *,
        num_iters: int | None = None,
        dataloader: Any = None,
        forward: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        super().__init__()
        check_int("num_samples", num_samples, 1)
        check_int("interval", interval, 1)
        if num_iters is not None:
            check_int("num_iters", num_iters, 1)
        if dataloader is not None and not hasattr(dataloader, "__iter__"):
            raise TypeError(f"dataloader must be a DataLoader or iterable, got {shown(dataloader)}")
        if not (forward is None or callable(forward)):
            raise TypeError(f"forward must be a function of (module, batch), got {shown(forward)}")
        self.num_samples = num_samples
        self.interval = interval
        self.num_iters = num_iters
        self.dataloader = dataloader
        self.forward = forward

    @classmethod
    def of_average(cls, precise_bn: Any, user: str | None = None) -> PreciseBNHook | None:
        """Return the hook that estimates an average's statistics, or None.

        Args:
            precise_bn: The argument of every average: False, True, a number of samples, or a dict
                of the arguments of this hook.
            user: The class of the average, for messages.

        Raises:
            TypeError: for an argument of another type, or unknown to this hook.
            ValueError: for a number below 1, for an interval, and for values refused by this hook.

        >>> [made and made.num_samples for made in map(PreciseBNHook.of_average, (False, True, 9))]
        [None, 8192, 9]
        """
        if precise_bn is False:
            return None
        if isinstance(precise_bn, Mapping):
            if "interval" in precise_bn:
                raise ValueError(
                    f"precise_bn={shown(precise_bn)}: the statistics are estimated whenever a "
                    "changed average is used; leave interval out"
                )
            try:
                hook = cls(**precise_bn)
            except (TypeError, ValueError) as error:
                raise type(error)(f"precise_bn={shown(precise_bn)}: {error}") from None
        elif isinstance(precise_bn, int):
            check_int("precise_bn", int(precise_bn), 1)
            hook = cls() if precise_bn is True else cls(precise_bn)
        else:
            raise TypeError(
                "precise_bn must be True, False, a number of samples or a dict of PreciseBNHook's "
                f"arguments, got {shown(precise_bn)}"
            )
        hook.user = user
        return hook

    def before_run(self, runner: Runner) -> None:
        """Raise errors now, before the first epoch."""
        if not runner.counts_epochs:
            raise ValueError(
                "PreciseBNHook works after epochs, and this run is counted in iterations; "
                "call lightning_hooks.update_bn_stats(model, batches) yourself"
            )
        self.check_run(runner)

    def check_run(self, runner: Runner) -> None:
        """Raise an error if the statistics cannot be updated in this run.

        Raises:
            ValueError: if the training step would step the optimizer itself, or the samples cannot
                be counted.
        """
        self._warned = frozenset()
        owned = runner.wrap_outputs is not None
        if self.forward is None and not (runner.module.automatic_optimization or owned):
            raise ValueError(
                f"{type(runner.module).__name__}.training_step steps its optimizers by itself, "
                "which it must not do here; give "
                f"{self._written('forward=lambda module, batch: ...')}"
            )
        self._batches_to_run(runner, self._loader(runner))
        self._has_layers(runner)

    def _has_layers(self, runner: Runner) -> bool:
        """Warn if no layer can be updated; layers may be frozen, or added, during the run."""
        has_layers = bool(bn_layers(runner.module))
        if not has_layers:
            self._warn(runner, "there is no BatchNorm layer whose statistics move in training")
        return has_layers

    def after_train_epoch(self, runner: Runner) -> None:
        """Update the statistics every ``interval`` epochs."""
        if self.every_n_epochs(runner, self.interval):
            self.update(runner)

    def update(self, runner: Runner) -> None:
        """Update the statistics now, with the present weights.

        During a validation, layers have the train flags of training meanwhile.

        Args:
            runner: The run, with module and training data.
        """
        with model_state.keep_train_flags(runner.module):
            if runner.trainer.validating:
                validation.train_as_before_validation(runner.trainer)
            self._update(runner)

    def _update(self, runner: Runner) -> None:
        if not self._has_layers(runner):
            return
        trainer = runner.trainer
        loader = data.copy_for_another_iterator(self._loader(runner))
        wanted = self._batches_to_run(runner, loader)
        forward = self.forward or _training_step(runner)

        def run(module: Any, batch: Any) -> None:
            data.in_forward(trainer, forward, module, data.prepare_batch(trainer, batch))

        with (
            isolated(*data.generators_of(loader)),
            setting(trainer.state, stage=RunningStage.TRAINING),
            isolated_model_calls(runner),
            trainer.precision_plugin.train_step_context(),
        ):
            shown = with_bar(trainer, islice(loader, wanted), "Precise BN", wanted)
            with contextlib.closing(shown) as batches:
                done = update_bn_stats(runner.module, batches, forward=run)
        if done == 0:
            self._warn(runner, "the loader gave no batch: the statistics stay as they are")
        elif done < wanted and self.num_iters is not None:
            self._warn(
                runner,
                f"the loader gave {done} batches and num_iters={wanted} were asked for: the "
                "statistics are those of the fewer samples",
            )

    def _loader(self, runner: Runner) -> Any:
        if self.dataloader is not None:
            return self.dataloader
        loader = runner.data_loader
        if runner.mode == "val" or not runner.counts_epochs:  # a validation's loader, or endless
            loaders = data.train_loaders(runner.trainer)
            loader = loaders[0] if len(loaders) == 1 else runner.trainer.train_dataloader
        if isinstance(loader, (dict, list, tuple)):
            call = self._written("dataloader=...")
            raise ValueError(
                f"there are several training loaders; give {call} that yields what the training "
                "step takes"
            )
        return loader

    def _batches_to_run(self, runner: Runner, loader: Any) -> int:
        if self.num_iters is not None:
            return self.num_iters
        sampler = getattr(loader, "batch_sampler", None)
        size = getattr(loader, "batch_size", None) or getattr(sampler, "batch_size", None)
        if not isinstance(size, int):
            raise ValueError(
                f"the batch size of {type(loader).__name__} is not known, so {self.num_samples} "
                f"samples cannot be counted; give {self._written('num_iters=...')}"
            )
        return batches_for(self.num_samples, size, runner.world_size)

    def _written(self, arguments: str) -> str:
        """Return the call with these arguments, for messages."""
        if self.user is None:
            return f"PreciseBNHook({arguments})"
        return f"{self.user}(precise_bn=dict({arguments}))"

    def _warn(self, runner: Runner, message: str) -> None:
        """Warn once in a run."""
        if runner.rank == 0 and message not in self._warned:
            self._warned |= {message}
            name = "PreciseBNHook" if self.user is None else f"{self.user}(precise_bn=...)"
            warn(f"{name}: {message}")


def _training_step(runner: Runner) -> Callable[[Any, Any], Any]:
    inner = getattr(runner.model, "module", runner.model)
    if hasattr(inner, "train_step"):
        return lambda module, batch: inner.train_step(batch, runner.optimizer)
    step: Any = type(runner.module).training_step  # the driver patches the instance's
    if takes_batch_idx(step):
        return lambda module, batch: step(module, batch, 0)
    return step  # type: ignore[no-any-return]
