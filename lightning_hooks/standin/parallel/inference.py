"""mmcv's functions to test a model on a loader, with a progress bar, and to collect results."""

from __future__ import annotations

import sys
from typing import Any

import torch
from lightning.fabric.utilities.data import sized_len

from lightning_hooks.hooks.saving import inference
from lightning_hooks.standin.installation import installed
from lightning_hooks.standin.placeholders import hint_for, placeholder_name
from lightning_hooks.standin.utils.dist import get_dist_info
from lightning_hooks.standin.utils.notice import notice

__all__ = [
    "collect_results_cpu",
    "collect_results_gpu",
    "multi_gpu_test",
    "single_gpu_test",
    "with_bar",
]


def single_gpu_test(model: torch.nn.Module, data_loader: Any) -> list[Any]:
    """Return the model's result for each sample, and show the progress.

    Args:
        model: The model.
        data_loader: The loader of dicts for ``model(return_loss=False, **batch)``.
    """
    return _tested(model, data_loader, ranks=1)


def multi_gpu_test(
    model: torch.nn.Module, data_loader: Any, tmpdir: str | None = None, gpu_collect: bool = False
) -> list[Any] | None:
    """Return the results of all ranks on rank 0, None on other ranks; rank 0 shows the progress.

    Args:
        model: The model.
        data_loader: The loader of the rank.
        tmpdir: A directory shared by all ranks, to exchange results through files.
        gpu_collect: Whether results are sent from rank to rank, as without a directory.
    """
    rank, ranks = get_dist_info()
    if rank == 0:
        results = _tested(model, data_loader, ranks)
    else:
        results = inference.single_gpu_test(model, data_loader)
    size = sized_len(data_loader.dataset)
    return inference.collected(results, size, None if gpu_collect else tmpdir)


def with_bar(test_fn: Any) -> Any:
    """Return a test function with a progress bar in place of the native test functions."""
    if test_fn is inference.single_gpu_test:
        return single_gpu_test
    return multi_gpu_test if test_fn is inference.multi_gpu_test else test_fn


def _tested(model: torch.nn.Module, data_loader: Any, ranks: int) -> list[Any]:
    """Test with a bar for the samples of all ranks, assuming the same pace on all ranks."""
    bar = _progress_bar(sized_len(data_loader.dataset) or 0)
    results: list[Any] = []
    for part in inference.results_of(model, data_loader):
        results.extend(part)
        if bar is None:
            continue
        done = len(part) * ranks
        for _ in range(min(done, bar.task_num - bar.completed) if bar.task_num else done):
            bar.update()
    return results


def _progress_bar(samples: int) -> Any:
    """Return mmcv's progress bar; None without the wheel of the bar, with a line of log."""
    with installed():
        from mmcv.utils import ProgressBar

    if not placeholder_name(ProgressBar):
        return ProgressBar(samples, file=sys.stdout)
    notice(f"tests show no progress: {hint_for('mmcv.utils.progressbar', 'ProgressBar')}")
    return None


def collect_results_cpu(
    result_part: list[Any], size: int, tmpdir: str | None = None
) -> list[Any] | None:
    """Return the results of all ranks in the order of the data set on rank 0, else None.

    Args:
        result_part: The results of the rank.
        size: Number of samples of the data set.
        tmpdir: A directory shared by all ranks; None sends the results between ranks.

    Note:
        Departure from mmcv: without ``tmpdir`` nothing is written.
    """
    return inference.collected(result_part, size, tmpdir)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    """Return the results of all ranks on rank 0; see :func:`collect_results_cpu`."""
    return inference.collected(result_part, size, None)
