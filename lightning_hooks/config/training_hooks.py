"""``register_training_hooks``: make a HookAdapter from the dicts of mmcv's training config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import lightning as L
from torch.utils.data.distributed import DistributedSampler

from lightning_hooks.adapter import HookAdapter
from lightning_hooks.config.trainer_args import (
    DEFAULTS,
    evaluation_interval,
    ignored_arguments,
    run_length,
    validation,
)
from lightning_hooks.engine.priority import default_priority, is_family
from lightning_hooks.engine.registry import HOOKS, ORDER_KEYS, build_with_order
from lightning_hooks.engine.usage_errors import check_names, check_python_lists, parameter_names
from lightning_hooks.hooks.optimizer.optimizer import OptimizerHook
from lightning_hooks.hooks.saving.evaluation import DistEvalHook, EvalHook
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.config_files import copied
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import UnknownNameError, suggest
from lightning_hooks.utils.warn import rank_zero_warn, warn

__all__ = ["ConfiguredHooks", "register_training_hooks", "with_type_of_policy"]

TIMER = {"type": "IterTimerHook"}

Config = Any
"""A config dict, a hook object, ``(either, priority)``, or None for no hook."""

FP16 = {
    "OptimizerHook": "Fp16OptimizerHook",
    "GradientCumulativeOptimizerHook": "GradientCumulativeFp16OptimizerHook",
}
"""Optimizer hooks, and their replacements under a top-level ``fp16``."""

EVALUATIONS: dict[str, type] = {"EvalHook": EvalHook, "DistEvalHook": DistEvalHook}
"""Evaluation hooks by name; mmcv's registry lacks both."""


class Item(NamedTuple):
    """A hook of a training config."""

    key: str
    """The key in the training config."""
    config: Config
    priority: Any
    complete: Callable[[Config], Config] = lambda config: config
    """Returns the config with ``type`` and the arguments that other keys imply."""
    default: Mapping[str, Any] = {}
    """Arguments for a config without them."""


