"""Keep an epoch's sums of a module's logged values over a resume; Lightning saves none."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api.logged_values import step_results
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.private_names import needs
from lightning_hooks.engine.lightning_api.progress import batches
from lightning_hooks.utils.concatenated import concatenated, separated

__all__ = ["epoch_sums", "restore_epoch_sums"]

_FLAGS = ("prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx")


def epoch_sums(trainer: L.Trainer, is_alone: bool) -> dict[str, Any]:
    """Return the sums of the values logged by epoch, of the epoch's batches so far.

    ===========  =====================================================================
    key          value
    ===========  =====================================================================
    groups       of values that follow one another with equal arguments of ``self.log``:
                 ``fx``, the module's method that logs; ``reduce_fx``, the name of the
                 reduction; ``flags``, the other arguments; and by the value's name
                 ``values``, the sums, or minima or maxima, and ``batch_sizes``, the
                 numbers of samples of the means
    without_sum  the names, in the epoch's line, of the values without a sum
    ===========  =====================================================================

    The tensors stay on their device. There is no sum of a metric of torchmetrics, or over a process
    group; none after an error within a batch, which is repeated; and none of one rank alone.

    Args:
        trainer: The Trainer.
        is_alone: Whether the file has the state of one of several ranks.
    """
    results, counts = step_results(trainer), batches(trainer).current
    is_whole = counts.processed == counts.ready and not is_alone
    items = {k: item for k, item in results.items() if item.meta.on_epoch and not item.has_reset}
    with_sum = {key: item for key, item in items.items() if is_whole and _has_sum(item)}
    without_sum = [item.meta for key, item in items.items() if key not in with_sum]
    return {
        "groups": [
            {**arguments, **_sums([*alike])}
            for (arguments, _), alike in itertools.groupby(with_sum.values(), _shared)
        ],
        "without_sum": [meta.forked_name(on_step=False) for meta in without_sum],
    }


def _key(fx: str, name: str) -> str:
    """Return Lightning's key of a logged value."""
    return f"{fx}.{name}"


def _has_sum(item: Any) -> bool:
    """Whether a logged value has a sum to go on from."""
    meta = item.meta
    is_torchs = getattr(torch, meta.reduce_fx.__name__, None) is meta.reduce_fx
    return item.is_tensor and is_torchs and meta.sync.group is None


def _shared(item: Any) -> tuple[dict[str, Any], str]:
    """Return the arguments and the type of tensor of a value with a sum."""
    meta = item.meta
    flags = {name: getattr(meta, name) for name in _FLAGS}
    flags |= {"sync_dist": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only}
    return {"fx": meta.fx, "reduce_fx": meta.reduce_fx.__name__, "flags": flags}, item.value.type()


def _sums(items: Sequence[Any]) -> dict[str, Any]:
    """Return the sums of a group."""
    means = [item for item in items if item.meta.is_mean_reduction]
    sizes = {item.meta.name: torch.as_tensor(item.cumulated_batch_size) for item in means}
    return {
        "values": concatenated({item.meta.name: item.value for item in items}),
        "batch_sizes": concatenated(sizes),
    }


@needs("the module's logged values in loggers")
def restore_epoch_sums(trainer: L.Trainer, saved: Mapping[str, Any], fit: FitChanges) -> None:
    """Go on from saved sums, within the epoch.

    Args:
        trainer: The Trainer, in ``on_train_start``.
        saved: A result of :func:`epoch_sums`.
        fit: The fit.
    """
    results, keys = step_results(trainer), set()
    for group in saved["groups"]:
        batch_sizes = separated(group["batch_sizes"])
        for name, value in separated(group["values"]).items():
            _begin(results, group, name, value, batch_sizes.get(name), trainer)
            keys.add(_key(group["fx"], name))
    if not keys:
        return
    # in an epoch's first batch Lightning forgets the sums
    trainer._logger_connector._first_loop_iter = True
    until = fit.part()
    adopt = partial(_adopt_arguments, results, keys, until)
    fit.patch(results, "log", before=adopt, until=until)


def _begin(
    results: Any,
    group: Mapping[str, Any],
    name: str,
    value: torch.Tensor,
    batch_size: torch.Tensor | None,
    trainer: L.Trainer,
) -> None:
    """Add a sum to Lightning's collection."""
    value = value.squeeze().to(trainer.lightning_module.device)
    results.log(
        *(group["fx"], name, value),
        # a call with sync_dist may be a collective
        **{**group["flags"], "sync_dist": False},
        reduce_fx=group["reduce_fx"],
        sync_dist_fn=trainer.strategy.reduce,
        batch_size=1,
    )
    item = results[_key(group["fx"], name)]
    item.meta.sync.should = group["flags"]["sync_dist"]
    item.value, item._forward_cache = value, None
    if item.meta.is_mean_reduction and batch_size is not None:
        item.cumulated_batch_size = batch_size.squeeze().to(value.device)


def _adopt_arguments(
    results: Any, keys: set[str], until: ExitStack, fx: str, name: str, *args: Any, **kwargs: Any
) -> None:
    """Give a sum the arguments of the module's first call: Lightning refuses a change."""
    key = _key(fx, name)
    if key not in keys:
        return
    keys.remove(key)
    if not keys:
        until.close()
    present = type(results)(training=True)
    present.log(fx, name, *args, **{**kwargs, "sync_dist": False})
    before, now = results[key], present[key]
    now.meta.sync.should = kwargs.get("sync_dist", False)
    if now.is_tensor and now.meta.reduce_fx is before.meta.reduce_fx:
        before.meta = now.meta
    else:
        del results[key]
