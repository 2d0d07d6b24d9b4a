"""Policies by name, as functions of (base, position, total): for phases, and for any field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from lightning_hooks.engine.registry import HOOKS
from lightning_hooks.hooks.updaters.updater import PolicyRunner, Updater
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.notes import add_note
from lightning_hooks.utils.suggestions import UnknownNameError, suggest

__all__ = ["policy_of", "value_of"]

OF_THE_RUN = ("warmup", "warmup_iters", "warmup_by_epoch", "by_epoch", "by_step", "base_lr")
"""Arguments for the whole schedule, and not for a policy inside."""
OWN_WAYS = ("_bases_of", "before_run", "before_train_epoch", "before_train_iter", "get_warmup_lr")
"""Methods with which a hook is more than a function of (base, position, total)."""


def policy_of(
    policy: Any, arguments: Mapping[str, Any], family: type[Updater], by_epoch: bool, where: str
) -> Updater:
    """Return the hook of a policy, as a function of (base, position, total).

    Args:
        policy: The policy's name, as in ``lr_config``, in any case.
        arguments: The hook's arguments; ``end`` and ``end_ratio`` stand for the minimum.
        family: The base of the hooks for the quantity.
        by_epoch: The unit of position and total.
        where: The place of the policy, for errors.

    Raises:
        UnknownNameError: for an unknown policy, with the closest name.
        ValueError: for an argument of the whole schedule, or a policy that needs more than a base,
            a position and a total.
        TypeError: for wrong arguments.
    """
    base = family.__name__
    kind = HOOKS.get(HOOKS.spelled(f"{policy}{base}")) if isinstance(policy, str) else None
    if kind is None:
        names = [name.removesuffix(base) for name in HOOKS.module_dict if name.endswith(base)]
        same = ["fixed"] if shown(policy).lower().startswith("'constant") else []
        hint = suggest(policy, [name for name in names if name], "lightning-hooks hooks", same)
        raise UnknownNameError(f"{where}: unknown policy {shown(policy)}; {hint}")
    for name in OF_THE_RUN:
        if name in arguments:
            raise ValueError(f"{where}: {name} is for the whole schedule, not for a policy in it")
    given, symbol = {**arguments}, family._quantity.symbol
    for name, meant in (("end", f"min_{symbol}"), ("end_ratio", f"min_{symbol}_ratio")):
        if name in given:
            given[meant] = given.pop(name)
    try:
        hook = HOOKS.build({"type": kind, "by_epoch": by_epoch, **given})
    except Exception as error:
        ends = "; end and end_ratio are short for its minimum" if "min_" in str(error) else ""
        add_note(error, f"{where}{ends}")
        raise
    own = [n for n in OWN_WAYS if getattr(kind, n, None) is not getattr(family, n, None)]
    if own == ["_bases_of"] and getattr(hook, "_own_base", None) is not None:
        own = []
    if own or not isinstance(hook, family):
        reason = (
            f"{kind.__name__} has a {own[0].lstrip('_')} of its own" if own else f"it is no {base}"
        )
        raise ValueError(
            f"{where}: {policy!r} cannot be part of a schedule, because {reason}; "
            "other policies are functions of base, position and total"
        )
    return hook


def value_of(hook: Updater) -> Callable[[Any, int, Any], float]:
    """Return a policy as a function of (base, position, total).

    A user's policy may have ``get_lr(runner, base_lr)`` in place of ``_value``.
    """
    if hook._own_base is None and hook._own_total is None and hook._is_predictable():
        return partial(type(hook)._value, hook)  # a bound method with another name has no pickle
    return partial(_value_in_window, hook)


def _value_in_window(hook: Updater, base: Any, position: int, total: Any) -> float:
    """Return the value of a policy with a base, a length or a ``get_lr`` of its own."""
    base = base if hook._own_base is None else hook._own_base
    position, total = hook._own_window(position, total)
    if hook._is_predictable():
        return hook._value(base, position, total)
    get = getattr(hook, f"get_{hook._quantity.symbol}")
    return float(get(PolicyRunner(hook.by_epoch, position, total), base))