class ConfiguredHooks(HookAdapter):
    """A HookAdapter for the hooks of a config; warns if the Trainer ignores the rest of the config.

    Args:
        configs: The hooks, in the order of registration.
        settings: Further arguments of :class:`~lightning_hooks.adapter.HookAdapter`.
    """

    state_key = "HookAdapter"
    """The key of the adapter's state in a checkpoint, from a config or not."""

    trainer_kwargs: Mapping[str, Any] = {}
    """The Trainer's arguments implied by the config."""

    def __init__(self, configs: Sequence[Item], **settings: Any) -> None:
        self.configs: list[tuple[Config, Any]] = []
        """Each hook's complete config dict, or object, and priority."""
        self.registered: list[Any] = []
        """The hooks made from ``configs``."""
        super().__init__(configs, **settings)

    def _made(self, item: Item) -> tuple[Any, int]:
        """Return the hook of an item and the priority; an error names the key."""
        key, config, priority, complete, default = item
        if isinstance(config, tuple) and len(config) == 2:
            config, priority = config
        if isinstance(config, (Sequence, int, float, set, type)):
            check_python_lists(key, [config])
            allowed = "(hook, priority)" if isinstance(config, tuple) else "None"
            hint = f"; write dict(type={config!r})" if config in HOOKS else ""
            raise TypeError(
                f"{key} must be a dict, a hook or {allowed}, got {shown(masked(config))}{hint}"
            )
        try:
            config = hook = complete(config)
            if isinstance(config, Mapping):
                config = copied({**default, **config})
                hook, priority = build_with_order(HOOKS, config, priority)
            priority = default_priority(hook) if priority is None else priority
            self.configs.append((config, priority))
            entry = self._entry(hook, priority)
        except Exception as error:
            add_note(error, f"in {key} of the config")
            raise
        self.registered.append(entry[0])
        return entry

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Warn if the Trainer has default values where the config sets others."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        actual = {name: getattr(trainer, name) for name in DEFAULTS}
        ignored = ignored_arguments(
            self.trainer_kwargs, actual, validates=trainer.enable_validation
        )
        if ignored:
            wanted = ", ".join(f"{name}={self.trainer_kwargs[name]!r}" for name in ignored)
            default = ", ".join(f"{name}={actual[name]!r}" for name in ignored)
            rank_zero_warn(
                f"the hooks' config sets {wanted}, but the Trainer has its defaults, {default}: "
                "give it these, as Trainer(callbacks=[hooks], **hooks.trainer_kwargs) does, or "
                "values of your own"
            )


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
    """Return an adapter with the hooks of mmcv's config, at mmcv's priorities.

    ``trainer_kwargs`` of the adapter are the Trainer's arguments implied by the config::

        hooks = register_training_hooks(lr_config=dict(policy="step", step=[8, 11]), ...)
        L.Trainer(callbacks=[hooks], **hooks.trainer_kwargs)

    A fit warns if the Trainer was made without ``trainer_kwargs`` and without other values.

    ===================  ===================  ==================================================
    config               priority             in ``trainer_kwargs``
    ===================  ===================  ==================================================
    lr_config            VERY_HIGH
    momentum_config      HIGH
    optimizer_config     ABOVE_NORMAL         precision="16-mixed" for Fp16 hooks
    fp16                                      precision="16-mixed"
    checkpoint_config    NORMAL               enable_checkpointing=False
    timer_config         LOW
    log_config           VERY_LOW
    custom_hooks_config  NORMAL or own
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
            ``run_after``: as in every config), or a list of hooks and configs.
        fp16: Further arguments; turns the OptimizerHook into an Fp16OptimizerHook, and the
            GradientCumulativeOptimizerHook a GradientCumulativeFp16OptimizerHook:
            ``dict(loss_scale=512.0)``.
        evaluation: Arguments of EvalHook, of DistEvalHook if the ``dataloader`` has a
            DistributedSampler, or with ``type`` of another hook. The hook counts in the unit of
            the runner. Without a ``dataloader`` the hook judges the Trainer's own validation, and
            the Trainer validates as often as needed.
        runner: ``dict(type="EpochBasedRunner", max_epochs=...)`` or
            ``dict(type="IterBasedRunner", max_iters=...)``; without a type, the limit decides. An
            IterBasedRunner counts in iterations, and so do learning rate, checkpoints and loggers
            without ``by_epoch``.
        total_epochs: The old name of the runner's ``max_epochs``.
        total_iters: The old name of the runner's ``max_iters``.
        workflow: ``[("train", n), ("val", 1)]`` validates every ``n`` epochs (counted in
            iterations: ``("val", m)``, on ``m`` batches). Without ``"val"`` nothing is validated,
            except for ``evaluation``.
        adapter: Further arguments of :class:`~lightning_hooks.adapter.HookAdapter`.

    Raises:
        UnknownNameError: for an unknown policy, hook or runner, with the closest name.
        TypeError: for a config of a wrong type; the message has the key.
        ValueError: for a workflow outside of Lightning's loop, or contradictory limits.

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
            raise TypeError(f"{name} must be a dict or None, got {shown(masked(value))}")
    if adapter:
        known = {*parameter_names(register_training_hooks), *parameter_names(HookAdapter)}
        check_names("register_training_hooks", adapter, known - {"hooks"})
    by_epoch, length = run_length(runner, total_epochs, total_iters)
    count = {} if by_epoch else {"by_epoch": False}
    lr = partial(with_type_of_policy, family="LrUpdaterHook")
    momentum = partial(with_type_of_policy, family="MomentumUpdaterHook")
    step = "optimizer_config" if fp16 is None else "optimizer_config and fp16"
    optimizer = {} if optimizer_config is None and fp16 is not None else optimizer_config
    save = {"type": "CheckpointHook", **count}
    several = isinstance(custom_hooks_config, (list, tuple))
    custom_hooks = custom_hooks_config if several else [custom_hooks_config]
    items = [
        Item("lr_config", lr_config, "VERY_HIGH", lr, count),
        Item("momentum_config", momentum_config, "HIGH", momentum, count),
        Item(step, optimizer, "ABOVE_NORMAL", partial(_with_fp16, fp16=fp16)),
        Item("checkpoint_config", checkpoint_config, "NORMAL", default=save),
        Item("timer_config", timer_config, "LOW"),
        *_loggers(log_config, count),
        *(Item("custom_hooks", config, "NORMAL") for config in custom_hooks),
        Item("evaluation", evaluation, "LOW", partial(_with_evaluation, by_epoch=by_epoch)),
    ]
    given = [item for item in items if item.config is not None]
    hooks = ConfiguredHooks(given, by_epoch=by_epoch, **adapter)
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


def _loggers(config: Mapping[str, Any] | None, count: Mapping[str, Any]) -> list[Item]:
    """Return the loggers of ``log_config``."""
    if config is None:
        return []
    for key in ("interval", "hooks"):
        if key not in config:
            raise ValueError(f'log_config needs the key "{key}", got {shown(masked(config))}')
    if not isinstance(config["hooks"], (list, tuple)):
        check_python_lists('log_config["hooks"]', [config["hooks"]])
        given = masked(config["hooks"])
        raise TypeError(f'log_config["hooks"] must be a list, got {shown(given)}')
    default = {"interval": config["interval"], **count}
    return [
        Item(f'log_config["hooks"][{i}]', logger, "VERY_LOW", default=default)
        for i, logger in enumerate(config["hooks"])
    ]


def with_type_of_policy(config: Config, family: str) -> Config:
    """Replace ``policy``, spelled in any case, by the type of the hook."""
    if not isinstance(config, Mapping) or "type" in config:
        return config
    if "policy" not in config:
        raise ValueError(
            f'a config of a {family} needs the key "policy", got {shown(masked(config))}'
        )
    arguments = dict(config)
    policy = arguments.pop("policy")
    hook_type = HOOKS.spelled(f"{policy}{family}")
    if hook_type in HOOKS:
        return {"type": hook_type, **arguments}
    policies = [name.removesuffix(family) for name in HOOKS.module_dict if name.endswith(family)]
    hint = suggest(policy, policies, "lightning-hooks hooks")
    raise UnknownNameError(f"unknown policy {shown(policy)}; {hint}")


def _with_fp16(config: Config, fp16: Mapping[str, Any] | None) -> Config:
    """Add the type of optimizer hook, and the arguments of a top-level ``fp16``."""
    if fp16 is None:
        return {"type": "OptimizerHook", **config} if isinstance(config, Mapping) else config
    if not isinstance(config, Mapping):
        raise ValueError(f"fp16 goes with a dict as optimizer_config, not with {shown(config)}")
    arguments = {"type": "OptimizerHook", **config, **fp16}
    hook_type = FP16.get(arguments["type"], arguments["type"])
    if hook_type not in FP16.values():
        raise ValueError(
            f"fp16 goes with an optimizer_config of {', '.join(FP16)}, not of {hook_type}"
        )
    return {**arguments, "type": hook_type}


def _with_evaluation(config: Config, by_epoch: bool) -> Config:
    """Add ``type`` and ``by_epoch``; without a data set drop arguments of ``evaluate()``."""
    if not isinstance(config, Mapping):
        return config
    loader = config.get("dataloader")
    is_distributed = isinstance(getattr(loader, "sampler", None), DistributedSampler)
    hook_type = config.get("type", "DistEvalHook" if is_distributed else "EvalHook")
    if isinstance(hook_type, str) and hook_type not in HOOKS:
        hook_type = EVALUATIONS.get(hook_type, hook_type)
    arguments = {"dataloader": None, **config, "type": hook_type, "by_epoch": by_epoch}
    if loader is None and hook_type in EVALUATIONS.values():
        used = {*inspect.signature(EvalHook).parameters, "type", "priority", *ORDER_KEYS}
        unused = sorted(arguments.keys() - used)
        if unused:
            are = "is" if len(unused) == 1 else "are"
            warn(
                f"evaluation: {', '.join(unused)} {are} for a data set's evaluate(), but without a "
                "dataloader the hook uses the Trainer's own validation",
            )
        arguments = {name: value for name, value in arguments.items() if name in used}
        arguments["dataloader"] = "validation"
    return arguments
