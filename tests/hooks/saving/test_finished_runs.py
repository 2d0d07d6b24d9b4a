"""A finished or moved run, resumed in a new process, knows its last and best files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lightning_hooks import BestCheckpointHook, CheckpointHook, EvalHook
from support.training import fit, make_loader


def hooks(kind: str) -> list[Any]:
    """Return the saving hooks of a run by kind."""
    return {
        "save_best": [CheckpointHook(interval=1, save_best="val_loss")],
        "best": [CheckpointHook(interval=1), BestCheckpointHook("val_loss")],
        "evaluation": [CheckpointHook(interval=1), EvalHook(save_best="val_loss")],
        "last": [CheckpointHook(interval=1)],
    }[kind]


KINDS = "save_best", "best", "evaluation", "last"


def train(folder: Path, kind: str, epochs: int = 3, ckpt_path: Any = None) -> Any:
    """Train; return the Trainer. The best epoch by ``val_loss`` is the last."""
    return fit(folder, *hooks(kind), val=1, max_epochs=epochs, ckpt_path=ckpt_path)


@pytest.mark.filterwarnings("ignore:.*multiple `ModelCheckpoint` callbacks")
@pytest.mark.parametrize("kind", KINDS)
def test_a_finished_run_is_tested_with_its_best_file(kind: str, tmp_path: Path) -> None:
    best = train(tmp_path, kind).checkpoint_callback.best_model_path
    again = train(tmp_path, kind, ckpt_path="last")
    hook = again.checkpoint_callback
    assert hook.best_model_path == best
    assert (hook.best_model_score is None) == (kind == "last")
    assert hook.last_model_path.endswith("epoch_3.pth")
    scores = again.validate(again.lightning_module, make_loader(1), ckpt_path="best")
    if kind != "last":
        assert scores[0]["val_loss"] == pytest.approx(float(hook.best_model_score))


@pytest.mark.parametrize("epochs", [3, 4], ids=["finished", "continued"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_moved_run_finds_its_files_where_they_are(kind: str, epochs: int, tmp_path: Path) -> None:
    train(tmp_path / "old", kind)
    (tmp_path / "old").rename(tmp_path / "new")
    hook = train(tmp_path / "new", kind, epochs, ckpt_path="last").checkpoint_callback
    for path in (hook.best_model_path, hook.last_model_path):
        assert path.startswith(str(tmp_path / "new"))
        assert Path(path).exists()
