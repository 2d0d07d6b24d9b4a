"""The layout of a checkpoint as a table, and a check of what a file holds against the table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from numbers import Integral, Real
from types import FunctionType, MappingProxyType
from typing import Any

import torch

from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.concatenated import concatenation
from lightning_hooks.utils.plain_types import count_values
from lightning_hooks.utils.random_state import random_state

__all__ = [
    "COUNTERS",
    "OF_RANKS",
    "OPTIMIZER",
    "OWN_PART",
    "RAW",
    "STATE",
    "DamagedCheckpointError",
    "check_layout",
    "check_weights",
    "has_average",
    "own_part",
    "raw_weights",
]

OWN_PART = "lightning_hooks"
"""The key of this package's part of a checkpoint."""

RAW, STATE = "current_model_state", "averaging_state"
"""The keys of a checkpoint with an average as ``state_dict``, as ``WeightAveraging`` writes it.

The values are the raw weights, to train on with, and ``n_averaged``, the number of updates.
"""


OF_RANKS = ("rng", "loaders", "data", "sums", "log_buffer", "metrics")
"""The keys of this package's part with a list of what each rank has: random states, places ..."""


def count(value: Any) -> bool:
    """Return whether a value is a number of epochs, iterations or steps."""
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)
    return is_whole and 0 <= int(value) < 2**63


def version(value: Any) -> bool:
    """Return whether a value is a version of a package."""
    return isinstance(value, str) and re.match(r"\d+(\.\d+)+", value) is not None


def row(value: Any) -> bool:
    """Return whether a value is a tensor of one dimension."""
    return isinstance(value, torch.Tensor) and value.ndim == 1


def score_with_path(value: Any) -> bool:
    """Return whether a value is the score of a file with the path."""
    match value:
        case [Real(), str()]:
            return True
    return False


def worker_state(value: Any) -> bool:
    """Return whether a value is the random state of a worker, if known."""
    return value is None or random_state(value)


def rank_state(value: Any) -> bool:
    """Return whether a value is the random state of a rank, or an empty list if not read."""
    return (isinstance(value, list) and not value) or random_state(value)


NUMBER = Real | torch.Tensor

DRAWS = {"process": random_state, "own": [torch.Tensor]}

COUNTERS = dict.fromkeys(("epoch", "iter"), count)
"""What a run that is resumed takes from mmcv's ``meta``."""

OPTIMIZER = {"state?": {}, "param_groups": [{"params?": list}]}
"""The state of an optimizer of torch."""

COUNTS = {key: {"*": count} for key in ("total?", "current?")}
PROGRESS = {
    **COUNTS,
    **{"is_last_batch?": bool, "_batches_that_stepped?": count, "optimizer?": {"*": COUNTS}},
}
"""The progress of a loop of Lightning's, and of the optimizers in the loop."""

LAYOUT: dict[str, Any] = {
    "pytorch-lightning_version?": version,
    "state_dict?": {},
    f"{RAW}?": {},
    f"{STATE}?": {},
    "global_step?": count,
    "optimizer_states?": [OPTIMIZER],
    "lr_schedulers?": [{}],
    "callbacks?": {},
    "loops?": {"fit_loop": {"*": PROGRESS}},
    "meta?": {
        **dict.fromkeys(("epoch?", "iter?"), count),
        "hook_msgs?": {
            "best_ckpts?": {"*": [score_with_path]},
            "best_score?": NUMBER,
        },
    },
    f"{OWN_PART}?": {
        "iter?": count,
        **dict.fromkeys(("last_val_iter?", "waiting?", "ahead?"), count),
        **dict.fromkeys(("in_epoch?", "in_end?", "end_is_left?"), bool),
        "buffers?": {},
        "log_buffer?": [
            [
                {
                    "groups": [{"values": concatenation, "counts": row, "iterations": row}],
                    "output": {"*": float | int},
                    **{"averages": [str], "loss_names?": [str]},
                    "ready": bool,
                }
            ]
        ],
        "results?": [{"*": float | int}],
        "metrics?": [[concatenation]],
        "logged?": [str],
        "rng?": [rank_state],
        "loaders?": [
            [
                {
                    **dict.fromkeys(("batches?", "check?"), count),
                    **dict.fromkeys(("start?", "first?"), DRAWS),
                    **{"again?": bool, "state?": {}, "workers?": [worker_state]},
                }
            ]
        ],
        "data?": [[torch.Tensor]],
        "sums?": [
            {
                "groups": [
                    {
                        **{"fx": str, "reduce_fx": str, "flags": {"sync_dist": bool, "*": bool}},
                        **dict.fromkeys(("values", "batch_sizes"), concatenation),
                    }
                ],
                "without_sum": [str],
            }
        ],
        **dict.fromkeys(("parts?", "ranks?"), count),
        "hooks?": [{"key": str, "class": str, "arguments": {}}],
        "averages?": [
            {
                **{"class": str, "arguments": {}, "state_dict": dict | None},
                **dict.fromkeys(("steps", "updates"), int | None),
            }
        ],
        "rates?": [[{**dict.fromkeys(("lr?", "momentum?"), NUMBER), "betas?": list | tuple}]],
        "grad_norms?": {"*": {"*": torch.Tensor}},
        "text_logs?": {"*": {"size": int, "crc32": object}},
        "watch?": {"*": {"*": int}},
        "skips?": {"steps": count, "skipped": [count], "in_a_row": [count]},
        "trackers?": {"*": [{}]},
    },
}
"""Lightning's keys, mmcv's ``meta`` and the part of this package, as far as all readers need them.

A dict has the forms of a dict's values, with ``?`` for a key that may be missing and ``*`` for all
keys. A list has the form of a list's items. Another form is a type, or a function of the value.
"""


