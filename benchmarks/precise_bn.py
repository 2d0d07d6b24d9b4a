"""The cost of precise BatchNorm statistics beyond their forward passes.

The net has fifty tiny BatchNorm layers, to make the bookkeeping visible beside the forward pass. A
figure is the processor time of a batch. The peers are the functions of mmclassification (without
the progress bar), fvcore and torch. The statistics are compared as well: with batches of equal size
ours equal fvcore's.

    python -m benchmarks precise_bn
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import io
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from benchmarks.measure import Bench, has, in_turns, make_loader
from lightning_hooks import update_bn_stats

LAYERS, CHANNELS, BATCH, BATCHES = 50, 8, 16, 100
FORWARD, OURS = "forward alone", "update_bn_stats"
MMCLS, FVCORE, TORCH = "mmcls PreciseBNHook's", "fvcore's", "torch's update_bn"


class Model(nn.Sequential):
    """Layers of little work; mmcls calls ``train_step``."""

    def train_step(self, batch: Any) -> Any:
        return self(batch)


def loaded_by_path(package: str, file: str) -> ModuleType:
    """Import one file of a package without the package's ``__init__`` and its dependencies."""
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    spec = importlib.util.spec_from_file_location(
        f"{package}_{Path(file).stem}", Path(found.origin).parent / file
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ways(loader: Any) -> dict[str, Callable[[nn.Module], Any]]:
    """Return a function of the model for each contender."""

    @torch.no_grad()
    def forward(model: nn.Module) -> None:
        for batch in loader:
            model(batch)

    found: dict[str, Callable[[nn.Module], Any]] = {
        FORWARD: forward,
        OURS: lambda model: update_bn_stats(model, loader),
        TORCH: lambda model: torch.optim.swa_utils.update_bn(loader, model),
    }
    if has("mmcv", "mmcls"):
        import oracle  # noqa: F401  # tests/golden: it makes mmcv import without torchvision

        mmcls = loaded_by_path("mmcls", "core/hook/precise_bn_hook.py")

        mmcls.mmcv.ProgressBar = functools.partial(mmcls.mmcv.ProgressBar, file=io.StringIO())
        found[MMCLS] = lambda model: mmcls.update_bn_stats(model, loader, BATCH * BATCHES)
    if has("fvcore"):
        fvcore = loaded_by_path("fvcore", "nn/precise_bn.py")
        found[FVCORE] = lambda model: fvcore.update_bn_stats(model, loader, BATCHES)
    return found


def statistics_of(model: nn.Module) -> torch.Tensor:
    """Return all means and variances of a model in a row."""
    norms: list[Any] = [part for part in model if isinstance(part, nn.BatchNorm1d)]  # type: ignore[attr-defined]
    return torch.cat([torch.cat([x.running_mean, x.running_var]) for x in norms])


def run(rounds: int = 15) -> Bench:
    """Measure in turns."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    parts = [nn.BatchNorm1d(CHANNELS) for _ in range(LAYERS)]
    model = Model(*parts)
    data = torch.randn(BATCH * BATCHES, CHANNELS)
    loader = make_loader(data, batch_size=BATCH)
    batches = list(loader)

    class Kept:  # nobody pays for loading
        batch_size = BATCH

        def __iter__(self) -> Any:
            return iter(batches)

        def __len__(self) -> int:
            return len(batches)

    contenders = ways(Kept())
    results = {}
    cases = {}
    for name, way in contenders.items():
        fresh = copy.deepcopy(model)
        way(fresh)
        results[name] = statistics_of(fresh)

        def timed(way: Callable[[nn.Module], Any] = way, mine: nn.Module = fresh) -> float:
            start = time.thread_time()
            way(mine)
            return (time.thread_time() - start) / BATCHES * 1e3

        cases[name] = timed
    if FVCORE in results:
        error = (results[OURS] - results[FVCORE]).abs().max().item()
        assert error < 1e-5, f"the statistics are {error} off fvcore's"
    bench = Bench("Precise BN, 50 tiny layers", "ms per batch", in_turns(cases, rounds, 2))
    extra = bench.over(OURS, FORWARD)
    for peer, goal in ((MMCLS, 0.25), (FVCORE, 0.5)):
        if peer in cases:
            what = "precise BN, over the forward pass"
            bench.compare(what, extra, peer, bench.over(peer, FORWARD), goal)
    return bench
