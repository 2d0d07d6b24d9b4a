"""The best and the last checkpoint of a run, found in another process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_hooks import BestCheckpointHook, CheckpointHook, best_checkpoint, last_checkpoint
from lightning_hooks.storage.average import best_files
from support.training import TinyModule, fit


class Scored(TinyModule):
    """A module with the scores 1, 3 and 2."""

    def on_validation_epoch_end(self) -> None:
        self.log("accuracy", torch.tensor([1.0, 3.0, 2.0][self.current_epoch]))


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    hooks = CheckpointHook(interval=1, max_keep_ckpts=2), BestCheckpointHook("accuracy")
    fit(tmp_path, *hooks, module=Scored, val=1, max_epochs=3, num_sanity_val_steps=0)
    return tmp_path


def test_the_best_and_the_last_of_a_run_are_found(run_dir: Path) -> None:
    assert best_checkpoint(run_dir) == str(run_dir / "best_accuracy_epoch_2.pth")
    assert best_checkpoint(str(run_dir), "accuracy") == best_checkpoint(run_dir)
    assert last_checkpoint(run_dir) == str(run_dir / "epoch_3.pth")
    (run_dir / "epoch_3.pth").write_bytes(b"")
    with pytest.warns(UserWarning, match=r"epoch_3\.pth has 0 bytes"):
        assert last_checkpoint(run_dir) == str(run_dir / "epoch_2.pth")


def test_best_files_by_several_scores_are_told(tmp_path: Path) -> None:
    class Both(Scored):
        def on_validation_epoch_end(self) -> None:
            super().on_validation_epoch_end()
            self.log("loss", torch.tensor([3.0, 2.0, 1.0][self.current_epoch]))

    best = BestCheckpointHook(["loss", "accuracy"], keep_best=2)
    fit(tmp_path, best, module=Both, val=1, max_epochs=3, num_sanity_val_steps=0)
    message = "best files by accuracy and loss: those by accuracy are taken; name the score"
    with pytest.warns(UserWarning, match=message):
        assert best_checkpoint(tmp_path) == str(tmp_path / "best_accuracy_epoch_2.pth")
    assert best_checkpoint(tmp_path, "loss") == str(
        tmp_path / "best_loss_epoch_3.pth"
    )  # no warning
    with pytest.warns(UserWarning, match=message):  # lightning-hooks average --best 2
        paths = best_files(str(tmp_path), 2)
    assert [Path(path).name[:13] for path in paths] == ["best_accuracy"] * 2


def test_what_is_there_is_told_where_nothing_is_found(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no intact best checkpoint by 'loss': its list"):
        best_checkpoint(run_dir, "loss")
    other = tmp_path / "other"
    with pytest.raises(FileNotFoundError, match="the directory is missing"):
        last_checkpoint(other)
    other.mkdir()
    with pytest.raises(FileNotFoundError, match=r"no checkpoints\.json, and no other file"):
        last_checkpoint(other)
    (other / "epoch=3.ckpt").touch()
    with pytest.raises(FileNotFoundError, match=r"the files epoch=3\.ckpt"):
        best_checkpoint(other)
    (other / "checkpoints.json").write_text("{broken")
    with (
        pytest.warns(UserWarning, match="is no list of checkpoints"),
        pytest.raises(FileNotFoundError, match=r"an empty or damaged checkpoints\.json, and the f"),
    ):
        best_checkpoint(other)
    with pytest.raises(TypeError, match="directory must be a path"):
        best_checkpoint(3)  # type: ignore[arg-type]


def test_the_command_lists_the_files(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for package in ("rich", "shtab"):
        pytest.importorskip(package)
    from lightning_hooks.cli.app import run

    (run_dir / "epoch_2.pth").write_bytes(b"")
    assert run(["files", str(run_dir), "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    found = {row["file"]: row for row in rows}
    assert found["epoch_3.pth"]["what"] == "last"
    assert found["epoch_2.pth"]["what"].startswith("damaged: has 0 bytes")
    best = found["best_accuracy_epoch_2.pth"]
    assert (best["what"], best["score"], best["epochs"]) == ("best accuracy", 3.0, 2)
    assert best["size"] == (run_dir / "best_accuracy_epoch_2.pth").stat().st_size
    assert run(["files", str(run_dir)]) == 0
    assert "epoch_3.pth\t3\t12\t\t" in capsys.readouterr().out
    assert run(["files", str(run_dir / "nothing")]) == 2
