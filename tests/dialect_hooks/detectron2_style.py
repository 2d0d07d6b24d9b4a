"""Hooks as a detectron2 user writes them; only the import line names another package."""

from __future__ import annotations

import logging

from lightning_hooks.dialects.detectron2 import EventWriter, HookBase, get_event_storage


class Trace(HookBase):
    """What is called when; ``log`` may be shared, so that the order over hooks shows."""

    def __init__(self, log=None, name=""):
        self.calls = [] if log is None else log
        self.name = name

    def _note(self, point):
        self.calls.append((f"{self.name}{point}", self.trainer.iter))

    def before_train(self):
        self._note("before_train")

    def after_train(self):
        self._note("after_train")

    def before_step(self):
        assert self.trainer.storage.iter == self.trainer.iter
        self._note("before_step")

    def after_backward(self):
        self._note("after_backward")

    def after_step(self):
        self._note("after_step")


class GradNorm(HookBase):
    """Stores the gradients' norm between backward and step."""

    def after_backward(self):
        norms = [p.grad.norm() for p in self.trainer.model.parameters() if p.grad is not None]
        get_event_storage().put_scalar("grad_norm", sum(norm.item() for norm in norms))


class BestLoss(HookBase):
    """Remembers the lowest loss, in a run that goes on too."""

    def __init__(self):
        self.best = float("inf")

    def after_step(self):
        value, when = self.trainer.storage.latest()["total_loss"]
        assert when == self.trainer.iter
        self.best = min(self.best, value)

    def state_dict(self):
        return {"best": self.best}

    def load_state_dict(self, state):
        self.best = state["best"]


class LastWords(HookBase):
    """Tells in after_train whether the training came to its end."""

    def after_train(self):
        whole = self.trainer.iter >= self.trainer.max_iter
        logging.getLogger("words").info("complete" if whole else "failed at %d", self.trainer.iter)
        self.words = "complete" if whole else f"failed at {self.trainer.iter}"


class ListWriter(EventWriter):
    """Keeps what it is to write."""

    def __init__(self):
        self.rows = []
        self.closed = 0

    def write(self):
        storage = get_event_storage()
        self.rows.append((storage.iter, storage.latest_with_smoothing_hint(20)))

    def close(self):
        self.closed += 1
