"""Hooks in the style of a detectron2 user; only the import names another package."""

from __future__ import annotations

import logging

import torch

from lightning_hooks.dialects.detectron2 import EventWriter, HookBase, get_event_storage


class Trace(HookBase):
    """Records calls; a shared ``log`` shows the order of several hooks."""

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
    """Stores the lowest loss, even across a resume."""

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
    """Records in ``after_train`` whether the training is complete."""

    def after_train(self):
        whole = self.trainer.iter >= self.trainer.max_iter
        logging.getLogger("words").info("complete" if whole else "failed at %d", self.trainer.iter)
        self.words = "complete" if whole else f"failed at {self.trainer.iter}"


class ListWriter(EventWriter):
    """A writer that stores records in a list."""

    def __init__(self):
        self.rows = []
        self.closed = 0

    def write(self):
        storage = get_event_storage()
        self.rows.append((storage.iter, storage.latest_with_smoothing_hint(20)))

    def close(self):
        self.closed += 1


class LossOnOtherData(HookBase):
    """Runs the model on a validation loader, as hooks for a validation loss do."""

    def __init__(self, eval_period, model, data_loader):
        self._period = eval_period
        self._model = model
        self._data_loader = data_loader

    def _loss(self, inputs):
        losses = self._model(inputs)
        return sum(value.detach().cpu().item() for value in losses.values())

    def after_step(self):
        next_iter = self.trainer.iter + 1
        is_final = next_iter == self.trainer.max_iter
        if is_final or (self._period > 0 and next_iter % self._period == 0):
            losses = [self._loss(inputs) for inputs in self._data_loader]
            self.trainer.storage.put_scalar("validation_loss", sum(losses) / len(losses))


class LossOfTheTrainersModel(HookBase):
    """Runs ``trainer.model`` on a batch of an endless loader, without gradients."""

    def __init__(self, batches):
        self._batches = batches

    def after_step(self):
        with torch.no_grad():
            losses = self.trainer.model(next(self._batches))
            total = sum(losses.values())
            assert torch.isfinite(total).all(), losses
            reduced = {"val_" + name: value.item() for name, value in losses.items()}
        self.trainer.storage.put_scalars(total_val_loss=total, **reduced)


class SavesTheLowest(HookBase):
    """Reads a history and saves a checkpoint through the trainer's checkpointer."""

    def __init__(self, name):
        self.name = name
        self.lowest = float("inf")

    def after_step(self):
        if self.trainer.iter + 1 == self.trainer.start_iter + 1:
            self.trainer.checkpointer.add_checkpointable("hook", self)
        value = self.trainer.storage.history(self.name).latest()
        if value < self.lowest:
            self.lowest = value
            extra = {"iteration": self.trainer.iter, self.trainer.cfg["extra"]: value}
            self.trainer.checkpointer.save("lowest", **extra)

    def state_dict(self):
        return {"lowest": self.lowest}


class Board(EventWriter):
    """Writes new scalars, then images and histograms, as the writers for web services."""

    def __init__(self, window_size=20):
        self._window_size = window_size
        self._last_write = -1
        self.sent = []

    def write(self):
        storage = get_event_storage()
        newest = self._last_write
        for name, (value, when) in storage.latest_with_smoothing_hint(self._window_size).items():
            if when > self._last_write:
                self.sent.append((name, when, value))
                newest = max(newest, when)
        self._last_write = newest
        if len(storage._vis_data) >= 1:
            for name, image, when in storage._vis_data:
                self.sent.append((name, when, tuple(image.shape)))
            storage.clear_images()
        if len(storage._histograms) >= 1:
            for parameters in storage._histograms:
                self.sent.append((parameters["tag"], parameters["global_step"], parameters["num"]))
            storage.clear_histograms()