MOST_VALUES = 1_000_000
"""The maximum number of values in ``meta``, and in this package's part of a file.

Values of a file may refer to one another, so that few bytes hold values without end.
"""


class DamagedCheckpointError(RuntimeError, ValueError):
    """A checkpoint is damaged; the message names the file and the newest intact checkpoint."""


def check_layout(
    checkpoint: Mapping[str, Any],
    path: str = "the checkpoint",
    layout: Mapping[str, Any] = MappingProxyType(LAYOUT),
) -> None:
    """Compare a checkpoint's contents with a table.

    Args:
        checkpoint: The contents.
        path: The file, for the error.
        layout: The form of the value under each key.

    Raises:
        DamagedCheckpointError: for a value of another form; the message has the path and the keys.

    >>> check_layout({"lightning_hooks": {"iter": "many"}}, "a.pth")
    Traceback (most recent call last):
    lightning_hooks.storage.layout.DamagedCheckpointError: a.pth's 'lightning_hooks' is damaged: \
'iter' must be a count, got 'many'
    """
    for key, form in layout.items():
        name = key.removesuffix("?")
        if name in checkpoint:
            try:
                _check_count(name, checkpoint[name])
                _check(checkpoint[name], form, ())
            except TypeError as error:
                raise DamagedCheckpointError(f"{path}'s {name!r} is damaged: {error}") from None


def check_weights(state: Mapping[str, Any], own: Mapping[str, Any], name: str, path: str) -> None:
    """Check that a saved state dict has tensors where the module has tensors.

    Args:
        state: The saved state dict; extra states and keys unknown to the module may have any form.
        own: The module's state dict.
        name: The key of ``state`` in the checkpoint, for the error.
        path: The file, for the error.

    Raises:
        DamagedCheckpointError: for a value of another type; the message has the path and the keys.

    >>> check_weights({"w": 5}, {"w": torch.zeros(1)}, "state_dict", "a.pth")
    Traceback (most recent call last):
    lightning_hooks.storage.layout.DamagedCheckpointError: a.pth's 'state_dict' is damaged: \
'w' must be a Tensor, got 5
    """
    for key in state.keys() & own.keys():
        if isinstance(own[key], torch.Tensor):
            try:
                _check(state[key], torch.Tensor, (key,))
            except TypeError as error:
                raise DamagedCheckpointError(f"{path}'s {name!r} is damaged: {error}") from None


def own_part(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return this package's part of a checkpoint; empty without such a part.

    Raises:
        DamagedCheckpointError: if an item of the part has another form than the table's.
    """
    part: dict[str, Any] = checkpoint.get(OWN_PART, {})
    check_layout({OWN_PART: part})
    return part


def has_average(checkpoint: Mapping[str, Any]) -> bool:
    """Whether the checkpoint's ``state_dict`` is an average, with the raw weights beside it."""
    return RAW in checkpoint and STATE in checkpoint


def raw_weights(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the raw weights, to train on with.

    >>> raw_weights({"state_dict": {"w": 1.5}, "current_model_state": {"w": 2.0},
    ...              "averaging_state": {"n_averaged": 3}})
    {'w': 2.0}
    >>> raw_weights({"state_dict": {"w": 2.0}})
    {'w': 2.0}
    """
    return dict(checkpoint[RAW] if has_average(checkpoint) else checkpoint["state_dict"])


def _check_count(name: str, value: Any) -> None:
    """Raise a TypeError for more values than a walk through all of them should meet."""
    if name in ("meta", OWN_PART) and count_values(value) > MOST_VALUES:
        raise TypeError(f"it must have at most {MOST_VALUES} values, shared ones at each place")


def _check(value: Any, form: Any, keys: tuple[Any, ...]) -> None:
    """Raise a TypeError that names the first value of another form.

    Args:
        value: The value.
        form: The form, of a table.
        keys: Those that lead to the value, for the error.
    """
    kind = Mapping if isinstance(form, dict) else list if isinstance(form, list) else form
    if isinstance(kind, FunctionType):
        is_right = kind(value)
    else:
        is_right = isinstance(value, kind) and (type(value) is not bool or kind in (bool, object))
    if not is_right:
        name = "dict" if kind is Mapping else getattr(kind, "__name__", str(kind)).replace("_", " ")
        article = "an" if name[0] in "aeiou" else "a"
        raise TypeError(f"{_place(keys)} must be {article} {name}, got {shown(value)}")
    if isinstance(form, list):
        for index, item in enumerate(value):
            _check(item, form[0], (*keys, index))
    for name, of_item in form.items() if isinstance(form, dict) else ():
        key = name.removesuffix("?")
        if name == "*":
            for key, item in value.items():
                _check(item, of_item, (*keys, key))
        elif key in value:
            _check(value[key], of_item, (*keys, key))
        elif key == name:
            raise TypeError(f"{_place(keys)} must have {key}, got {shown(value)}")


def _place(keys: tuple[Any, ...]) -> str:
    """Name a value by the keys that lead to the value.

    >>> _place(("rng", 0)), _place(())
    ("'rng'[0]", 'it')
    """
    return "".join([shown(keys[0]), *(f"[{shown(key)}]" for key in keys[1:])]) if keys else "it"
