"""Trainer arguments for mmcv's ``runner``, ``workflow`` and ``evaluation``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_hooks.engine.usage_errors import check_names
from lightning_hooks.hooks.saving.evaluation import EvalHook, intervals_of
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["DEFAULTS", "evaluation_interval", "ignored_arguments", "run_length", "validation"]

DEFAULTS: dict[str, Any] = {
    "max_epochs": 1000,
    "max_steps": -1,
    "check_val_every_n_epoch": 1,
    "val_check_interval": 1.0,
    "limit_val_batches": 1.0,
}
"""The Trainer's default values."""

RUNNER_KEYS = (
    *("type", "max_epochs", "max_iters"),
    *("model", "batch_processor", "optimizer", "work_dir", "logger", "meta"),
)
"""The arguments of mmcv's runners."""

LENGTH = ("max_epochs", "max_steps")
RELATED = (LENGTH, ("check_val_every_n_epoch", "val_check_interval"), ("limit_val_batches",))
"""Groups of arguments; a user's value for a member settles the whole group."""


def run_length(
    runner: Mapping[str, Any] | None,
    total_epochs: int | None = None,
    total_iters: int | None = None,
) -> tuple[bool, dict[str, int]]:
    """Return whether the run is counted in epochs, and the Trainer's arguments for the length.

    Args:
        runner: ``dict(type="EpochBasedRunner", max_epochs=...)`` or
            ``dict(type="IterBasedRunner", max_iters=...)``; without a type, the limit decides.
        total_epochs: The old name of ``max_epochs``.
        total_iters: The old name of ``max_iters``.

    Raises:
        UnknownNameError: for a runner of another type.
        TypeError: for an unknown key of the runner, or a limit of another type than int.
        ValueError: for a missing limit, or two different limits.

    >>> run_length({"type": "IterBasedRunner", "max_iters": 100})
    (False, {'max_epochs': -1, 'max_steps': 100})
    """
    runner = {} if runner is None else runner
    in_iters = runner.get("max_epochs") is None and runner.get("max_iters", total_iters) is not None
    kind = runner.get("type", "IterBasedRunner" if in_iters else "EpochBasedRunner")
    if kind in ("EpochBasedRunner", "Runner"):
        check_names("runner", runner, RUNNER_KEYS)
        epochs = _limit(runner, "max_epochs", "total_epochs", total_epochs)
        if epochs is None and runner.get("max_iters") is not None:
            raise ValueError(f"an EpochBasedRunner needs max_epochs, got {shown(dict(runner))}")
        return True, {} if epochs is None else {"max_epochs": epochs}
    if kind == "IterBasedRunner":
        check_names("runner", runner, RUNNER_KEYS)
        iters = _limit(runner, "max_iters", "total_iters", total_iters)
        if iters is None:
            raise ValueError(f"an IterBasedRunner needs max_iters, got {shown(dict(runner))}")
        return False, {"max_epochs": -1, "max_steps": iters}
    hint = suggest(kind, ["EpochBasedRunner", "IterBasedRunner"])
    raise UnknownNameError(f"unknown runner {shown(kind)}; {hint}")


def _limit(runner: Mapping[str, Any], name: str, old_name: str, old: int | None) -> int | None:
    limit: int | None = runner.get(name, old)
    for key, value in ((name, limit), (old_name, old)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{key} must be an int, got {shown(value)}")
    if old is not None and limit != old:
        raise ValueError(
            f"{name}={shown(limit)} of the runner and {old_name}={shown(old)} contradict each other"
        )
    return limit


def evaluation_interval(hook: Any) -> int | None:
    """Return how often an EvalHook needs the Trainer's validation; None for a hook with a loader.

    The interval is the greatest common divisor of start and intervals; the hook skips validations
    in between.
    """
    if getattr(hook, "dataloader", None) is not None:
        return None
    intervals = intervals_of(hook) if isinstance(hook, EvalHook) else [hook.interval]
    return math.gcd(hook.start or 0, *intervals)


def validation(
    workflow: Sequence[tuple[str, int]] | None, *, by_epoch: bool, interval: int | None
) -> dict[str, Any]:
    """Return the Trainer's arguments for the interval and the size of the validation.

    Args:
        workflow: ``[("train", n)]``, or ``[("train", n), ("val", m)]``.
        by_epoch: Whether ``n`` counts epochs, or iterations.
        interval: How often an evaluation needs the Trainer's validation; None for never.

    Raises:
        ValueError: for a workflow outside of Lightning's loop.

    >>> validation([("train", 4), ("val", 1)], by_epoch=True, interval=6)
    {'check_val_every_n_epoch': 2}
    >>> validation([("train", 500), ("val", 50)], by_epoch=False, interval=None)
    {'check_val_every_n_epoch': None, 'limit_val_batches': 50, 'val_check_interval': 500}
    """
    steps = _steps(workflow, by_epoch)
    every = [steps["train"]] if "val" in steps else []
    if interval is not None:
        every.append(interval)
    elif "train" in steps and "val" not in steps:
        return {"limit_val_batches": 0}
    if not every:
        return {}
    if by_epoch:
        return {"check_val_every_n_epoch": math.gcd(*every)}
    limit = {} if interval is not None else {"limit_val_batches": steps["val"]}
    return {"check_val_every_n_epoch": None, **limit, "val_check_interval": math.gcd(*every)}


def ignored_arguments(
    expected: Mapping[str, Any], actual: Mapping[str, Any], *, validates: bool
) -> list[str]:
    """Return the arguments with a value in the config and the default in the Trainer.

    Another value than the default was chosen by the user. ``enable_checkpointing`` is left out, as
    a ModelCheckpoint may be the user's or the Trainer's; so is ``precision``, as Fp16OptimizerHook
    checks the precision itself.

    Args:
        expected: Arguments of the Trainer.
        actual: The Trainer's values of all in :data:`DEFAULTS`.
        validates: Whether the Trainer validates; if not, arguments of validation do not matter.

    >>> ignored_arguments({"max_epochs": 12, "limit_val_batches": 0}, DEFAULTS, validates=False)
    ['max_epochs']
    >>> ignored_arguments({"max_epochs": 12}, {**DEFAULTS, "max_epochs": 3}, validates=False)
    []
    """
    return [
        name
        for group in RELATED
        if all(_same(actual[other], DEFAULTS[other]) for other in group)
        and (validates or group is LENGTH)
        for name in group
        if name in expected and not _same(expected[name], actual[name])
    ]


def _same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and value == other  # 1 is value batch, and 1.0 all of them


def _steps(workflow: Any, by_epoch: bool) -> dict[str, int]:
    """Return the number of epochs, or iterations, of each mode of a workflow.

    Raises:
        ValueError: for a workflow outside of Lightning's loop.
    """
    if workflow is None or (isinstance(workflow, list) and not workflow):  # numpy compares items
        return {}
    steps = workflow if isinstance(workflow, (list, tuple)) else [None]
    pairs = [tuple(step) if isinstance(step, (list, tuple)) else () for step in steps]
    valid = [pair for pair in pairs if len(pair) == 2 and type(pair[1]) is int and pair[1] > 0]
    modes = [mode for mode, _ in valid]
    once = len(valid) < 2 or valid[1][1] == 1 or not by_epoch
    if len(valid) != len(pairs) or modes not in (["train"], ["train", "val"]) or not once:
        m = "1" if by_epoch else "m"
        raise ValueError(
            f'workflow must be [("train", n)] or [("train", n), ("val", {m})], got '
            f"{shown(workflow)}: Lightning validates once after n "
            + ("epochs" if by_epoch else "iterations")
        )
    return dict(valid)
