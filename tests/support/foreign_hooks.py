"""Hooks of old projects: no base class, and mmcv's protocol."""

from __future__ import annotations

from typing import Any

from torch.nn.utils import clip_grad_norm_


class OptimizerHook:
    """mmcv's protocol, in the words of an old project."""

    def __init__(self, grad_clip: Any = None) -> None:
        self.grad_clip = grad_clip

    def after_train_iter(self, runner: Any) -> None:
        runner.optimizer.zero_grad()
        runner.outputs["loss"].backward()
        if self.grad_clip:
            clip_grad_norm_(runner.model.parameters(), **self.grad_clip)
        runner.optimizer.step()


class OldEMA:
    """An EMA in mmcv's style: buffers on the model, swapped at the epoch's ends."""

    def before_run(self, runner: Any) -> None:
        model = runner.model.module
        self.pairs = {}
        for name, value in list(model.named_parameters()):
            key = f"ema_{name.replace('.', '_')}"
            model.register_buffer(key, value.data.clone())
            self.pairs[key] = value

    def after_train_iter(self, runner: Any) -> None:
        for key, value in self.pairs.items():
            getattr(runner.model.module, key).mul_(0.9).add_(value.data, alpha=0.1)

    def swap(self, runner: Any) -> None:
        for key, value in self.pairs.items():
            kept = value.data.clone()
            value.data.copy_(getattr(runner.model.module, key))
            getattr(runner.model.module, key).copy_(kept)

    after_train_epoch = before_train_epoch = swap


def old(**points: Any) -> Any:
    """Create an old project's hook with the given methods, without base class or constructor."""
    return type("OldHook", (), {name: _method(body) for name, body in points.items()})()


def _method(body: Any) -> Any:
    return lambda self, runner: body(runner)
