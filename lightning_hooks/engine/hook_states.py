"""Find each hook's state in a checkpoint, independent of the hook's place in the Trainer.

A state belongs to a hook class. Of several hooks of a class, each hook gets the state with the
fewest differing arguments; ties are broken by the given order. So hooks may be added, removed,
reordered, moved into an adapter or given other arguments when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lightning.pytorch.callbacks import Callback

from lightning_hooks.engine.hook_callback import HookCallback
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.plain_types import plain

__all__ = [
    "DIALECTS_KEY",
    "Identity",
    "adopt_states",
    "finds_none",
    "has_no_owner",
    "has_state",
    "pair",
    "saved_identities",
]


DIALECTS_KEY = "lightning_hooks_dialects"
"""The entry of a checkpoint with the states of hooks of other dialects, by name."""


class Identity(NamedTuple):
    """The class and the distinguishing arguments of a hook."""

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, hook: Any) -> Identity:
        """Return the identity of a hook."""
        return cls(type(hook).__qualname__, plain(hook._state_arguments()))

    def __str__(self) -> str:
        given = ", ".join(f"{name}={shown(value)}" for name, value in self.arguments.items())
        return f"{self.name}({given})"


def pair(saved: Sequence[Identity], present: Sequence[Identity]) -> dict[int, int]:
    """Return the index of the saved identity for the index of each matched present identity.

    >>> slow, fast = Identity("EMAHook", {"momentum": 0.1}), Identity("EMAHook", {"momentum": 0.5})
    >>> pair([slow, fast], [fast, slow])
    {0: 1, 1: 0}
    >>> pair([slow, fast], [Identity("EMAHook", {"momentum": 0.2}), fast])
    {1: 1, 0: 0}
    >>> pair([slow], [Identity("StochasticWeightAverageHook", {})])
    {}
    """
    candidates = sorted(
        (_differences(identity.arguments, other.arguments), abs(i - j), i, j)
        for i, identity in enumerate(present)
        for j, other in enumerate(saved)
        if identity.name == other.name
    )
    pairs: dict[int, int] = {}
    for _, _, i, j in candidates:
        if i not in pairs and j not in pairs.values():
            pairs[i] = j
    return pairs


def _differences(own: Mapping[str, Any], other: Mapping[str, Any]) -> int:
    return sum(
        name not in own or name not in other or own[name] != other[name]
        for name in own.keys() | other.keys()
    )


def has_no_owner(what: str, identity: object) -> str:
    """Return the warning for a saved value of a hook missing in the Trainer.

    >>> has_no_owner("the average", Identity("EMAHook", {"momentum": 0.1}))[:64]
    'the checkpoint has the average of EMAHook(momentum=0.1), and no '
    """
    return (
        f"the checkpoint has {what} of {identity}, and no hook of this Trainer takes it. Give "
        f"the Trainer {identity} to go on with it; without, it is lost from the next checkpoint on"
    )


def finds_none(what: str, identity: object) -> str:
    """Return the warning for a hook without a saved value."""
    return (
        f"{identity} finds {what} of its own in the checkpoint, and begins anew. If it is not new "
        "in this run, resume from a checkpoint that was written with it"
    )


def _stateful(hooks: Iterable[Any]) -> list[Any]:
    return [
        hook
        for hook in hooks
        if isinstance(hook, HookCallback) and type(hook).state_dict is not Callback.state_dict
    ]


def has_state(hook: Any) -> bool:
    """Whether a hook with ``state_dict()`` has a state."""
    try:
        return bool(hook.state_dict())
    except Exception:  # a state exists in a run
        return True


def saved_identities(hooks: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the table of stateful hooks for a checkpoint, also of hooks without a state yet."""
    table = []
    for hook in _stateful(hooks):
        name, arguments = Identity.of(hook)
        table.append({"class": name, "arguments": arguments, "key": hook.state_key})
    return table


def adopt_states(
    checkpoint: dict[str, Any], table: Sequence[Mapping[str, Any]], hooks: Iterable[Any]
) -> list[str]:
    """Put each hook's state under the key read by Lightning; return warnings.

    Args:
        checkpoint: Lightning's dict, with ``callbacks`` changed.
        table: The table of :func:`saved_identities`.
        hooks: The hooks of the Trainer, in the order given.

    Returns:
        A warning for each stateful hook without a saved state, and each saved state without a hook.
    """
    states: dict[str, Any] = checkpoint.get("callbacks") or {}
    present = _stateful(hooks)
    known = {row["key"]: Identity(row["class"], row["arguments"]) for row in table}
    keys, pairs = [*known], pair([*known.values()], [*map(Identity.of, present)])
    own = {key: states.pop(key) for key in keys if key in states}
    warnings = []
    for place, hook in enumerate(present):
        if place in pairs:
            state = own.pop(keys[pairs[place]], None)
            if state is not None:
                states[hook.state_key] = state
        elif has_state(hook):
            warnings.append(finds_none("no state", Identity.of(hook)))
    return warnings + [has_no_owner("the state", known[key]) for key in own]
