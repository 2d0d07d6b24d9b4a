"""Hooks in the style of an MMEngine user; only the import names another package."""

from __future__ import annotations

from lightning_hooks.dialects.mmengine import Hook


class Trace(Hook):
    """Records calls and arguments."""

    def __init__(self):
        self.calls = []

    def note(self, point, runner, **kwargs):
        self.calls.append((point, runner.epoch, runner.iter, *kwargs.values()))


def _noting(point):
    if point.endswith("_iter"):

        def method(self, runner, batch_idx, data_batch=None, outputs=None):
            assert data_batch is not None
            assert (outputs is not None) == point.startswith("after")
            self.note(point, runner, batch_idx=batch_idx)

    elif point in ("after_val_epoch", "after_test_epoch"):

        def method(self, runner, metrics=None):
            self.note(point, runner, metrics=sorted(metrics))

    else:

        def method(self, runner):
            self.note(point, runner)

    method.__name__ = point
    return method


for _point in Trace.stages:
    setattr(Trace, _point, _noting(_point))


class SwitchOff(Hook):
    """Changes the data set for the last epochs, as mmdet's pipeline switch does."""

    priority = "HIGH"

    def __init__(self, last=1):
        self.last = last

    def before_train_epoch(self, runner):
        if runner.epoch + 1 == runner.max_epochs - self.last + 1:
            runner.train_dataloader.dataset.augment = False


class StopEarly(Hook):
    """Stops when a metric is good enough."""

    def after_val_epoch(self, runner, metrics=None):
        if metrics["val_loss"] < 100:
            runner.train_loop.stop_training = True


class MeanLoss(Hook):
    """Reads the message hub, in every mode, through the generic method."""

    priority = "VERY_LOW"

    def __init__(self):
        self.modes = []
        self.means = []

    def _after_iter(self, runner, batch_idx, data_batch=None, outputs=None, mode="train"):
        self.modes.append(mode)
        if mode == "train" and self.every_n_inner_iters(batch_idx, 2):
            loss = runner.message_hub.get_scalar("train/loss")
            self.means.append(loss.mean(2))
            runner.visualizer.add_scalar("mean", self.means[-1], step=runner.iter)
        assert runner.optim_wrapper.get_lr() == {"lr": [0.1]}
