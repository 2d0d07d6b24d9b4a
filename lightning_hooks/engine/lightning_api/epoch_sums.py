"""Keep an epoch's sums of a module's logged values over a resume; Lightning saves none."""

from __future__ import annotations

from collections.abc import Mapping
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

__all__ = ["epoch_sums", "restore_epoch_sums", "without_sum"]

_FLAGS = ("prog_bar", "logger", "on_step", "on_epoch", "enable_graph", "add_dataloader_idx")


def epoch_sums(trainer: L.Trainer) -> dict[str, Any]:
    """Return the sums of the values logged by epoch, of the epoch's batches so far.

    ===========  =====================================================================
    key          value
    ===========  =====================================================================
    logged       of each value ``fx``, the module's method that logs; ``name``;
                 ``label``, the name in the epoch's line; and for a value with a sum
                 ``reduce_fx``, the name of the reduction, and ``flags``, further
                 arguments of ``self.log``
    values       the sum, or minimum or maximum, by Lightning's key of the value
    batch_sizes  the number of samples of a mean, by the key
    ===========  =====================================================================

    The tensors stay on their device. There is no sum of a metric of torchmetrics, or over a process
    group; none after an error within a batch, which is repeated; and none of one rank alone.
    """
    results, counts = step_results(trainer), batches(trainer).current
    is_alone = trainer.interrupted and trainer.world_size > 1
    is_whole = counts.processed == counts.ready and not is_alone
    items = {k: item for k, item in results.items() if item.meta.on_epoch and not item.has_reset}
    with_sum = {key: item for key, item in items.items() if is_whole and _has_sum(item)}
    return {
        "logged": [_description(item.meta, key in with_sum) for key, item in items.items()],
        "values": concatenated({key: item.value for key, item in with_sum.items()}),
        "batch_sizes": concatenated(
            {
                key: torch.as_tensor(item.cumulated_batch_size)
                for key, item in with_sum.items()
                if item.meta.is_mean_reduction
            }
        ),
    }


def _key(fx: str, name: str) -> str:
    """Return Lightning's key of a logged value."""
    return f"{fx}.{name}"


def _has_sum(item: Any) -> bool:
    """Whether a logged value has a sum to go on from."""
    meta = item.meta
    is_torchs = getattr(torch, meta.reduce_fx.__name__, None) is meta.reduce_fx
    return item.is_tensor and is_torchs and meta.sync.group is None


def _description(meta: Any, has_sum: bool) -> dict[str, Any]:
    """Return what is saved of a logged value, beside its sum."""
    logged = {"fx": meta.fx, "name": meta.name, "label": meta.forked_name(on_step=False)}
    if has_sum:
        flags = {name: getattr(meta, name) for name in _FLAGS}
        flags |= {"sync_dist": meta.sync.should, "rank_zero_only": meta.sync.rank_zero_only}
        logged |= {"reduce_fx": meta.reduce_fx.__name__, "flags": flags}
    return logged


def without_sum(saved: Mapping[str, Any]) -> frozenset[str]:
    """Return the names, in the epoch's line, of saved values without a sum."""
    return frozenset(logged["label"] for logged in saved["logged"] if "flags" not in logged)


@needs("the module's logged values in loggers")
def restore_epoch_sums(trainer: L.Trainer, saved: Mapping[str, Any], fit: FitChanges) -> None:
    """Go on from saved sums, within the epoch.

    Args:
        trainer: The Trainer, in ``on_train_start``.
        saved: A result of :func:`epoch_sums`.
        fit: The fit.
    """
    results = step_results(trainer)
    values, batch_sizes = (separated(saved[name]) for name in ("values", "batch_sizes"))
    if not values:
        return
    for logged in saved["logged"]:
        key = _key(logged["fx"], logged["name"])
        if key in values:
            _begin(results, key, logged, values[key], batch_sizes.get(key), trainer)
    # in an epoch's first batch Lightning forgets the sums
    trainer._logger_connector._first_loop_iter = True
    until = fit.part()
    adopt = partial(_adopt_arguments, results, {*values}, until)
    fit.patch(results, "log", before=adopt, until=until)


def _begin(
    results: Any,
    key: str,
    logged: Mapping[str, Any],
    value: torch.Tensor,
    batch_size: torch.Tensor | None,
    trainer: L.Trainer,
) -> None:
    """Add a sum to Lightning's collection."""
    value = value.squeeze().to(trainer.lightning_module.device)
    results.log(
        *(logged["fx"], logged["name"], value),
        # a call with sync_dist may be a collective
        **{**logged["flags"], "sync_dist": False},
        reduce_fx=logged["reduce_fx"],
        sync_dist_fn=trainer.strategy.reduce,
        batch_size=1,
    )
    item = results[key]
    item.meta.sync.should = logged["flags"]["sync_dist"]
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
