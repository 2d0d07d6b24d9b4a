"""Clipping gradients: what ``grad_clip`` may say, and how sharded gradients are clipped."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.utils import clip_grad_norm_

from lightning_hooks.arguments import check_bool, check_number

__all__ = ["check_clip", "clip", "clip_flattened", "is_flattened"]

ARGUMENTS = tuple(inspect.signature(clip_grad_norm_).parameters)[1:]


def check_clip(grad_clip: Mapping[str, Any]) -> None:
    """Refuse what :func:`torch.nn.utils.clip_grad_norm_` would not take.

    Raises:
        ValueError: if there is no positive ``max_norm``, or an unknown key.
        TypeError: if ``norm_type`` is no number or a flag no bool.
    """
    unknown = [key for key in grad_clip if key not in ARGUMENTS]
    if unknown:
        raise ValueError(f"grad_clip has unknown keys {unknown}; known: {list(ARGUMENTS)}")
    max_norm = grad_clip.get("max_norm")
    if not isinstance(max_norm, (int, float)) or not max_norm > 0:
        raise ValueError(f"grad_clip needs a positive max_norm, got {dict(grad_clip)}")
    if max_norm != math.inf:  # which clips nothing, and tells the norm
        check_number("grad_clip['max_norm']", max_norm)
    if grad_clip.get("norm_type") not in (None, "inf", math.inf):
        check_number("grad_clip['norm_type']", grad_clip["norm_type"], above=0)
    for name in ("error_if_nonfinite", "foreach"):
        if grad_clip.get(name) is not None:
            check_bool(**{f"grad_clip[{name!r}]": grad_clip[name]})


def clip(parameters: Sequence[torch.Tensor], grad_clip: Mapping[str, Any]) -> torch.Tensor:
    """Clip the gradients together and return the norm that they had, all shards included."""
    norm = clip_grad_norm_(parameters, **grad_clip)
    whole = getattr(norm, "full_tensor", None)  # of a DTensor: each rank has a part of the sum
    return norm if whole is None else whole()


def is_flattened(model: Any) -> bool:
    """Whether a model is FSDP's, each rank of which has a slice of every gradient."""
    return isinstance(model, FullyShardedDataParallel)


def clip_flattened(model: Any, grad_clip: Mapping[str, Any]) -> torch.Tensor:
    """Clip the gradients of FSDP's root module by the norm of all slices.

    >>> class Root:
    ...     def clip_grad_norm_(self, max_norm, norm_type=2.0): return max_norm, norm_type
    >>> clip_flattened(Root(), {"max_norm": 35, "error_if_nonfinite": True})
    (35, 2.0)
    """
    known = {key: grad_clip[key] for key in ("max_norm", "norm_type") if key in grad_clip}
    return model.clip_grad_norm_(**known)  # type: ignore[no-any-return]
