"""Hooks in the style of a cvpods user; only the import names another package."""

from __future__ import annotations

import torch

from lightning_hooks.dialects.cvpods import HookBase, OptimizationHook, get_event_storage


class Trace(HookBase):
    """Records calls."""

    def __init__(self):
        self.calls = []

    def before_train(self):
        self.calls.append(("before_train", self.trainer.iter))

    def after_train(self):
        self.calls.append(("after_train", self.trainer.iter))

    def before_step(self):
        self.calls.append(("before_step", self.trainer.iter))

    def after_step(self):
        self.calls.append(("after_step", self.trainer.iter))


class Stepper(HookBase):
    """A user's own way of stepping: backward, a norm, two steps' gradients at once."""

    def __init__(self, every=2):
        self.every = every

    def before_step(self):
        if self.trainer.inner_iter == 0:
            self.trainer.optimizer.zero_grad()

    def after_step(self):
        losses = self.trainer.step_outputs["loss_for_backward"] / self.every
        losses.backward()
        if self.trainer.inner_iter == self.every:
            norm = torch.nn.utils.clip_grad_norm_(self.trainer.model.parameters(), 0.5)
            get_event_storage().put_scalar("norm", norm)
            self.trainer.optimizer.step()
            self.trainer.inner_iter = 0


class Scaled(OptimizationHook):
    """The optimization hook of cvpods with a scaled loss."""

    def after_step(self):
        self.trainer.step_outputs["loss_for_backward"] *= 1.0
        super().after_step()
