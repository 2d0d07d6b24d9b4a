"""Keep and restore a run between a training batch and the validation that follows it.

Lightning resumes from no such moment: it takes a validation after the last batch of an epoch for
done, and forgets what the module has logged since the epoch began.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from torchmetrics import Metric

from lightning_hooks.engine.lightning_api.method_patch import MethodPatch

__all__ = ["PendingValidation", "after_each_batch", "pending_state"]


def after_each_batch(trainer: L.Trainer, call: Callable[[], None]) -> MethodPatch:
    """Call a function when all events of a batch are over, before a validation begins."""
    return MethodPatch(trainer.fit_loop.epoch_loop, "on_advance_end", lambda fetcher: call())


def pending_state(trainer: L.Trainer) -> dict[str, Any]:
    """Return what a checkpoint of Lightning's lacks, of types that any loader reads.

    =============  ==========================================================================
    key            value
    =============  ==========================================================================
    should_stop    whether the run is to end with this epoch
    logged         what the module has logged since the epoch began
    metrics        the states of its torchmetrics
    values         the values that callbacks see
    first          what Lightning notes of the first batch of an epoch
    =============  ==========================================================================
    """
    logged = {}
    for key, item in trainer.fit_loop.epoch_loop._results.items():
        if item.meta.sync.group is None and not item.has_reset:
            logged[key] = {
                "arguments": _arguments(item.meta),
                "state": _state(item) if item.is_tensor else None,
                "last": item._forward_cache,
            }
    modules, connector = trainer.lightning_module.named_modules(), trainer._logger_connector
    return {
        "should_stop": bool(trainer.should_stop),
        "logged": logged,
        "metrics": {name: _state(part) for name, part in modules if isinstance(part, Metric)},
        "values": {
            name: value
            for name, value in connector._callback_metrics.items()
            if isinstance(value, torch.Tensor)
        },
        "first": connector._first_loop_iter,
    }


def _arguments(meta: Any) -> dict[str, Any]:
    """Return the arguments with which a value was logged."""
    names = ("fx", "name", "prog_bar", "logger", "on_step", "on_epoch", "enable_graph")
    more = ("add_dataloader_idx", "metric_attribute")
    return {
        **{name: getattr(meta, name) for name in (*names, *more)},
        "reduce_fx": meta.reduce_fx.__name__,
        "sync_dist": bool(meta.sync.should),
        "rank_zero_only": bool(meta.sync.rank_zero_only),
    }


def _state(metric: Metric) -> dict[str, Any]:
    values = {name: getattr(metric, name) for name in metric._defaults}
    return {"updates": metric._update_count, "values": values}


def _restore(metric: Metric, state: dict[str, Any]) -> None:
    metric._update_count = state["updates"]
    metric._computed = None
    for name, value in state["values"].items():
        setattr(metric, name, _moved(value, metric.device))


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, list):
        return [_moved(one, device) for one in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


class PendingValidation:
    """Lets a resumed run begin with the end of the batch that its checkpoint was written after.

    The loop's first turn takes no batch; so Lightning does what follows one: the validation, if
    it is due, and where the batch was the epoch's last the end of the epoch.

    Args:
        trainer: The Trainer, before its loops are restored.
        state: What :func:`pending_state` returned.
        global_step: The optimizer steps done.
    """

    def __init__(self, trainer: L.Trainer, state: dict[str, Any], global_step: int) -> None:
        self._trainer, self._state = trainer, state
        loop: Any = trainer.fit_loop.epoch_loop
        self._loop = loop
        self._then: Callable[[], None] = lambda: None
        # else Lightning takes the run for over
        self._lifted = 0 <= self._loop.max_steps <= global_step
        self._loop.max_steps += self._lifted
        self._loop.advance = self._take_no_batch

    def begin(self, then: Callable[[], None]) -> None:
        """Set the restored loops, in ``on_train_start``.

        Args:
            then: Called when the run is about to go on: restores the random state.
        """
        self._then = then
        self._trainer.fit_loop._restarting = False  # schedulers would miss the epoch's end
        validation = self._loop.val_loop
        validation.restarting = validation._has_run = False

    def remove(self) -> None:
        """Give Lightning its loop back; a second call changes nothing."""
        if "advance" in vars(self._loop):
            del self._loop.advance
            self._loop.max_steps -= self._lifted

    def _take_no_batch(self, fetcher: Any) -> None:
        self.remove()
        trainer, module = self._trainer, self._trainer.lightning_module
        trainer.should_stop = self._state["should_stop"]
        metrics = {n: m for n, m in module.named_modules() if isinstance(m, Metric)}
        for name, state in self._state["metrics"].items():
            if name in metrics:
                _restore(metrics[name], state)
        results = self._loop._results
        for key, entry in self._state["logged"].items():
            arguments = entry["arguments"]
            metric = metrics.get(arguments["metric_attribute"])
            if entry["state"] is None and metric is None:
                continue
            value = torch.zeros((), device=module.device) if metric is None else metric
            reduce = trainer.strategy.reduce
            results.log(value=value, batch_size=1, sync_dist_fn=reduce, **arguments)
            if entry["state"] is not None:
                _restore(results[key], entry["state"])
            results[key]._forward_cache = _moved(entry["last"], module.device)
        values = {k: _moved(v, module.device) for k, v in self._state["values"].items()}
        connector = trainer._logger_connector
        connector._callback_metrics.update(values)
        connector._first_loop_iter = self._state["first"]
        self._then()
