"""The items of mmcv's training config, each brought to the hooks that it stands for."""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data.distributed import DistributedSampler

from lightning_hooks.engine.hook_order import WISHES, build_placed
from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.evaluation.dist_eval import DistEvalHook
from lightning_hooks.hooks.evaluation.eval import EvalHook
from lightning_hooks.utils.config_files import copied
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = [
    "FP16",
    "Config",
    "Item",
    "build",
    "hook_of",
    "in_config",
    "loggers_of",
    "with_evaluation",
    "with_fp16",
    "with_policy",
]

Config = Any
"""A config dict, a hook object, or None for none."""


class Item(NamedTuple):
    """What a key of the config says of one hook."""

    key: str
    hook: Any
    """Its config dict, complete, or the hook itself."""
    priority: Any


FP16 = {
    "OptimizerHook": "Fp16OptimizerHook",
    "GradientCumulativeOptimizerHook": "GradientCumulativeFp16OptimizerHook",
}
"""What an optimizer hook becomes with a top-level ``fp16``."""

EVALUATIONS: dict[str, type] = {"EvalHook": EvalHook, "DistEvalHook": DistEvalHook}
"""Evaluation hooks by name: mmcv does not register them."""


def hook_of(
    key: str, config: Config, priority: str, default: Mapping[str, Any] | None = None
) -> list[Item]:
    """Return what is said of a hook, in a list, or an empty one for None."""
    if config is None:
        return []
    if isinstance(config, tuple):
        if len(config) != 2:
            raise TypeError(f"{key} must be a dict, a hook or (hook, priority), got {config!r}")
        config, priority = config
    if isinstance(config, Mapping):
        arguments = {**(default or {}), **copied(config)}
        priority = arguments.pop("priority", priority)
        return [Item(key, arguments, priority)]
    if isinstance(config, (str, bytes, int, float, list, set, type)):
        raise TypeError(f"{key} must be a dict, a hook or None, got {config!r}")
    return [Item(key, config, priority)]


def build(item: Item) -> tuple[Any, Any]:
    """Return an item's hook with its priority."""
    if not isinstance(item.hook, Mapping):
        return item.hook, item.priority
    return build_placed(HOOKS, item.hook, item.priority)


@contextlib.contextmanager
def in_config(key: str) -> Iterator[None]:
    """Name an item of the config in whatever is raised inside."""
    try:
        yield
    except Exception as error:
        error.__notes__ = [*getattr(error, "__notes__", []), f"in {key} of the config"]
        raise


def with_policy(config: Config, family: str) -> Config:
    """Replace ``policy`` by the hook's type, found in any case."""
    if not isinstance(config, Mapping) or "type" in config:
        return config
    arguments = dict(config)
    if "policy" not in arguments:
        raise ValueError(f'a config of a {family} needs the key "policy", got {dict(config)!r}')
    policy = arguments.pop("policy")
    names = {name.lower(): name for name in HOOKS.module_dict if name.endswith(family)}
    if f"{policy}{family}".lower() not in names:
        hint = suggest(str(policy), [name.removesuffix(family) for name in names.values()])
        raise UnknownNameError(f"unknown policy {policy!r}; {hint}")
    return {"type": names[f"{policy}{family}".lower()], **arguments}


def with_fp16(config: Config, fp16: Mapping[str, Any] | None) -> Config:
    """Add the type, and what a top-level ``fp16`` says."""
    if not (config is None or isinstance(config, Mapping)):
        if fp16 is not None:
            raise ValueError(f"fp16 goes with a dict as optimizer_config, not with {config!r}")
        return config
    if fp16 is None:
        return None if config is None else {"type": "OptimizerHook", **config}
    arguments = {"type": "OptimizerHook", **(config or {}), **fp16}
    kind = FP16.get(arguments["type"], arguments["type"])
    if kind not in FP16.values():
        raise ValueError(f"fp16 goes with an optimizer_config of {', '.join(FP16)}, not of {kind}")
    return {**arguments, "type": kind}


def loggers_of(config: Mapping[str, Any] | None, count: Mapping[str, Any]) -> list[Item]:
    """Return the loggers of ``log_config``, or none for None."""
    if config is None:
        return []
    for key in ("interval", "hooks"):
        if key not in config:
            raise ValueError(f'log_config needs the key "{key}", got {dict(config)!r}')
    if not isinstance(config["hooks"], (list, tuple)):
        raise TypeError(f'log_config["hooks"] must be a list, got {config["hooks"]!r}')
    default = {"interval": config["interval"], **count}
    return [
        hook for one in config["hooks"] for hook in hook_of("log_config", one, "VERY_LOW", default)
    ]


def with_evaluation(config: Config, by_epoch: bool) -> Config:
    """Say which hook it is, how it counts, and leave out what only a data set can use."""
    if not isinstance(config, Mapping):
        return config
    loader = config.get("dataloader")
    dealt = isinstance(getattr(loader, "sampler", None), DistributedSampler)
    kind = config.get("type", "DistEvalHook" if dealt else "EvalHook")
    if isinstance(kind, str) and kind not in HOOKS:
        kind = EVALUATIONS.get(kind, kind)
    arguments = {"dataloader": None, **config, "type": kind, "by_epoch": by_epoch}
    if loader is None and kind in EVALUATIONS.values():
        known = {*inspect.signature(EvalHook).parameters, "type", "priority", *WISHES}
        unused = sorted(arguments.keys() - known)
        if unused:
            warnings.warn(
                f"evaluation: {', '.join(unused)} would go to a data set's evaluate(), and without "
                "a dataloader it is the Trainer's own validation that is judged",
                stacklevel=3,
            )
        arguments = {name: value for name, value in arguments.items() if name in known}
    return arguments
