"""Population statistics of BatchNorm layers: a pass over all data, equal on all ranks.

Training leaves a moving average of the last batches in ``running_mean`` and ``running_var``.
:func:`update_bn_stats` replaces the moving average by the mean and variance of all samples in the
batches, with the present weights::

    mean = sum(n * mean_b) / sum(n)        var = sum(n * E_b[x^2]) / sum(n) - mean^2

over the batches ``b`` of all ranks, with ``n`` values per channel in a batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lightning_hooks.engine.lightning_api import model_state
from lightning_hooks.engine.lightning_api.data import generators_of
from lightning_hooks.engine.lightning_api.method_patch import MethodPatch, setting
from lightning_hooks.utils.arguments import shown
from lightning_hooks.utils.random_state import isolated
from lightning_hooks.utils.ranks import is_distributed

__all__ = ["bn_layers", "moments", "update_bn_stats"]


def update_bn_stats(
    model: nn.Module,
    batches: Iterable[Any],
    num_iters: int | None = None,
    *,
    forward: Callable[[Any, Any], Any] | None = None,
) -> int:
    """Replace the statistics of a model's BatchNorm layers; return the number of batches run.

    The layers are :func:`~lightning_hooks.hooks.batch_norm.population_stats.bn_layers`; a layer
    without a batch keeps its statistics. All ranks must call this function, each with its own
    batches. Momenta, train flags, other buffers and the random state are restored; after an error
    the statistics too.

    Args:
        model: The model; layers in train mode are updated.
        batches: A DataLoader or any iterable; iterated once.
        num_iters: The maximum number of batches; all by default.
        forward: A function of model and batch to run a batch; ``model(batch)`` by default.

    Raises:
        ValueError: if ``num_iters`` is no int of at least 1.

    Source: the estimator of ``update_bn_stats`` in fvcore.

    Note:
        Departures from fvcore and mmclassification: the sums are added up over the ranks, so all
        ranks get the same bits; dropout is off; a layer called several times for a batch counts
        every call; no layer is set to 0 for want of data.

    >>> model = nn.BatchNorm1d(1)
    >>> update_bn_stats(model, [torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([[7.0], [9.0]])])
    2
    >>> model.running_mean, model.running_var
    (tensor([5.]), tensor([8.]))
    """
    if num_iters is not None and (type(num_iters) is not int or num_iters < 1):
        raise ValueError(f"num_iters must be an int of at least 1, or None, got {shown(num_iters)}")
    layers = bn_layers(model)
    devices = dict.fromkeys(_running(layer)[0].device for layer in layers)
    sums = [_Sums([x for x in layers if _running(x)[0].device == d]) for d in devices]
    done = 0
    # Lightning validates in inference mode, whose tensors cannot train later
    with torch.inference_mode(False), torch.no_grad():
        with contextlib.ExitStack() as after:
            after.enter_context(model_state.keep_buffers(model))
            after.enter_context(isolated(*generators_of(batches)))
            after.enter_context(model_state.without_dropout(model))
            # compiled graphs would miss the temporary changes
            after.enter_context(torch.compiler.set_stance("force_eager"))
            for each in sums:
                each.attach(after)
            for batch in islice(batches, num_iters):
                _ = model(batch) if forward is None else forward(model, batch)
                for each in sums:
                    each.add()
                done += 1
        for each in sums:
            each.write()
    return done


def bn_layers(model: nn.Module) -> list[_BatchNorm]:
    """Return the BatchNorm layers in train mode with running statistics, without frozen layers.

    A layer is frozen if its weight and bias are frozen.
    """
    return [
        module
        for module in model.modules()
        if isinstance(module, _BatchNorm)
        and module.training
        and module.track_running_stats
        and module.running_mean is not None
        and not nn.parameter.is_lazy(module.running_mean)
        and not (module.affine and not any(p.requires_grad for p in module.parameters(False)))
    ]


def moments(
    n: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, sharers: torch.Tensor
) -> torch.Tensor:
    """Return the rows ``n``, ``n * mean`` and ``n * E[x^2]``; all 0 where ``n`` is 0.

    Args:
        n: Values per channel.
        mean: The mean of the values.
        var: The unbiased variance of the values, as in BatchNorm.
        sharers: The number of ranks with a common mean and variance (SyncBatchNorm); the rows of
            these ranks add up to the rows of all values. 1 for ordinary layers.

    >>> one = torch.ones(1)
    >>> moments(3 * one, 3 * one, 4 * one, one).tolist()  # of 1, 3 and 5
    [[3.0], [9.0], [35.0]]
    """
    mass = n * mean
    deviations = (n - 1 / sharers).clamp(min=0) * var  # n * var without Bessel's correction
    return torch.stack([n, mass, mass * mean + deviations])


class _Sums:
    """The sums of all layers on a device, with all channels in a row."""

    def __init__(self, layers: Sequence[_BatchNorm]) -> None:
        self.layers = layers
        self.means = [_running(layer)[0] for layer in layers]
        self.vars = [_running(layer)[1] for layer in layers]
        self.sizes = [mean.numel() for mean in self.means]
        self.device = self.means[0].device
        self.dtype = torch.float32 if self.device.type == "mps" else torch.float64
        self.sharers = self._spread([_ranks_together(layer) for layer in layers])
        self.total = torch.zeros(3, sum(self.sizes), dtype=self.dtype, device=self.device)
        self.calls = [0] * len(layers)  # values per channel of calls not added yet
        self._counts: tuple[list[int], torch.Tensor] = ([], self.sharers)

    def _spread(self, values: Sequence[int]) -> torch.Tensor:
        """Give each layer's value to all its channels."""
        row = torch.tensor(values, dtype=self.dtype)
        return row.repeat_interleave(torch.tensor(self.sizes)).to(self.device)

    def attach(self, after: contextlib.ExitStack) -> None:
        """Make every layer keep the last call's statistics, and record the size of the input."""
        for index, layer in enumerate(self.layers):
            # the layer multiplies old values by 0, which does not remove a NaN
            self.means[index].zero_()
            self.vars[index].fill_(1)
            after.enter_context(setting(layer, momentum=1.0))
            # a forward hook would cost as much as the layer
            forward = partial(self._forward, index, layer.forward)
            after.callback(MethodPatch(layer, "forward", instead=forward).remove)

    def _forward(self, index: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.calls[index]:  # called again for this batch: first add the earlier call
            self.add()
        values = args[0] if args else kwargs["input"]
        self.calls[index] = values.numel() // self.sizes[index]
        return forward(*args, **kwargs)

    def add(self) -> None:
        """Add the statistics of the new calls."""
        if self.calls != self._counts[0]:  # batches of equal size need no copy to the device
            self._counts = (self.calls, self._spread(self.calls))
        mean, var = torch.cat([*self.means, *self.vars]).to(self.dtype).chunk(2)
        self.total += moments(self._counts[1], mean, var, self.sharers)
        self.calls = [0] * len(self.layers)

    def write(self) -> None:
        """Add up the ranks, and write the result into the layers' buffers."""
        if is_distributed():
            torch.distributed.all_reduce(self.total)
            torch.distributed.broadcast(self.total, 0)  # the same bits for any order of additions
        n, mean, square = self.total[0], *(self.total[1:] / self.total[0])
        var = (square - mean.square()).clamp(min=0)
        for row, buffers in ((mean, self.means), (var, self.vars)):
            pieces = torch.split(row, self.sizes), torch.split(n > 0, self.sizes)
            for buffer, new, was_reached in zip(buffers, *pieces, strict=True):
                buffer.copy_(new.to(buffer.dtype).where(was_reached, buffer))


def _running(layer: _BatchNorm) -> tuple[torch.Tensor, torch.Tensor]:
    return layer.running_mean, layer.running_var  # type: ignore[return-value]  # bn_layers has no others


def _ranks_together(layer: _BatchNorm) -> int:
    """Return the number of ranks with common statistics of a batch."""
    if not (isinstance(layer, nn.SyncBatchNorm) and is_distributed()):
        return 1
    group: Any = layer.process_group
    return torch.distributed.get_world_size(group)
