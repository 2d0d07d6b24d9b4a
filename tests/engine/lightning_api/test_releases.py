"""Hooks train with each Lightning release; a release newer than the tested releases is logged."""

from __future__ import annotations

import re
from pathlib import Path

import lightning as L
import pytest

from lightning_hooks import CheckpointHook, TextLoggerHook
from support.training import NoValidation, TinyModule, make_loader, make_trainer


def fit(root: Path) -> L.Trainer:
    trainer = make_trainer(root, TextLoggerHook(), max_epochs=1)
    trainer.fit(NoValidation(), make_loader(2))
    return trainer


@pytest.mark.parametrize("version", ["2.7.0", "2.10.1", "3.0.0.dev0"])
def test_a_newer_release_is_told_and_trains(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(L, "__version__", version)
    with pytest.warns(match=f"Lightning {re.escape(version)} is newer than 2.6, the newest"):
        assert fit(tmp_path).global_step == 2


@pytest.mark.parametrize("version", ["2.4.0", "2.5.6", "2.6.99", "2.6.0rc1"])
def test_a_release_of_the_tests_trains_without_a_line(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(L, "__version__", version)
    assert fit(tmp_path).global_step == 2  # a warning would be an error


def test_2_4_goes_on_from_an_epochs_end_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(max_epochs: int, ckpt_path: Path | None = None) -> L.Trainer:
        hook = CheckpointHook(interval=2, by_epoch=False)
        trainer = make_trainer(tmp_path, hook, max_epochs=max_epochs, enable_checkpointing=True)
        trainer.fit(NoValidation(), make_loader(4), ckpt_path=ckpt_path)
        return trainer

    end = tmp_path / "end.ckpt"
    run(1).save_checkpoint(end)
    monkeypatch.setattr(L, "__version__", "2.4.0")
    with pytest.raises(RuntimeError, match=r"written within epoch 1, where Lightning 2\.4\.0 goes"):
        run(2, tmp_path / "iter_2.pth")
    assert run(2, end).global_step == 8


def test_before_2_6_an_evaluation_alone_is_logged(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, TextLoggerHook())
    vars(trainer).pop("val_check_batch", None)  # set by the first fit alone, before 2.6
    trainer.validate(TinyModule(), make_loader(1), verbose=False)
    assert [*tmp_path.rglob("*.log.json")]
