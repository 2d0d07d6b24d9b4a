"""Hooks without a base class, used with the library's base in recordings and with ours in tests."""

from __future__ import annotations


def scripted_values():
    """Numbers with no pattern, the same everywhere."""
    return [((37 * i) % 101) / 7 for i in range(100)]


class StepTrace:
    """The points of detectron2."""

    def __init__(self):
        self.calls = []

    def note(self, point):
        self.calls.append([point, self.trainer.iter, self.trainer.storage.iter])

    def before_train(self):
        self.note("before_train")

    def after_train(self):
        self.note("after_train")

    def before_step(self):
        self.note("before_step")

    def after_step(self):
        self.note("after_step")


class Trace:
    """The points of mmengine."""

    def __init__(self):
        self.calls = []

    def note(self, point, runner, *more):
        self.calls.append([point, runner.epoch, runner.iter, *more])

    def before_run(self, runner):
        self.note("before_run", runner)

    def after_run(self, runner):
        self.note("after_run", runner)

    def before_train(self, runner):
        self.note("before_train", runner)

    def after_train(self, runner):
        self.note("after_train", runner)

    def before_val(self, runner):
        self.note("before_val", runner)

    def after_val(self, runner):
        self.note("after_val", runner)

    def before_train_epoch(self, runner):
        self.note("before_train_epoch", runner)

    def after_train_epoch(self, runner):
        self.note("after_train_epoch", runner)

    def before_val_epoch(self, runner):
        self.note("before_val_epoch", runner)

    def after_val_epoch(self, runner, metrics=None):
        self.note("after_val_epoch", runner, sorted(metrics))

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        self.note("before_train_iter", runner, batch_idx)

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.note("after_train_iter", runner, batch_idx, sorted(outputs))

    def before_val_iter(self, runner, batch_idx, data_batch=None):
        self.note("before_val_iter", runner, batch_idx)

    def after_val_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.note("after_val_iter", runner, batch_idx)
