"""The numbers of a log line: kinds of values, names, memory, means over ranks."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from lightning.pytorch.trainer.states import TrainerFn
from torch import distributed

from lightning_hooks.engine.lightning_api import logged_values
from lightning_hooks.utils.samples import as_image, is_image

if TYPE_CHECKING:
    from lightning_hooks.engine.runner.runner import Runner

__all__ = [
    "EPOCH_MODES",
    "as_module_calls",
    "by_kind",
    "has_rates",
    "in_fit",
    "is_scalar",
    "mean_over_ranks",
    "peak_memory",
]


EPOCH_MODES = "train_epoch", "test"
"""Modes without a step and without a learning rate, which mmcv does not have."""


def in_fit(runner: Runner) -> bool:
    """Whether a fit is in progress, not a test or validation alone."""
    return bool(runner.trainer.state.fn == TrainerFn.FITTING)


def has_rates(runner: Runner) -> bool:
    """Whether a line has the rates of a step; outside of a fit no hook sets the rates."""
    return runner.mode not in EPOCH_MODES and (runner.mode == "train" or in_fit(runner))


def is_scalar(val: Any, include_np: bool = True, include_torch: bool = True) -> bool:
    """Whether a value is a number, or an array or tensor with one element.

    >>> is_scalar(torch.tensor(0.5)), is_scalar(np.ones(2)), is_scalar("cat")
    (True, False, False)
    """
    if isinstance(val, numbers.Number):
        return True
    if isinstance(val, np.ndarray):
        return include_np and val.ndim == 0
    return include_torch and isinstance(val, torch.Tensor) and val.numel() == 1


def by_kind(tags: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Sort tags into ``scalars``, ``texts`` and ``images``; other values are left out.

    >>> by_kind({"loss": torch.tensor(0.5), "best": "cat", "recalls": [0.1, 0.2]})
    {'scalars': {'loss': 0.5}, 'texts': {'best': 'cat'}, 'images': {}}
    """
    return {
        "scalars": {name: float(v) for name, v in tags.items() if is_scalar(v)},
        "texts": {name: v for name, v in tags.items() if isinstance(v, str)},
        "images": {name: as_image(v) for name, v in tags.items() if is_image(v)},
    }


def as_module_calls(tags: Mapping[str, Any], runner: Runner) -> dict[str, Any]:
    """Return the values of training steps by the names that Lightning's loggers get.

    The loss has the names under which the module logs the loss, or else ``train_loss``.
    """
    forked = logged_values.step_names(runner.trainer)
    named = {forked.get(name, name): value for name, value in tags.items() if name != "loss"}
    if "loss" in tags:
        copies = runner.train_log.loss_names or {"train_loss"}
        named.update({forked.get(name, name): tags["loss"] for name in sorted(copies)})
    return named


def mean_over_ranks(averages: Mapping[str, float]) -> dict[str, float]:
    """Return the mean of each value over the ranks with that key; one collective.

    >>> mean_over_ranks({"loss": 0.5})  # on one rank
    {'loss': 0.5}
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return dict(averages)
    of_ranks: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(of_ranks, dict(averages))
    names = dict.fromkeys(name for one in of_ranks for name in one)
    found = {name: [one[name] for one in of_ranks if name in one] for name in names}
    return {name: sum(values) / len(values) for name, values in found.items()}


def peak_memory(runner: Runner) -> int | None:
    """Return torch's peak of allocated memory on the module's device, in MiB.

    The result is the maximum over the ranks, so all ranks must call this function. None without
    CUDA.
    """
    device = runner.module.device
    if device.type != "cuda":
        return None
    mib = torch.cuda.max_memory_allocated(device) // 2**20
    if runner.world_size == 1:
        return mib  # without a collective nothing is read from the device
    of_all = torch.tensor([mib], device=device)
    torch.distributed.all_reduce(of_all, op=torch.distributed.ReduceOp.MAX)
    return int(of_all.item())
