"""Run a model on a whole loader, in one process or on all ranks, and compute metrics."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.fabric.utilities.data import sized_len
from torch import distributed
from torchmetrics import Metric, MetricCollection

from lightning_hooks.engine.lightning_api import data
from lightning_hooks.engine.lightning_api.method_patch import setting
from lightning_hooks.engine.runner.model_wrapper import unwrap
from lightning_hooks.storage import files
from lightning_hooks.utils import ranks
from lightning_hooks.utils.plain_types import plain
from lightning_hooks.utils.progress_bar import with_bar

__all__ = [
    "collected",
    "measure",
    "multi_gpu_test",
    "plain_values",
    "predict",
    "predictions",
    "results_of",
    "single_gpu_test",
]


def predict(model: torch.nn.Module, batch: Any) -> Any:
    """Run the model on a batch, prepared as the Trainer's own batches, without gradients.

    A dict is passed as mmcv does, ``model(return_loss=False, **batch)``. The input is the first
    entry of a list or tuple, else the batch itself.

    Raises:
        TypeError: for a dict and a model that does not take ``return_loss``.
    """
    trainer = _trainer_of(model)
    if trainer is not None:
        batch = data.prepare_batch(trainer, batch)
    with torch.no_grad():
        if isinstance(batch, Mapping):
            _check_takes_return_loss(unwrap(model))
            return model(return_loss=False, **batch)
        return model(batch[0] if isinstance(batch, (list, tuple)) else batch)


def _trainer_of(model: torch.nn.Module) -> L.Trainer | None:
    host = getattr(model, "host", None)
    return None if host is None else host.trainer


def _batches(model: torch.nn.Module, data_loader: Any) -> Iterable[Any]:
    """Return the loader's batches, with a progress bar if the Trainer has one."""
    trainer = _trainer_of(model)
    if trainer is None:
        return data_loader  # type: ignore[no-any-return]
    return with_bar(trainer, data_loader, "Evaluating", sized_len(data_loader))


def _check_takes_return_loss(model: torch.nn.Module) -> None:
    parameters = inspect.signature(model.forward).parameters
    if "return_loss" in parameters:
        return
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        raise TypeError(
            f"the batches are dicts, but {type(model).__name__}.forward takes no return_loss; "
            "give EvalHook(test_fn=...) a function of the model and the loader"
        )


def predictions(model: torch.nn.Module, data_loader: Any) -> Iterator[tuple[Any, Any]]:
    """Yield prediction and target for each ``(input, target)`` batch.

    Raises:
        TypeError: for other batches.
    """
    model.eval()
    for batch in _batches(model, data_loader):
        if not (isinstance(batch, (list, tuple)) and len(batch) >= 2):
            raise TypeError(
                f"a metric needs batches of (input, target), got {type(batch).__name__}; give "
                "EvalHook(test_fn=...) a function that returns (prediction, target) pairs"
            )
        prediction, target = predict(model, batch), batch[1]
        device = prediction.device if isinstance(prediction, torch.Tensor) else "cpu"
        yield prediction, move_data_to_device(target, device)


def single_gpu_test(model: torch.nn.Module, data_loader: Any) -> list[Any]:
    """Return the model's results, one for each sample, and leave the model in eval mode.

    Args:
        model: A model of mmcv's, or a model with a row of output for each sample.
        data_loader: The loader; see :func:`predict` for the batches.

    Source: mmcv's function of that name.
    """
    return [result for part in results_of(model, data_loader) for result in part]


def results_of(model: torch.nn.Module, data_loader: Any) -> Iterator[Any]:
    """Yield the model's results for each batch, and leave the model in eval mode."""
    model.eval()
    for batch in _batches(model, data_loader):
        results = predict(model, batch)
        yield results.cpu() if isinstance(results, torch.Tensor) else results


