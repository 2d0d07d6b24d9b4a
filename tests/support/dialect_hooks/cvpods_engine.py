"""A runner with hooks, as in cvpods, without Lightning: the reference of the dialect's tests.

Source: cvpods (Megvii-BaseDetection), ``cvpods/engine``: ``base_runner.py``, ``runner.py`` and
``hooks.py``, rewritten. :func:`support.as_library.load_as` imports the file as a module of the
library, next to one of the two generations of cvpods' events.
"""

from __future__ import annotations

import weakref

from cvpods.utils.dump.events import EventStorage


class HookBase:
    """The base class of hooks, as in cvpods."""

    def before_train(self):
        pass

    def after_train(self):
        pass

    def before_step(self):
        pass

    def after_step(self):
        pass


class SimpleRunner:
    """The training loop, whose hooks run backward and step, as in cvpods."""

    def __init__(self, model, loader, optimizer):
        self.model, self.data_loader, self.optimizer = model, loader, optimizer
        self._hooks = []

    def register_hooks(self, hooks):
        for hook in hooks:
            hook.trainer = weakref.proxy(self)
            self._hooks.append(hook)

    def _call(self, point):
        for hook in self._hooks:
            getattr(hook, point)()

    def train(self, max_iter):
        self.iter = self.start_iter = 0
        self.max_iter = max_iter
        batches = iter(self.data_loader)
        with EventStorage(0) as self.storage:
            self._call("before_train")
            for self.iter in range(max_iter):
                self.storage._iter = self.iter
                self.inner_iter = 0
                self._call("before_step")
                self.run_step(next(batches))
                self._call("after_step")
            self.iter += 1
            self.storage._iter = self.iter
            self._call("after_train")

    def run_step(self, batch):
        losses = self.model(batch)
        total = sum(losses.values())
        for name, value in losses.items():
            self.storage.put_scalar(name, value.item())
        self.storage.put_scalar("total_loss", total.item())
        self.step_outputs = {"loss_for_backward": total}
        self.inner_iter += 1


class OptimizationHook(HookBase):
    """Compares the step count for equality and divides the loss in place, as in cvpods."""

    def __init__(self, accumulate_grad_steps=1, grad_clipper=None):
        self.accumulate_grad_steps = accumulate_grad_steps
        self.grad_clipper = grad_clipper

    def before_step(self):
        self.trainer.optimizer.zero_grad()

    def after_step(self):
        losses = self.trainer.step_outputs["loss_for_backward"]
        losses /= self.accumulate_grad_steps
        losses.backward()
        if self.trainer.inner_iter == self.accumulate_grad_steps:
            if self.grad_clipper is not None:
                self.grad_clipper(self.trainer.model.parameters())
            self.trainer.optimizer.step()


class PeriodicWriter(HookBase):
    """Calls writers periodically, as in cvpods."""

    def __init__(self, writers, period=20):
        self._writers, self._period = writers, period

    def after_step(self):
        done = self.trainer.iter + 1
        if done % self._period == 0 or done in (1, self.trainer.max_iter):
            for writer in self._writers:
                writer.write()

    def after_train(self):
        for writer in self._writers:
            writer.close()
