"""Real mmcv 1.7.2, patched to import with current torch and to run without sleeps."""

import importlib
import logging
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils.data import DataLoader


def _import_mmcv_runner() -> ModuleType:
    """Import mmcv.runner, which imports torchvision without using it here."""
    # Dropped right after: libraries that find a torchvision expect a real one.
    sys.modules["torchvision"] = ModuleType("torchvision")
    try:
        return importlib.import_module("mmcv.runner")
    finally:
        del sys.modules["torchvision"]


mmcv_runner = _import_mmcv_runner()
HOOKS = mmcv_runner.HOOKS
Hook = mmcv_runner.Hook
LogBuffer = mmcv_runner.LogBuffer
LoggerHook = mmcv_runner.LoggerHook


class Idle(nn.Module):
    """A model with empty steps, for runs whose counters alone matter."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(groups))

    def train_step(self, data: Any, optimizer: Any = None) -> dict[str, Any]:
        """Return the outputs required by mmcv's runner."""
        return {"loss": self.weights[0].sum(), "log_vars": {}, "num_samples": 1}

    val_step = train_step


def make_runner(name: str, limit: int, model: nn.Module | None = None, **kwargs: Any) -> Any:
    """Create the named mmcv runner with `limit` epochs or iterations."""
    model = Idle() if model is None else model
    kwargs.setdefault("optimizer", torch.optim.SGD(model.parameters(), lr=0.1))
    kwargs.setdefault("logger", silent_logger())
    kwargs["max_epochs" if name == "EpochBasedRunner" else "max_iters"] = limit
    return getattr(mmcv_runner, name)(model, **kwargs)


def make_hook(config: dict[str, Any]) -> Any:
    """Build a hook from a copy of its config, because mmcv empties the given dict."""
    return HOOKS.build(dict(config))


def make_loaders(lengths: Sequence[int]) -> list[DataLoader]:
    """Return a data loader for each length."""
    return [DataLoader(range(length)) for length in lengths]


def run(runner: Any, loaders: list[DataLoader], workflow: Sequence[tuple[str, int]]) -> None:
    """Run without mmcv's sleeps of one and two seconds between epochs."""
    with mock.patch("time.sleep"):
        runner.run(loaders, list(workflow))


def silent_logger() -> logging.Logger:
    """Return a new logger without output."""
    logger = logging.Logger("golden")
    logger.addHandler(logging.NullHandler())
    return logger
