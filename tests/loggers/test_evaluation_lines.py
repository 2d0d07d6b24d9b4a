"""The text log of ``validate`` and ``test`` outside of a fit, and its first line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import (
    CheckpointHook,
    HookAdapter,
    IterTimerHook,
    StepLrUpdaterHook,
    TextLoggerHook,
)
from support.training import TinyModule, make_loader, make_trainer

both = pytest.mark.parametrize("host", [False, True], ids=["bare", "hosted"])


class Module(TinyModule):
    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.log("hits", 1.0)


def trainer_of(tmp_path: Path, host: bool, epochs: int = 2) -> Any:
    hooks = [StepLrUpdaterHook(step=[1]), TextLoggerHook(interval=2), CheckpointHook(interval=1)]
    options = {"max_epochs": epochs, "num_sanity_val_steps": 0, "enable_checkpointing": not host}
    return make_trainer(tmp_path, *([HookAdapter(hooks)] if host else hooks), **options)


def rows(tmp_path: Path) -> list[Any]:
    paths = sorted(tmp_path.glob("*.log.json"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


@both
def test_a_validation_after_a_fit_has_no_learning_rate(tmp_path: Path, host: bool) -> None:
    trainer, module = trainer_of(tmp_path, host), Module()
    trainer.fit(module, make_loader(), make_loader(1))
    assert [row["lr"] for row in rows(tmp_path) if row["mode"] == "val"] == [0.1, 0.01]
    trainer.validate(module, make_loader(1), verbose=False)
    trainer.fit(module, make_loader(), make_loader(1))  # at max_epochs: no step
    trainer.validate(module, make_loader(1), verbose=False)
    assert len(module.losses) == 8
    alone = [row for row in rows(tmp_path) if row["mode"] == "val"][2:]
    assert [(row["epoch"], "lr" in row) for row in alone] == [(2, False)] * 2


@both
def test_the_epoch_is_that_of_the_file(tmp_path: Path, host: bool, caplog: Any) -> None:
    first = trainer_of(tmp_path, host, epochs=3)
    first.fit(Module(), make_loader(), make_loader(1))
    path = tmp_path / "epoch_2.pth"
    for trainer in (first, trainer_of(tmp_path, host)):
        caplog.clear()
        done = trainer.current_epoch  # of a new Trainer 0
        module = Module()
        trainer.validate(module, make_loader(1), ckpt_path=path, verbose=False)
        trainer.test(module, make_loader(1), ckpt_path="last", verbose=False)
        trainer.validate(module, make_loader(1), verbose=False)
        assert [row["epoch"] for row in rows(tmp_path)[-3:]] == [2, 3, done]
        assert any("Epoch(val) [2][1]" in message for message in caplog.messages)
        assert "on_load_checkpoint" not in vars(module)


def test_a_validation_without_values_is_no_line(tmp_path: Path, caplog: Any) -> None:
    class Silent(TinyModule):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            pass

    hooks = IterTimerHook(), TextLoggerHook(interval=2)
    make_trainer(tmp_path, *hooks, max_epochs=1).fit(Silent(), make_loader(), make_loader(1))
    assert {row["mode"] for row in rows(tmp_path)} == {"train"}
    assert not any("Epoch(val)" in message for message in caplog.messages)


@both
def test_an_empty_meta_is_no_line(tmp_path: Path, host: bool) -> None:
    hooks = [CheckpointHook(interval=1, save_best="val_loss"), TextLoggerHook(interval=2)]
    options = {"enable_checkpointing": not host, "num_sanity_val_steps": 0}
    trainer = make_trainer(tmp_path, *([HookAdapter(hooks)] if host else hooks), **options)
    trainer.fit(Module(), make_loader(), make_loader(1))
    assert {row["mode"] for row in rows(tmp_path)} == {"train", "val"}
