"""Lines and rows of detectron2's event storage and writers, without a trainer, and ours."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from run_detectron2 import detectron2_names, without_library

LOGGERS = ("detectron2.utils.events", "lightning_hooks")


def _rows(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _lines(d2: Any, folder: Path) -> Any:
    """Return the printed lines of varying scalars with given times."""
    seen: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())  # type: ignore[method-assign]
    for name in LOGGERS:
        logging.getLogger(name).setLevel("INFO")
        logging.getLogger(name).addHandler(handler)
    printers = [d2.CommonMetricPrinter(12), d2.CommonMetricPrinter(), d2.CommonMetricPrinter(9, 2)]
    with d2.EventStorage(3) as storage:
        printers[1].write()
        for i in range(3, 9):
            storage.iter = i
            storage.put_scalars(total_loss=1.5 * i, loss_box=0.1 * i**2, other=float(i))
            if i >= 5:
                storage.put_scalars(time=0.5 * i, data_time=0.01 * i)
                storage.put_scalar("lr", 1e-5 * i, smoothing_hint=False)
            if i % 3 == 0:
                storage.put_scalars(**{"[metric]grad_scaler": 2.0**i, "fast/[metric]": 1e9 / i})
            for printer in printers[1:] if i < 5 else printers:
                printer.write()
        storage.iter = 9
        printers[2].write()  # the run of this printer is over
    for name in LOGGERS:
        logging.getLogger(name).removeHandler(handler)
    # without times, the last printer estimates the times
    return [line for line in seen if "eta" not in line or " time: " in line]


def _periods(d2: Any, folder: Path) -> Any:
    """Return rows of scalars with several periods, written at yet another period."""
    path = folder / "rows.json"
    with d2.EventStorage() as storage:
        writer = d2.JSONWriter(str(path))
        for i in range(60):
            storage.put_scalar("often", i, smoothing_hint=False)
            if i % 17 == 0:
                storage.put_scalar("seldom", -i, smoothing_hint=False)
            if (i + 1) % 20 == 0:
                writer.write()
            storage.step()
        writer.close()
    return _rows(path)


def _windows(d2: Any, folder: Path) -> Any:
    """Return medians of windows counted in iterations."""
    path = folder / "rows.json"
    with d2.EventStorage() as storage:
        writer = d2.JSONWriter(str(path), window_size=10)
        for i in range(20):
            storage.put_scalar("each", i)
            if i % 2:
                storage.put_scalar("second", i)
            if i % 5 == 4:
                storage.put_scalar("fifth", i, smoothing_hint=False)
            storage.step()
        writer.write()
        counts = [storage.count_samples(name, 10) for name in ("each", "second", "fifth")]
        writer.close()
        return [_rows(path), counts, storage.latest_with_smoothing_hint(7)]


def _storage(d2: Any, folder: Path) -> Any:
    """Return the contents of a storage."""
    with d2.EventStorage(5) as storage:
        with storage.name_scope("outer/"):
            storage.put_scalar("a", torch.tensor(2.0))
            with storage.name_scope("inner"):
                storage.put_scalars(b=3, c=4.5, cur_iter=9, smoothing_hint=False)
        storage.step()
        storage.put_histogram("h", torch.arange(8.0), bins=4)
        storage.put_image("i", torch.zeros(3, 2, 2))
        found = [
            *(storage.latest(), storage.smoothing_hints(), storage.iter, storage.iteration),
            *(storage._histograms, [(name, step) for name, _, step in storage._vis_data]),
            {name: history.values() for name, history in storage.histories().items()},
        ]
        storage.clear_images()
        storage.clear_histograms()
        return [*found, storage._histograms, storage._vis_data]


CASES: dict[str, Callable[[Any, Path], Any]] = {
    "detectron2.CommonMetricPrinter, its lines": _lines,
    "detectron2.JSONWriter, several periods": _periods,
    "detectron2.JSONWriter, windows": _windows,
    "detectron2.EventStorage": _storage,
}


def under_library(name: str, case: Callable[[Any, Path], Any], folder: str) -> Any:
    """Return the output of detectron2."""
    return _plain(case(detectron2_names(), Path(folder)))


def with_ours(name: str, case: Callable[[Any, Path], Any], folder: str) -> Any:
    """Return the output of the dialect."""
    return _plain(case(without_library(), Path(folder)))


def _plain(found: Any) -> Any:
    return json.loads(json.dumps(found))
