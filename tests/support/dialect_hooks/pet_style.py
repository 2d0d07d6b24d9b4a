"""Hooks in the style of a Pet user, with the keywords of each signature."""

from __future__ import annotations

from lightning_hooks.dialects.pet import EventWriter, TrainHook, get_event_storage


class Trace(TrainHook):
    """Records calls and keywords."""

    def __init__(self):
        self.calls = []

    def before_train(self, **kwargs):
        self.calls.append(("before_train", None, sorted(kwargs)))

    def before_step(self, storage, **kwargs):
        self.calls.append(("before_step", storage.iter, sorted(kwargs)))

    def after_step(self, storage, **kwargs):
        self.calls.append(("after_step", storage.iter, sorted(kwargs)))

    def after_train(self, storage=None, **kwargs):
        self.calls.append(("after_train", storage.iter, sorted(kwargs)))


class Narrow:
    """A hook without a base class, with the signatures of an older loop."""

    def __init__(self):
        self.epochs = []

    def before_train(self):
        self.epochs.append("start")

    def after_step(self, storage, epoch, max_epochs):
        assert storage is get_event_storage()
        self.epochs.append((epoch, max_epochs))


class Rows(EventWriter):
    """A writer that stores records in a list."""

    def __init__(self):
        self.rows = []
        self.closed = False

    def write(self):
        storage = get_event_storage()
        self.rows.append((storage.iter, storage.latest_with_smoothing_hint(20)))

    def close(self):
        self.closed = True
