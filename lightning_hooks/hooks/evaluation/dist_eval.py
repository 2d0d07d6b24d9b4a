"""Evaluate on all ranks, each on a part of the samples: ``DistEvalHook``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import distributed
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import DataLoader

from lightning_hooks.engine.lightning_api.logged_values import publish
from lightning_hooks.hooks.evaluation.eval import EvalHook
from lightning_hooks.hooks.evaluation.inference import (
    measure,
    multi_gpu_test,
    plain_values,
    predictions,
)
from lightning_hooks.storage import files
from lightning_hooks.utils.arguments import check_bool, check_path

__all__ = ["DistEvalHook", "broadcast_bn_buffers"]


def broadcast_bn_buffers(model: torch.nn.Module) -> None:
    """Broadcast the BatchNorm statistics of rank 0 to all ranks."""
    for module in model.modules():
        if isinstance(module, _BatchNorm) and module.track_running_stats:
            for buffer in (module.running_mean, module.running_var):
                if buffer is not None:
                    distributed.broadcast(buffer, 0)


class DistEvalHook(EvalHook):
    """Evaluate on all ranks; rank 0 collects, evaluates and reports the results.

    The loader's sampler splits the samples among the ranks (``DistributedSampler`` without
    shuffling). With a single rank, the hook behaves as ``EvalHook``, which describes the other
    arguments.

    Args:
        test_fn: A function of the model and the loader, with keywords ``tmpdir`` and
            ``gpu_collect``; by default ``multi_gpu_test``.
        broadcast_bn_buffer: Whether to broadcast rank 0's BatchNorm statistics first.
        tmpdir: A directory shared by all ranks, to collect results through files;
            ``.eval_hook`` in the work directory by default.
        gpu_collect: Whether to send results from rank to rank instead.
        **kwargs: ``dynamic_intervals``, ``keep_best``, ``background``, ``on_saved`` and the
            arguments of ``evaluate``. A torchmetrics metric is computed over all ranks' batches;
            samples repeated by the sampler as padding count twice.

    Source: mmcv's ``DistEvalHook``.

    Note:
        Departures from mmcv: the departures of ``EvalHook`` and ``multi_gpu_test``; the hook works
        without a process group too.
    """

    def __init__(
        self,
        dataloader: DataLoader[Any] | None = None,
        start: int | None = None,
        interval: int = 1,
        by_epoch: bool = True,
        save_best: str | list[str] | None = None,
        rule: str | list[str] | None = None,
        test_fn: Callable[..., Any] | None = None,
        greater_keys: str | list[str] | None = None,
        less_keys: str | list[str] | None = None,
        broadcast_bn_buffer: bool = True,
        tmpdir: str | None = None,
        gpu_collect: bool = False,
        out_dir: str | None = None,
        file_client_args: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            *(dataloader, start, interval, by_epoch, save_best, rule, test_fn),
            *(greater_keys, less_keys, out_dir, file_client_args),
            **kwargs,
        )
        check_bool(broadcast_bn_buffer=broadcast_bn_buffer, gpu_collect=gpu_collect)
        if test_fn is None:
            self.test_fn = multi_gpu_test
        self.broadcast_bn_buffer = broadcast_bn_buffer
        self.tmpdir = check_path("tmpdir", tmpdir)
        self.gpu_collect = gpu_collect

    def _do_evaluate(self, runner: Any) -> None:
        """Run the model on all ranks; evaluate on rank 0."""
        if self.broadcast_bn_buffer and runner.world_size > 1 and self.dataloader is not None:
            broadcast_bn_buffers(runner.model)
        self.latest_results = self._test(runner)
        if runner.rank == 0:
            self._report_results(runner)
        if runner.world_size > 1:  # for callbacks that decide by a score on every rank
            scores = runner.trainer.strategy.broadcast(plain_values(runner.log_buffer.output))
            scores.pop("eval_iter_num", None)
            publish(runner.trainer, scores, scores)

    def _test(self, runner: Any) -> Any:
        if self.dataloader is None:
            return super()._test(runner)
        gpu_collect = self.gpu_collect or not runner.writes_files
        tmpdir = self.tmpdir
        if tmpdir is None and files.is_local(runner.work_dir):
            tmpdir = files.join(runner.work_dir, ".eval_hook")
        test_fn: Callable[..., Any] = self.test_fn
        if self.metric is not None and test_fn is multi_gpu_test:
            results: Any = predictions(runner.model, self.dataloader)
        else:
            results = test_fn(runner.model, self.dataloader, tmpdir=tmpdir, gpu_collect=gpu_collect)
        if self.metric is None:
            return results
        return measure(self.metric, results, runner.module.device, over_ranks=True)
