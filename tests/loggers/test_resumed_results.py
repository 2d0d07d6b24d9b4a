"""Results of hooks that a line has not shown yet, in a run resumed from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import CheckpointHook, Hook, LoggerHook
from support.training import NoValidation, make_loader, make_trainer

Row = tuple[int, float]


class Measuring(Hook):
    """Leaves a result for the loggers' next lines every third iteration, or for lines at once."""

    def __init__(self, ready: bool) -> None:
        super().__init__()
        self.ready = ready

    def after_train_iter(self, runner: Any) -> None:
        if runner.iter % 3 == 0:
            runner.log_buffer.output["measured"] = float(runner.iter)
            runner.log_buffer.ready = self.ready


class Rows(LoggerHook):
    """Keeps the step and the value of each line with the result."""

    def __init__(self, interval: int, by_epoch: bool) -> None:
        super().__init__(interval, by_epoch=by_epoch)
        self.rows: list[Row] = []

    def log(self, runner: Any) -> None:
        output = runner.log_buffer.output
        if "measured" in output:
            self.rows.append((self.get_iter(runner), output["measured"]))


class Lazy(Rows):
    """A logger with a line at the end of an epoch alone, as DVCLive's."""

    def after_train_iter(self, runner: Any) -> None:
        self._read_results(runner.log_buffer)


def rows_of(work: Path, ready: bool, lazy: bool, limit: int = -1, ckpt: str = "") -> list[Any]:
    """Train for some iterations, from a file if there is one; return the rows of each logger."""
    loggers = [Rows(1, True), Rows(2, True), Rows(5, False), (Lazy if lazy else Rows)(50, True)]
    saving = CheckpointHook(interval=1, by_epoch=False)
    options: dict[str, Any] = {"max_steps": limit, "enable_checkpointing": True}
    trainer = make_trainer(work, Measuring(ready), saving, *loggers, max_epochs=2, **options)
    trainer.fit(NoValidation(), make_loader(7), ckpt_path=ckpt or None)
    return [logger.rows for logger in loggers]


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("ready", [False, True])
def test_each_result_is_logged_once(tmp_path: Path, ready: bool, lazy: bool) -> None:
    whole = rows_of(tmp_path / "whole", ready, lazy)
    assert all(whole)
    for done in {*range(1, 14)} - {7}:  # the line of an end of epoch has the step after it
        file = str(tmp_path / "whole" / f"iter_{done}.pth")
        resumed = rows_of(tmp_path / str(done), ready, lazy, ckpt=file)
        later = [[row for row in rows if row[0] > done] for rows in whole]
        assert [[row for row in rows if row[0] > done] for rows in resumed] == later, done
        assert all(row[0] > done for rows in resumed for row in rows), done
