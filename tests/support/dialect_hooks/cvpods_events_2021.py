"""Storage and writers of cvpods in 2021: the storage returns plain values by name.

Source: ``cvpods/utils/dump/events.py`` of 2021, as copied by YOLOF, rewritten.
"""

from __future__ import annotations

import json

from support.library_storage import library_storage

_CURRENT_STORAGE_STACK, get_event_storage, Storage = library_storage()


class EventStorage(Storage):
    """Scalars by name."""


class EventWriter:
    """The base of writers."""

    def write(self):
        raise NotImplementedError

    def close(self):
        pass


class JSONWriter(EventWriter):
    """Writes a row of all values in each call, as in cvpods."""

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
    """Writes all scalars in each call, as in cvpods."""

    def __init__(self, log_dir, window_size=20):
        from torch.utils.tensorboard import SummaryWriter

        self._writer, self._window_size = SummaryWriter(log_dir), window_size

    def write(self):
        storage = get_event_storage()
        for name, value in storage.latest_with_smoothing_hint(self._window_size).items():
            self._writer.add_scalar(name, value, storage.iter)

    def close(self):
        self._writer.close()
