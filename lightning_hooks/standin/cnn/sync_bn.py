"""Replace synchronized batch norms by batch norms for a single process."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

__all__ = ["revert_sync_batchnorm"]


class _BatchNormXd(nn.modules.batchnorm._BatchNorm):
    """A BatchNorm of inputs of any number of dimensions."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Accept any number of dimensions."""


def revert_sync_batchnorm(module: nn.Module) -> nn.Module:
    """Return the model with BatchNorms of the same values in place of SyncBatchNorms.

    Args:
        module: The model, with SyncBatchNorms of torch or of ``mmcv.ops`` (``MMSyncBN``).
    """
    result: Any = module
    operators = sys.modules.get("mmcv.ops.sync_bn")  # without this module, no layer is of mmcv.ops
    kinds = (nn.SyncBatchNorm, *([operators.SyncBatchNorm] if operators else []))
    if isinstance(module, kinds):
        args = (module.num_features, module.eps, module.momentum, module.affine)
        result = _BatchNormXd(*args, module.track_running_stats).train(module.training)
        result._parameters.update(module._parameters)
        result._buffers.update(module._buffers)
        if hasattr(module, "qconfig"):  # of quantized models
            result.qconfig = module.qconfig
    for name, child in module.named_children():
        result.add_module(name, revert_sync_batchnorm(child))
    return result  # type: ignore[no-any-return]
