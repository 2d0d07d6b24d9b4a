"""Storage and writers as cvpods had them in 2021: the storage gives values by name."""

from __future__ import annotations

import json

import numpy as np

_CURRENT_STORAGE_STACK = []


def get_event_storage():
    assert len(_CURRENT_STORAGE_STACK), "no storage"
    return _CURRENT_STORAGE_STACK[-1]


class EventStorage:
    """Scalars by name."""

    def __init__(self, start_iter=0):
        self._iter, self._history, self._hints = start_iter, {}, {}

    def put_scalar(self, name, value, smoothing_hint=True):
        self._history.setdefault(name, []).append((float(value), self._iter))
        self._hints[name] = smoothing_hint

    @property
    def iter(self):
        return self._iter

    def latest(self):
        return {name: values[-1][0] for name, values in self._history.items()}

    def latest_with_smoothing_hint(self, window_size=20):
        return {name: self._smoothed(name, window_size) for name in self._history}

    def _smoothed(self, name, window_size):
        values = [value for value, _ in self._history[name]]
        return float(np.median(values[-window_size:])) if self._hints[name] else values[-1]

    def __enter__(self):
        _CURRENT_STORAGE_STACK.append(self)
        return self

    def __exit__(self, *error):
        _CURRENT_STORAGE_STACK.pop()


class EventWriter:
    """The base of writers."""

    def write(self):
        raise NotImplementedError

    def close(self):
        pass


class JSONWriter(EventWriter):
    """The library's: each write is one row of everything."""

    def __init__(self, json_file, window_size=20):
        self._file = open(json_file, "a")  # noqa: SIM115
        self._window_size = window_size

    def write(self):
        storage = get_event_storage()
        row = {"iteration": storage.iter}
        row.update(storage.latest_with_smoothing_hint(self._window_size))
        self._file.write(json.dumps(row, sort_keys=True) + "\n")

    def close(self):
        self._file.close()


class TensorboardXWriter(EventWriter):
    """The library's."""

    def __init__(self, log_dir, window_size=20):
        from torch.utils.tensorboard import SummaryWriter

        self._writer, self._window_size = SummaryWriter(log_dir), window_size

    def write(self):
        storage = get_event_storage()
        for name, value in storage.latest_with_smoothing_hint(self._window_size).items():
            self._writer.add_scalar(name, value, storage.iter)

    def close(self):
        self._writer.close()
