"""What mmcv's ``runner``, ``workflow`` and ``evaluation`` say to a Lightning Trainer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["DEFAULTS", "evaluates_every", "run_length", "unheard", "validation", "warn_of_unheard"]

DEFAULTS: dict[str, Any] = {
    "max_epochs": 1000,
    "max_steps": -1,
    "check_val_every_n_epoch": 1,
    "val_check_interval": 1.0,
    "limit_val_batches": 1.0,
}
"""What a Trainer has that was given none of these."""

LENGTH = ("max_epochs", "max_steps")
TOGETHER = (LENGTH, ("check_val_every_n_epoch", "val_check_interval"), ("limit_val_batches",))
"""Who gives one of these has decided on the others."""


def run_length(
    runner: Mapping[str, Any] | None,
    total_epochs: int | None = None,
    total_iters: int | None = None,
) -> tuple[bool, dict[str, int]]:
    """Return whether the run is counted in epochs, and the Trainer's limits.

    Args:
        runner: ``dict(type="EpochBasedRunner", max_epochs=...)`` or
            ``dict(type="IterBasedRunner", max_iters=...)``; without one the other two decide.
        total_epochs: The old name of ``max_epochs``.
        total_iters: The old name of ``max_iters``.

    Raises:
        UnknownNameError: for a runner of another type.
        TypeError: for a limit that is no int.
        ValueError: for a limit that is missing or given twice with different values.

    >>> run_length({"type": "IterBasedRunner", "max_iters": 100})
    (False, {'max_epochs': -1, 'max_steps': 100})
    """
    if runner is None:
        runner = {"type": "IterBasedRunner"} if total_iters is not None else {}
    kind = runner.get("type", "EpochBasedRunner")
    if kind in ("EpochBasedRunner", "Runner"):
        epochs = _limit(runner, "max_epochs", "total_epochs", total_epochs)
        return True, {} if epochs is None else {"max_epochs": epochs}
    if kind == "IterBasedRunner":
        iters = _limit(runner, "max_iters", "total_iters", total_iters)
        if iters is None:
            raise ValueError(f"an IterBasedRunner needs max_iters, got {dict(runner)!r}")
        return False, {"max_epochs": -1, "max_steps": iters}
    hint = suggest(str(kind), ["EpochBasedRunner", "IterBasedRunner"])
    raise UnknownNameError(f"unknown runner {kind!r}; {hint}")


def _limit(runner: Mapping[str, Any], name: str, old_name: str, old: int | None) -> int | None:
    limit: int | None = runner.get(name, old)
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool)):
        raise TypeError(f"{name} must be an int, got {limit!r}")
    if old is not None and limit != old:
        raise ValueError(f"{name}={limit} of the runner and {old_name}={old} contradict each other")
    return limit


def evaluates_every(hook: Any) -> int | None:
    """Return how often an EvalHook needs the Trainer's own validation; None for never.

    The greatest number that divides all its times; which of them count it decides itself.
    """
    if getattr(hook, "dataloader", None) is not None:
        return None
    intervals = getattr(hook, "dynamic_intervals", None) or []
    return math.gcd(hook.start or 0, hook.interval, *intervals)


def validation(
    workflow: Sequence[tuple[str, int]] | None, *, by_epoch: bool, evaluates_every: int | None
) -> dict[str, Any]:
    """Return how often, and on how much, the Trainer validates.

    Args:
        workflow: ``[("train", n)]``, or with a ``("val", m)`` behind.
        by_epoch: Whether ``n`` counts epochs, or iterations.
        evaluates_every: How often the Trainer's validation is needed besides; None for never.

    Raises:
        ValueError: for a workflow that Lightning's loop cannot follow.

    >>> validation([("train", 4), ("val", 1)], by_epoch=True, evaluates_every=6)
    {'check_val_every_n_epoch': 2}
    >>> validation([("train", 500), ("val", 50)], by_epoch=False, evaluates_every=None)
    {'check_val_every_n_epoch': None, 'limit_val_batches': 50, 'val_check_interval': 500}
    """
    steps = _steps(workflow, by_epoch)
    every = [steps["train"]] if "val" in steps else []
    if evaluates_every is not None:
        every.append(evaluates_every)
    elif "train" in steps and "val" not in steps:
        return {"limit_val_batches": 0}
    if not every:
        return {}
    if by_epoch:
        return {"check_val_every_n_epoch": math.gcd(*every)}
    limit = {} if evaluates_every is not None else {"limit_val_batches": steps["val"]}
    return {"check_val_every_n_epoch": None, **limit, "val_check_interval": math.gcd(*every)}


def unheard(
    said: Mapping[str, Any], held: Mapping[str, Any], *, validates: bool
) -> dict[str, tuple[Any, Any]]:
    """Return what a config says to the Trainer, where that has only its defaults, and these.

    A value that somebody gave the Trainer is meant so. Left out is what cannot be told from it:
    ``enable_checkpointing``, as a ModelCheckpoint may be the user's or the Trainer's; and
    ``precision``, as Fp16OptimizerHook refuses a wrong one and says why.

    Args:
        said: Arguments of the Trainer.
        held: What it has, of all in :data:`DEFAULTS`.
        validates: Whether it validates; if not, nothing is lost with how often it would.

    >>> unheard({"max_epochs": 12, "limit_val_batches": 0}, DEFAULTS, validates=False)
    {'max_epochs': (12, 1000)}
    >>> unheard({"max_epochs": 12}, {**DEFAULTS, "max_epochs": 3}, validates=False)
    {}
    """
    return {
        name: (said[name], held[name])
        for names in TOGETHER
        if all(_same(held[other], DEFAULTS[other]) for other in names)
        and (validates or names is LENGTH)
        for name in names
        if name in said and not _same(said[name], held[name])
    }


def warn_of_unheard(said: Mapping[str, Any], trainer: L.Trainer) -> None:
    """Warn where a fit starts without what a config says to its Trainer; see :func:`unheard`."""
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        return
    held = {name: getattr(trainer, name) for name in DEFAULTS}
    lost = unheard(said, held, validates=trainer.enable_validation)
    if lost:
        wanted = ", ".join(f"{name}={value!r}" for name, (value, _) in lost.items())
        default = ", ".join(f"{name}={value!r}" for name, (_, value) in lost.items())
        rank_zero_warn(
            f"the hooks' config says {wanted}, and the Trainer has its defaults, {default}: write "
            "Trainer(callbacks=[hooks], **hooks.trainer_kwargs), or give it values of your own"
        )


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other  # 1 is one batch, and 1.0 all of them


def _steps(workflow: Any, by_epoch: bool) -> dict[str, int]:
    """Return the workflow by mode.

    Raises:
        ValueError: if Lightning's loop cannot follow it.
    """
    if workflow is None or workflow == []:
        return {}
    steps = workflow if isinstance(workflow, (list, tuple)) else [None]
    pairs = [tuple(step) if isinstance(step, (list, tuple)) else () for step in steps]
    known = [pair for pair in pairs if len(pair) == 2 and type(pair[1]) is int and pair[1] > 0]
    modes = [mode for mode, _ in known]
    once = len(known) < 2 or known[1][1] == 1 or not by_epoch
    if len(known) != len(pairs) or modes not in (["train"], ["train", "val"]) or not once:
        m = "1" if by_epoch else "m"
        raise ValueError(
            f'workflow must be [("train", n)] or [("train", n), ("val", {m})], got {workflow!r}: '
            "Lightning validates once after n " + ("epochs" if by_epoch else "iterations")
        )
    return dict(known)
