"""The numbers of epochs, iterations and batches in mmcv's lines of text."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader

from support.standin import make


def heads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str, limit: int, **logger: Any
) -> list[str]:
    """Train on loaders of 2 and 3 batches; return the starts of the lines."""
    runner = make(kind, limit, tmp_path, logger=logging.getLogger("lines"))
    config = {"type": "TextLoggerHook", **logger}
    runner.register_logger_hooks({"interval": 1, "hooks": [config]})
    runner.register_timer_hook({"type": "IterTimerHook"})
    loaders: list[Any] = [DataLoader([1.0] * n) for n in (2, 3, 4)]  # type: ignore[arg-type]
    with caplog.at_level("INFO", "lines"):
        runner.run(loaders, [("train", 1), ("train", 1), ("val", 1)])
    return [m.partition("\t")[0] for m in caplog.messages if m.startswith(("Epoch", "Iter"))]


def test_a_validation_after_a_longer_epoch_tells_its_batches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert heads(tmp_path, caplog, "EpochBasedRunner", 2) == [
        *("Epoch [1][1/2]", "Epoch [1][2/2]"),
        *("Epoch [2][1/3]", "Epoch [2][2/3]", "Epoch [2][3/3]"),
        "Epoch(val) [2][4]",
    ]


def test_a_validations_line_by_iteration_has_the_next_iteration(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = heads(tmp_path, caplog, "EpochBasedRunner", 2, by_epoch=False)
    assert lines[-2:] == ["Iter [5/6]", "Iter(val) [6]"]


def test_lines_by_epoch_of_a_run_by_iteration_have_the_loaders_length(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert heads(tmp_path, caplog, "IterBasedRunner", 4) == [
        *("Epoch [1][1/2]", "Epoch [1][1/3]", "Epoch [1][1/2]", "Epoch [1][1/3]")
    ]


@pytest.mark.parametrize("meta", [None, {}, {"seed": 3}], ids=str)
def test_the_json_begins_with_the_meta_an_empty_one_too(meta: Any, tmp_path: Path) -> None:
    runner = make("EpochBasedRunner", 1, tmp_path, meta=meta)
    runner.register_logger_hooks({"interval": 1, "hooks": [{"type": "TextLoggerHook"}]})
    runner.run([DataLoader([1.0])], [("train", 1)])  # type: ignore[arg-type]
    (log,) = tmp_path.glob("*.log.json")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[:-1] == ([] if meta is None else [meta])
