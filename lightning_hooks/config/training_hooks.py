"""``register_training_hooks``: the dicts of mmcv's training config become one HookAdapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.adapter import HookAdapter
from lightning_hooks.config.configured_hooks import ConfiguredHooks
from lightning_hooks.config.hook_dicts import FP16, Config, training_items
from lightning_hooks.config.trainer_args import evaluation_interval, run_length, validation
from lightning_hooks.engine.priority import is_family
from lightning_hooks.engine.usage_errors import check_names, parameter_names
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook
from lightning_hooks.utils.config_files import copied

__all__ = ["register_training_hooks"]

TIMER = {"type": "IterTimerHook"}


def register_training_hooks(
    lr_config: Config = None,
    optimizer_config: Config = None,
    checkpoint_config: Config = None,
    log_config: Mapping[str, Any] | None = None,
    momentum_config: Config = None,
    timer_config: Config = TIMER,
    custom_hooks_config: Config = None,
    *,
    fp16: Mapping[str, Any] | None = None,
    evaluation: Config = None,
    runner: Mapping[str, Any] | None = None,
    total_epochs: int | None = None,
    total_iters: int | None = None,
    workflow: Sequence[tuple[str, int]] | None = None,
    **adapter: Any,
) -> ConfiguredHooks:
    """Return one adapter with the hooks of mmcv's config, at mmcv's priorities.

    Its ``trainer_kwargs`` are the Trainer's arguments that the config implies::

        hooks = register_training_hooks(lr_config=dict(policy="step", step=[8, 11]), ...)
        L.Trainer(callbacks=[hooks], **hooks.trainer_kwargs)

    A fit warns if the Trainer was made without them, and without others in their place.

    ===================  ===================  ==================================================
    config               priority             in ``trainer_kwargs``
    ===================  ===================  ==================================================
    lr_config            VERY_HIGH
    momentum_config      HIGH
    optimizer_config     ABOVE_NORMAL         precision="16-mixed", if it is of Fp16
    fp16                                      precision="16-mixed"
    checkpoint_config    NORMAL               enable_checkpointing=False
    timer_config         LOW
    log_config           VERY_LOW
    custom_hooks_config  NORMAL, or its own
    evaluation           LOW, as the last     check_val_every_n_epoch or val_check_interval
    runner                                    max_epochs, or max_steps
    workflow                                  the same as evaluation, or limit_val_batches
    ===================  ===================  ==================================================

    Args:
        lr_config: ``dict(policy=..., ...)``. The policy is spelled as in mmcv or in any case
            (``"CosineAnnealing"``, ``"step"``, ``"onecycle"``).
        optimizer_config: Arguments of an OptimizerHook, or with ``type`` of another.
        checkpoint_config: Arguments of CheckpointHook.
        log_config: ``dict(interval=..., hooks=[...])``.
        momentum_config: ``dict(policy=..., ...)``.
        timer_config: The timer.
        custom_hooks_config: A hook, a config with an optional ``priority`` (``run_before``,
            ``run_after``: as every config here), or a list of them.
        fp16: Further arguments that make the OptimizerHook an Fp16OptimizerHook, and the
            GradientCumulativeOptimizerHook a GradientCumulativeFp16OptimizerHook:
            ``dict(loss_scale=512.0)``.
        evaluation: Arguments of EvalHook, of DistEvalHook if the ``dataloader`` among them has a
            DistributedSampler, or with ``type`` of another; it counts as the runner does. Without
            a ``dataloader`` it judges the Trainer's own validation, which then runs as often as
            needed.
        runner: ``dict(type="EpochBasedRunner", max_epochs=...)`` or
            ``dict(type="IterBasedRunner", max_iters=...)``; the latter counts in iterations, and
            so do the learning rate, the checkpoints and the loggers, unless they have ``by_epoch``.
        total_epochs: The old name of the runner's ``max_epochs``.
        total_iters: The old name of its ``max_iters``.
        workflow: ``[("train", n), ("val", 1)]`` validates every ``n`` epochs (counted in
            iterations: ``("val", m)``, on ``m`` batches). Without ``"val"`` nothing is validated,
            unless ``evaluation`` needs it.
        adapter: Further arguments of :class:`~lightning_hooks.adapter.HookAdapter`.

    Raises:
        UnknownNameError: for an unknown policy, hook or runner, with the closest name.
        TypeError: for a config of a wrong type, with its name.
        ValueError: for a workflow that Lightning's loop cannot follow, or limits that contradict
            each other.

    Note:
        Departures from mmcv: the caller's dicts are not changed, and policies of two words are
        found in lower case too (``"onecycle"``, ``"cosinerestart"``). An evaluation without a
        loader judges the Trainer's own validation.

    >>> hooks = register_training_hooks(
    ...     lr_config=dict(policy="step", step=[8, 11]),
    ...     checkpoint_config=dict(interval=1),
    ...     runner=dict(type="EpochBasedRunner", max_epochs=12),
    ... )
    >>> [type(hook).__name__ for hook in hooks.hooks]
    ['StepLrUpdaterHook', 'CheckpointHook', 'IterTimerHook']
    >>> hooks.trainer_kwargs
    {'enable_checkpointing': False, 'max_epochs': 12}
    """
    for name, value in (("fp16", fp16), ("runner", runner), ("log_config", log_config)):
        if not (value is None or isinstance(value, Mapping)):
            raise TypeError(f"{name} must be a dict or None, got {value!r}")
    if adapter:
        known = {*parameter_names(register_training_hooks), *parameter_names(HookAdapter)}
        check_names("register_training_hooks", adapter, known - {"hooks"})
    by_epoch, length = run_length(runner, total_epochs, total_iters)
    configs: dict[str, Config] = {
        "lr_config": lr_config,
        "optimizer_config": optimizer_config,
        "checkpoint_config": checkpoint_config,
        "log_config": log_config,
        "momentum_config": momentum_config,
        "timer_config": timer_config,
        "custom_hooks_config": custom_hooks_config,
        "fp16": fp16,
        "evaluation": evaluation,
    }
    items = training_items(copied(configs), by_epoch=by_epoch)
    hooks = ConfiguredHooks(configs=items, by_epoch=by_epoch, **adapter)
    kwargs: dict[str, Any] = {**length}
    for hook in hooks.registered:
        if isinstance(hook, OptimizerHook) and is_family(hook, *FP16.values()):
            kwargs["precision"] = "16-mixed"
    if checkpoint_config is not None:
        kwargs["enable_checkpointing"] = False
    interval = None if evaluation is None else evaluation_interval(hooks.registered[-1])
    kwargs |= validation(workflow, by_epoch=by_epoch, interval=interval)
    hooks.trainer_kwargs = dict(sorted(kwargs.items()))
    return hooks