def multi_gpu_test(
    model: torch.nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> list[Any] | None:
    """Return the results of all ranks in the order of the data set on rank 0, else None.

    Args:
        model: As for :func:`single_gpu_test`.
        data_loader: The loader of this rank, with a sampler that takes every n-th sample.
        tmpdir: A directory shared by all ranks, to collect results through files.
        gpu_collect: Whether to send results from rank to rank, as without a directory.

    Source: mmcv's function of that name.

    Note:
        Departures from mmcv: ranks may have different numbers of results (mmcv drops the rest);
        a loader iterated as a whole by every rank is recognised; only own files are deleted in
        ``tmpdir``; nothing sleeps.
    """
    results = single_gpu_test(model, data_loader)
    return collected(results, sized_len(data_loader.dataset), None if gpu_collect else tmpdir)


def collected(part: list[Any], size: int | None, tmpdir: str | None) -> list[Any] | None:
    """Return the results of all ranks in the order of the data set on rank 0, else None.

    Args:
        part: The results of this rank.
        size: The length of the data set, None if unknown.
        tmpdir: A directory shared by all ranks; None to send results from rank to rank.
    """
    if not ranks.is_distributed():
        return part[:size]
    if tmpdir is None:
        parts = ranks.collected(part, distributed.get_world_size())
    else:
        parts = _through_files(part, tmpdir)
    return _in_order(parts, size) if parts else None


def _through_files(part: list[Any], tmpdir: str) -> list[list[Any]]:
    rank, world_size = distributed.get_rank(), distributed.get_world_size()
    paths = [os.path.join(tmpdir, f"part_{i}.pkl") for i in range(world_size)]
    os.makedirs(tmpdir, exist_ok=True)
    with open(paths[rank], "wb") as file:
        pickle.dump(part, file)
    distributed.barrier()
    parts: list[list[Any]] = []
    # the next results must not be written before all are read
    ranks.from_rank_0(lambda: parts.extend(_read(paths, tmpdir)), world_size)
    return parts


def _read(paths: list[str], tmpdir: str) -> list[list[Any]]:
    """Return the results in files, and delete the files."""
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        raise FileNotFoundError(
            f"rank 0 finds no {missing[0]}, which another rank has written: tmpdir={tmpdir!r} is "
            "no directory that all ranks share. Give one that is, or gpu_collect=True to send the "
            "results from rank to rank"
        )
    parts = [pickle.loads(Path(path).read_bytes()) for path in paths]
    files.delete(*paths)
    with contextlib.suppress(OSError):  # the directory holds other files
        os.rmdir(tmpdir)
    return parts


def _in_order(parts: Sequence[list[Any]], size: int | None) -> list[Any]:
    """Return the results in the data set's order, without the sampler's padding.

    >>> _in_order([[0, 2, 4], [1, 3, 0]], 5), _in_order([[0, 1], [0, 1]], 2)
    ([0, 1, 2, 3, 4], [0, 1])
    """
    if size is not None and all(len(part) >= size for part in parts):
        return parts[0][:size]  # each rank has seen all samples
    none = object()
    rows = itertools.zip_longest(*parts, fillvalue=none)
    return [result for row in rows for result in row if result is not none][:size]


def measure(
    metric: Metric | MetricCollection,
    pairs: Iterable[tuple[Any, Any]],
    device: torch.device,
    *,
    over_ranks: bool,
) -> dict[str, Any]:
    """Return a metric's values over ``(prediction, target)`` batches, by name.

    The value of a single metric has the name of the metric's class.

    Args:
        metric: The metric, reset before and after.
        pairs: The batches.
        device: The device of the computation.
        over_ranks: Whether to compute over the batches of all ranks.
    """
    metric.to(device)
    metric.reset()
    for prediction, target in pairs:
        metric.update(prediction, target)
    parts = [part for part in metric.modules() if isinstance(part, Metric)]
    with contextlib.ExitStack() as after:
        after.callback(metric.reset)
        for part in parts if not over_ranks else ():
            after.enter_context(setting(part, distributed_available_fn=lambda: False))
        values = metric.compute()
    named = values if isinstance(values, Mapping) else {type(metric).__name__: values}
    return plain_values(named)


def plain_values(scores: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores with tensors and numpy values as numbers and lists.

    >>> plain_values({"acc": torch.tensor(0.5), "per_class": torch.tensor([1, 0]), "best": "cat"})
    {'acc': 0.5, 'per_class': [1, 0], 'best': 'cat'}
    """
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else plain(value)
        for name, value in scores.items()
    }
