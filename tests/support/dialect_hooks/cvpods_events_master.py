"""Storage and writers as on cvpods' main branch: the storage gives values with iterations.

Source: ``cvpods/utils/dump/events.py`` of the main branch, rewritten.
"""

from __future__ import annotations

import json
from collections import defaultdict

from support.library_storage import library_storage

_CURRENT_STORAGE_STACK, get_event_storage, Storage = library_storage()


class EventStorage(Storage):
    """Scalars by name, with the iteration of each last value."""

    def latest(self):
        return {name: values[-1] for name, values in self._history.items()}

    def latest_with_smoothing_hint(self, window_size=20):
        smoothed = super().latest_with_smoothing_hint(window_size)
        return {name: (value, self._history[name][-1][1]) for name, value in smoothed.items()}


class JSONWriter:
    """Writes a row for each new iteration, as in cvpods."""

    def __init__(self, json_file, window_size=20):
        self._file = open(json_file, "a")  # noqa: SIM115
        self._window_size, self._last_write = window_size, -1

    def write(self):
        latest = get_event_storage().latest_with_smoothing_hint(self._window_size)
        rows = defaultdict(dict)
        for name, (value, when) in latest.items():
            if when > self._last_write:
                rows[when][name] = value
        self._last_write = max([self._last_write, *rows])
        for when, row in rows.items():
            self._file.write(json.dumps({**row, "iteration": when}, sort_keys=True) + "\n")

    def close(self):
        self._file.close()


class TensorboardXWriter:
    """Writes new scalars in each call, as in cvpods."""

    def __init__(self, log_dir, window_size=20):
        from torch.utils.tensorboard import SummaryWriter

        self._writer, self._window_size, self._last_write = SummaryWriter(log_dir), window_size, -1

    def write(self):
        latest = get_event_storage().latest_with_smoothing_hint(self._window_size)
        new = {name: one for name, one in latest.items() if one[1] > self._last_write}
        for name, (value, when) in new.items():
            self._writer.add_scalar(name, value, when)
        self._last_write = max([self._last_write, *(when for _, when in new.values())])

    def close(self):
        self._writer.close()
