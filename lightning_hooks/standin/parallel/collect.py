"""Collect the results of all ranks, for old test functions."""

from __future__ import annotations

from typing import Any

from lightning_hooks.hooks.evaluation.inference import collected

__all__ = ["collect_results_cpu", "collect_results_gpu"]


def collect_results_cpu(
    result_part: list[Any], size: int, tmpdir: str | None = None
) -> list[Any] | None:
    """Return the results of all ranks in the order of the data set on rank 0, else None.

    Args:
        result_part: This rank's results.
        size: Number of samples of the data set.
        tmpdir: A directory shared by all ranks; None sends the results between ranks.

    Note:
        Departure from mmcv: without ``tmpdir`` nothing is written.
    """
    return collected(result_part, size, tmpdir)


def collect_results_gpu(result_part: list[Any], size: int) -> list[Any] | None:
    """Return the results of all ranks on rank 0; see :func:`collect_results_cpu`."""
    return collected(result_part, size, None)
