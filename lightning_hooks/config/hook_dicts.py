"""Complete the keys of mmcv's training config to the config dicts of single hooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from torch.utils.data.distributed import DistributedSampler

from lightning_hooks.engine.registry import HOOKS, ORDER_KEYS
from lightning_hooks.engine.usage_errors import check_python_lists
from lightning_hooks.hooks.saving.evaluation import DistEvalHook, EvalHook
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.secrets import masked
from lightning_hooks.utils.suggestions import UnknownNameError, suggest
from lightning_hooks.utils.warn import warn

__all__ = ["EVALUATIONS", "FP16", "Config", "Item", "training_items"]

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
    """A hook of a config."""

    key: str
    """The key in the training config."""
    hook: Any
    """The complete config dict, or the hook object."""
    priority: Any


def training_items(configs: Mapping[str, Config], *, by_epoch: bool) -> list[Item]:
    """Return the hooks of a training config in mmcv's order of registration.

    Args:
        configs: The configs by the arguments of ``register_training_hooks``.
        by_epoch: Whether the run is counted in epochs.
    """
    fp16, custom = configs["fp16"], configs["custom_hooks_config"]
    count = {} if by_epoch else {"by_epoch": False}
    save = {"type": "CheckpointHook", **count}
    step = "optimizer_config" if fp16 is None else "optimizer_config and fp16"
    lr = partial(_with_type_of_policy, family="LrUpdaterHook")
    momentum = partial(_with_type_of_policy, family="MomentumUpdaterHook")
    optimizer = partial(_with_fp16, fp16=fp16)
    evaluation = partial(_with_evaluation, by_epoch=by_epoch)
    return [
        *_items("lr_config", configs["lr_config"], "VERY_HIGH", count, lr),
        *_items("momentum_config", configs["momentum_config"], "HIGH", count, momentum),
        *_items(step, configs["optimizer_config"], "ABOVE_NORMAL", complete=optimizer),
        *_items("checkpoint_config", configs["checkpoint_config"], "NORMAL", save),
        *_items("timer_config", configs["timer_config"], "LOW"),
        *_logger_items(configs["log_config"], count),
        *(
            item
            for config in (custom if isinstance(custom, (list, tuple)) else [custom])
            for item in _items("custom_hooks", config, "NORMAL")
        ),
        *_items("evaluation", configs["evaluation"], "LOW", complete=evaluation),
    ]


def _items(
    key: str,
    config: Config,
    priority: str,
    default: Mapping[str, Any] | None = None,
    complete: Callable[[Config], Config] = lambda config: config,
) -> list[Item]:
    """Return the hook of a key, with ``default`` arguments; an empty list for None."""
    try:
        config = complete(config)
    except Exception as error:
        add_note(error, f"in {key} of the config")
        raise
    if config is None:
        return []
    if isinstance(config, tuple):
        if len(config) != 2:
            raise TypeError(
                f"{key} must be a dict, a hook or (hook, priority), got {masked(config)!r}"
            )
        config, priority = config
    if isinstance(config, Mapping):
        arguments = {**(default or {}), **config}
        priority = arguments.pop("priority", priority)
        return [Item(key, arguments, priority)]
    if isinstance(config, (Sequence, int, float, set, type)):
        check_python_lists(key, [config])
        raise TypeError(f"{key} must be a dict, a hook or None, got {masked(config)!r}")
    return [Item(key, config, priority)]


def _logger_items(config: Mapping[str, Any] | None, count: Mapping[str, Any]) -> list[Item]:
    """Return the loggers of ``log_config``."""
    if config is None:
        return []
    for key in ("interval", "hooks"):
        if key not in config:
            raise ValueError(f'log_config needs the key "{key}", got {masked(config)!r}')
    if not isinstance(config["hooks"], (list, tuple)):
        check_python_lists('log_config["hooks"]', [config["hooks"]])
        given = masked(config["hooks"])
        raise TypeError(f'log_config["hooks"] must be a list, got {given!r}')
    default = {"interval": config["interval"], **count}
    return [
        item for one in config["hooks"] for item in _items("log_config", one, "VERY_LOW", default)
    ]


def _with_type_of_policy(config: Config, family: str) -> Config:
    """Replace ``policy``, spelled in any case, by the type of the hook."""
    if not isinstance(config, Mapping) or "type" in config:
        return config
    if "policy" not in config:
        raise ValueError(f'a config of a {family} needs the key "policy", got {masked(config)!r}')
    arguments = dict(config)
    policy = arguments.pop("policy")
    names = sorted(HOOKS.module_dict)
    by_lower_case = dict(zip(map(str.lower, names), names, strict=True))
    hook_type = by_lower_case.get(f"{policy}{family}".lower())
    if hook_type is None:
        known = [name.removesuffix(family) for name in names if name.endswith(family)]
        hint = suggest(str(policy), known, "lightning-hooks hooks")
        raise UnknownNameError(f"unknown policy {policy!r}; {hint}")
    return {"type": hook_type, **arguments}


def _with_fp16(config: Config, fp16: Mapping[str, Any] | None) -> Config:
    """Add the type of optimizer hook, and the arguments of a top-level ``fp16``."""
    if not (config is None or isinstance(config, Mapping)):
        if fp16 is not None:
            raise ValueError(f"fp16 goes with a dict as optimizer_config, not with {config!r}")
        return config
    if fp16 is None:
        return None if config is None else {"type": "OptimizerHook", **config}
    arguments = {"type": "OptimizerHook", **(config or {}), **fp16}
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
            warn(
                f"evaluation: {', '.join(unused)} are for a data set's evaluate(), but without a "
                "dataloader the hook uses the Trainer's own validation",
            )
        kept = {name: value for name, value in arguments.items() if name in used}
        arguments = {**kept, "dataloader": "validation"}
    return arguments
