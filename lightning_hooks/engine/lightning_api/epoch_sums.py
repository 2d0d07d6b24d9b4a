"""Keep an epoch's sums of a module's logged values over a resume; Lightning saves none."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import lightning as L
import torch

from lightning_hooks.engine.lightning_api.logged_values import step_results
from lightning_hooks.engine.lightning_api.method_patch import FitChanges
from lightning_hooks.engine.lightning_api.private_names import needs
from lightning_hooks.engine.lightning_api.progress import batches

__all__ = ["epoch_sums", "restore_epoch_sums"]

_FLAGS = ("prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx")


def epoch_sums(trainer: L.Trainer) -> list[dict[str, Any]]:
    """Return the sums of the values logged by epoch, of the epoch's batches so far.

    ===========  =====================================================================
    key          value
    ===========  =====================================================================
    fx, name     the module's method that logs, and the name
    label        the name in the epoch's line
    value        the sum, or minimum or maximum
    batch_size   the number of samples of a mean
    reduce_fx    the name of the reduction
    flags        further arguments of ``self.log``
    ===========  =====================================================================

    The tensors stay on their device. There is no ``value`` of a metric of torchmetrics, or of a sum
    over a process group; none after an error within a batch, which is repeated; and none of one
    rank alone.
    """
    results, counts = step_results(trainer), batches(trainer).current
    is_alone = trainer.interrupted and trainer.world_size > 1
    is_whole = counts.processed == counts.ready and not is_alone
    return [
        _sum_of(item, is_whole)
        for item in results.values()
        if item.meta.on_epoch and not item.has_reset
    ]


def _sum_of(item: Any, is_whole: bool) -> dict[str, Any]:
    """Return what is saved of a logged value."""
    meta = item.meta
    record = {"fx": meta.fx, "name": meta.name, "label": meta.forked_name(on_step=False)}
    reduce_fx = meta.reduce_fx.__name__
    is_torchs = getattr(torch, reduce_fx, None) is meta.reduce_fx
    if not (item.is_tensor and is_whole and is_torchs and meta.sync.group is None):
        return record
    flags = {name: getattr(meta, name) for name in _FLAGS}
    flags |= {"sync_dist": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only}
    record |= {"value": item.value.detach().clone(), "reduce_fx": reduce_fx, "flags": flags}
    if meta.is_mean_reduction:
        record["batch_size"] = torch.as_tensor(item.cumulated_batch_size).clone()
    return record


@needs("the module's logged values in loggers")
def restore_epoch_sums(
    trainer: L.Trainer, saved: Collection[Mapping[str, Any]], fit: FitChanges
) -> None:
    """Go on from saved sums, within the epoch.

    Args:
        trainer: The Trainer, in ``on_train_start``.
        saved: The sums, as from :func:`epoch_sums`.
        fit: The fit.
    """
    results = step_results(trainer)
    kept = {f"{record['fx']}.{record['name']}": record for record in saved if "value" in record}
    if not kept:
        return
    for key, record in kept.items():
        _begin(results, key, record, trainer)
    # in an epoch's first batch Lightning forgets the sums
    trainer._logger_connector._first_loop_iter = True
    until = fit.part()
    adopt = partial(_adopt_arguments, results, {*kept}, until)
    fit.patch(results, "log", before=adopt, until=until)


def _begin(results: Any, key: str, record: Mapping[str, Any], trainer: L.Trainer) -> None:
    """Add a sum to Lightning's collection."""
    value = record["value"].to(trainer.lightning_module.device)
    results.log(
        *(record["fx"], record["name"], value),
        # a call with sync_dist may be a collective
        **{**record["flags"], "sync_dist": False},
        reduce_fx=record["reduce_fx"],
        sync_dist_fn=trainer.strategy.reduce,
        batch_size=1,
    )
    item = results[key]
    item.meta.sync.should = record["flags"]["sync_dist"]
    item.value, item._forward_cache = value, None
    if item.meta.is_mean_reduction:
        item.cumulated_batch_size = record["batch_size"].to(value.device)


def _adopt_arguments(
    results: Any, keys: set[str], until: ExitStack, fx: str, name: str, *args: Any, **kwargs: Any
) -> None:
    """Give a sum the arguments of the module's first call: Lightning refuses a change."""
    key = f"{fx}.{name}"
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
