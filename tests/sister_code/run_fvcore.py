"""Numbers of fvcore, used in detectron2's hooks, and ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from support.dialect_hooks.portable import scripted_values


def _net() -> nn.Module:
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten())
    return nn.Sequential(first, nn.Linear(48, 4), nn.BatchNorm1d(4, momentum=0.3))


def _images() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(n, 2, 6, 6, generator=generator) for n in (8, 8, 3, 5)]


def _statistics(update: Callable[..., Any]) -> dict[str, Any]:
    net = _net()
    update(net, _images(), 4)
    return {
        name: [layer.running_mean.tolist(), layer.running_var.tolist(), layer.momentum]
        for name, layer in net.named_modules()
        if isinstance(layer, nn.modules.batchnorm._BatchNorm)
    }


def _history(buffer_class: Any) -> dict[str, Any]:
    buffer = buffer_class(max_length=40)
    for step, value in enumerate(scripted_values()):
        buffer.update(value, 3 * step)
    return {
        "values": buffer.values(),
        "median": [buffer.median(n) for n in (1, 4, 7, 100)],
        "avg": [buffer.avg(n) for n in (1, 4, 13, 100)],
        "global_avg": buffer.global_avg(),
        "latest": buffer.latest(),
    }


def _saving(checkpointer_class: Any) -> list[Any]:
    """Return the saves of a periodic checkpointer in a custom loop."""
    saved: list[Any] = []

    class Saver:
        path_manager: Any = None

        def save(self, name: str, **kwargs: Any) -> None:
            saved.append([name, kwargs])

    checkpointer = checkpointer_class(Saver(), 3, 8)
    for iteration in range(8):
        checkpointer.step(iteration, loss=iteration / 2)
    checkpointer.save("own", best=1)
    return saved


def _theirs(what: str) -> Any:
    from fvcore.common.checkpoint import PeriodicCheckpointer
    from fvcore.common.history_buffer import HistoryBuffer
    from fvcore.nn.precise_bn import update_bn_stats

    return {"bn": update_bn_stats, "history": HistoryBuffer, "files": PeriodicCheckpointer}[what]


def _ours(what: str) -> Any:
    from lightning_hooks import update_bn_stats
    from lightning_hooks.dialects import detectron2 as d2

    return {"bn": update_bn_stats, "history": d2.HistoryBuffer, "files": d2.PeriodicCheckpointer}[
        what
    ]


CASES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "fvcore.update_bn_stats": (_statistics, "bn"),
    "fvcore.HistoryBuffer": (_history, "history"),
    "fvcore.PeriodicCheckpointer": (_saving, "files"),
}


def under_library(name: str, case: tuple[Callable[[Any], Any], str], folder: str) -> Any:
    """Return the result of fvcore."""
    function, what = case
    return function(_theirs(what))


def with_ours(name: str, case: tuple[Callable[[Any], Any], str], folder: str) -> Any:
    """Return the result of this package."""
    function, what = case
    return function(_ours(what))
