"""mmcv's training config: its dicts become one HookAdapter and the Trainer's arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.adapter import HookAdapter
from lightning_hooks.priority import is_family
from lightning_hooks.registry import HOOKS
from lightning_hooks.suggest import UnknownNameError, suggest

__all__ = ["register_training_hooks"]

TIMER = {"type": "IterTimerHook"}
Config = Any
"""A config dict, a hook object, or None for none."""


def register_training_hooks(
    lr_config: Config = None,
    optimizer_config: Config = None,
    checkpoint_config: Config = None,
    log_config: Mapping[str, Any] | None = None,
    momentum_config: Config = None,
    timer_config: Config = TIMER,
    custom_hooks_config: Config = None,
    *,
    runner: Mapping[str, Any] | None = None,
    total_epochs: int | None = None,
    workflow: Sequence[tuple[str, int]] | None = None,
    **adapter: Any,
) -> HookAdapter:
    """Return one adapter with the hooks of mmcv's config, at mmcv's priorities.

    Its ``trainer_kwargs`` are what the config says to the Trainer::

        hooks = register_training_hooks(lr_config=dict(policy="step", step=[8, 11]), ...)
        L.Trainer(callbacks=[hooks], **hooks.trainer_kwargs)

    ====================  ==================  =======================================
    config                priority            in ``trainer_kwargs``
    ====================  ==================  =======================================
    lr_config             VERY_HIGH
    momentum_config       HIGH
    optimizer_config      ABOVE_NORMAL        precision, for an Fp16OptimizerHook
    checkpoint_config     NORMAL              enable_checkpointing=False
    timer_config          LOW
    log_config            VERY_LOW
    custom_hooks_config   NORMAL, or its own
    runner, total_epochs                      max_epochs, or max_steps
    workflow                                  check_val_every_n_epoch, limit_val_batches
    ====================  ==================  =======================================

    Args:
        lr_config: ``dict(policy=..., ...)``. The policy is spelled as in mmcv or in any case
            (``"CosineAnnealing"``, ``"step"``, ``"onecycle"``).
        optimizer_config: Arguments of an OptimizerHook, or with ``type`` of another.
        checkpoint_config: Arguments of CheckpointHook.
        log_config: ``dict(interval=..., hooks=[...])``.
        momentum_config: ``dict(policy=..., ...)``.
        timer_config: The timer.
        custom_hooks_config: A hook, a config with an optional ``priority``, or a list of them.
        runner: ``dict(type="EpochBasedRunner", max_epochs=...)`` or
            ``dict(type="IterBasedRunner", max_iters=...)``; the latter counts in iterations, and
            so do the learning rate, the checkpoints and the loggers unless they say otherwise.
        total_epochs: The old name of the runner's ``max_epochs``.
        workflow: ``[("train", n), ("val", 1)]`` validates every ``n`` epochs; without ``"val"``
            nothing is validated.
        adapter: Further arguments of :class:`~lightning_hooks.adapter.HookAdapter`.

    Raises:
        UnknownNameError: for a policy, hook or runner that is not known, with what was meant.
        ValueError: for a workflow that Lightning's loop cannot follow.

    Note:
        Departures from mmcv: the caller's dicts are not changed, and policies of two words are
        found in lower case too (``"onecycle"``, ``"cosinerestart"``).

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
    by_epoch, trainer_kwargs = _run_length(runner, total_epochs)
    default = {} if by_epoch else {"by_epoch": False}
    hooks: list[Any] = [
        *_one(_policy(lr_config, "LrUpdaterHook"), "VERY_HIGH", default),
        *_one(_policy(momentum_config, "MomentumUpdaterHook"), "HIGH", default),
        *_one(optimizer_config, "ABOVE_NORMAL", {"type": "OptimizerHook"}),
        *_one(checkpoint_config, "NORMAL", {"type": "CheckpointHook", **default}),
        *_one(timer_config, "LOW", {}),
    ]
    if log_config is not None:
        common = {"interval": log_config["interval"], **default}
        for config in log_config["hooks"]:
            hooks += _one(config, "VERY_LOW", common)
    several = isinstance(custom_hooks_config, (list, tuple))
    for config in custom_hooks_config if several else [custom_hooks_config]:
        hooks += _one(config, "NORMAL", {})
    made = HookAdapter(hooks, by_epoch=by_epoch, **adapter)
    if checkpoint_config is not None:
        trainer_kwargs["enable_checkpointing"] = False
    if any(is_family(hook, "Fp16OptimizerHook") for hook in made.hooks):
        trainer_kwargs["precision"] = "16-mixed"
    made.trainer_kwargs = dict(sorted({**trainer_kwargs, **_validation(workflow)}.items()))
    return made


def _one(config: Config, priority: str, default: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """Return a hook with its priority, in a list, or an empty one for None."""
    if config is None:
        return []
    if not isinstance(config, Mapping):
        return [config if isinstance(config, tuple) else (config, priority)]
    arguments = {**default, **config}
    priority = arguments.pop("priority", priority)
    return [(HOOKS.build(arguments), priority)]


def _policy(config: Config, family: str) -> Config:
    """Replace ``policy`` by the hook's type, found in any case."""
    if not isinstance(config, Mapping):
        return config
    arguments = dict(config)
    if "type" in arguments:
        return arguments
    if "policy" not in arguments:
        raise ValueError(f'a config of a {family} needs the key "policy", got {dict(config)!r}')
    wanted = f"{arguments.pop('policy')}{family}"
    names = {name.lower(): name for name in HOOKS.module_dict if name.endswith(family)}
    if wanted.lower() not in names:
        policies = [name.removesuffix(family) for name in names.values()]
        hint = suggest(wanted.removesuffix(family), policies)
        raise UnknownNameError(f"unknown policy {wanted.removesuffix(family)!r}; {hint}")
    return {"type": names[wanted.lower()], **arguments}


def _run_length(
    runner: Mapping[str, Any] | None, total_epochs: int | None
) -> tuple[bool, dict[str, Any]]:
    """Return whether the run is counted in epochs, and the Trainer's limits."""
    if runner is None:
        return True, {} if total_epochs is None else {"max_epochs": total_epochs}
    kind = runner.get("type", "EpochBasedRunner")
    if kind in ("EpochBasedRunner", "Runner"):
        epochs = runner.get("max_epochs", total_epochs)
        return True, {} if epochs is None else {"max_epochs": epochs}
    if kind == "IterBasedRunner":
        if "max_iters" not in runner:
            raise ValueError(f"an IterBasedRunner needs max_iters, got {dict(runner)!r}")
        return False, {"max_epochs": -1, "max_steps": runner["max_iters"]}
    hint = suggest(str(kind), ["EpochBasedRunner", "IterBasedRunner"])
    raise UnknownNameError(f"unknown runner {kind!r}; {hint}")


def _validation(workflow: Sequence[tuple[str, int]] | None) -> dict[str, Any]:
    """Return how often the Trainer validates."""
    steps = [tuple(step) for step in workflow or []]
    if not steps:
        return {}
    if len(steps) == 1 and steps[0][0] == "train":
        return {"limit_val_batches": 0}
    if len(steps) == 2 and steps[0][0] == "train" and steps[1] == ("val", 1):
        return {"check_val_every_n_epoch": steps[0][1]}
    raise ValueError(
        f'workflow must be [("train", n)] or [("train", n), ("val", 1)], got {workflow!r}: '
        "Lightning validates once after n epochs"
    )
